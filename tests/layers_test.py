#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: reads every #include "…" of server/ and client/.

A folder includes only folders of a lower layer, and of its own layer only where its CMakeLists.txt
draws the arrow with PEERS. Some things may appear only in some places. Run it from anywhere.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
PROTO_SHM_USERS = {"memory", "image", "transport", "pipeline", "session", "api", "daemon"}

# What may appear only in some places: pattern -> the files that may have it (prefixes).
ONLY_HERE = {
    r"steady_clock::now|system_clock": ("server/base/clock.cc", "server/base/log.cc",
                                        "client/src/"),
    r"std::mutex|std::condition_variable": ("server/base/sync.h", "client/src/"),
    r"\babsl::Mutex\b": (),
    r"\bgetenv\(": ("server/daemon/", "client/src/util.cc"),
    r"#include [<\"]grpcpp/": ("server/api/", "server/daemon/", "client/src/grpc_carrier.cc"),
    r"#include \"batchd/v1/": ("server/api/", "server/daemon/", "client/src/grpc_carrier.cc"),
    r"#include [<\"]google/": ("server/", "client/src/grpc_carrier.cc"),
    r"#include [<\"]absl/": ("server/",),
    r"\bthrow\b": (),
    r"\b(memfd_create|shm_open)\(": ("server/memory/segment.cc",
                                            "server/decoder/worker_process.cc"),
}


def layers():
    """folder -> (layer, peers), as the CMakeLists.txt files say."""
    found = {}
    for path in sorted(ROOT.glob("server/*/CMakeLists.txt")):
        text = path.read_text()
        match = re.search(r"batchd_library\((\w+) LAYER (\d+)(.*?)\n\s*\)?", text, re.S)
        if match:
            peers = re.search(r"PEERS ([\w ]+)", text)
            found[match[1]] = (int(match[2]), set(peers[1].split()) if peers else set())
    found.setdefault("daemon", (7, set()))
    return found


def strip_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def main():
    faults = []
    table = layers()
    files = [p for top in ("server", "client") for p in ROOT.glob(f"{top}/**/*")
             if p.suffix in (".cc", ".h")]
    assert files and len(table) >= 14, "nothing to check: the test looks in the wrong place"
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text()
        folder = name.split("/")[1] if name.startswith("server/") else None
        for include in INCLUDE.findall(text):
            if include.startswith("server/"):
                target = include.split("/")[1]
                if folder is None:
                    faults.append(f"{name}: client/ knows nothing of server/ ({include})")
                elif target != folder and table[target][0] >= table[folder][0] and \
                        target not in table[folder][1]:
                    faults.append(f"{name} (layer {table[folder][0]}) includes {include} "
                                  f"(layer {table[target][0]})")
            if include.startswith("proto/shm/") and folder and folder not in PROTO_SHM_USERS:
                faults.append(f"{name}: {include} belongs to {sorted(PROTO_SHM_USERS)}")
            # What users include needs nothing of ours but itself, and no library at all.
            if name.startswith("client/include/") and not re.match(r"batchd/\w+\.h$|\w+$", include):
                faults.append(f"{name}: a public header includes {include}")
        code = strip_comments(text)
        for pattern, places in ONLY_HERE.items():
            if re.search(pattern, code) and not name.startswith(places or ("\0",)):
                faults.append(f"{name}: '{pattern}' may appear only in {list(places) or 'no file'}")
    for fault in faults:
        print(fault)
    print(f"{len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
