#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a large image folder costs: memory of its index in the daemon beyond the bytes of the names,
memory of the trainer, seconds to list it and to open it from the index cache.

Run by hand, takes a few minutes and as many directory entries as samples (hard links, no data):
    BATCHD_BINARY=build/dev/server/daemon/batchd python3 tests/soak/index_memory.py [--samples N]
Prints JSON. Ends with 1 if a path takes more than 60 bytes beyond its name, or a trainer grows.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from daemon import Daemon
from pictures import make_numbered_folder, numbered

CLASSES = 1000
BYTES_PER_PATH_MAX = 60
TRAINER_BYTES_MAX = 4 << 20

# A process of its own for every dataset: its memory afterwards, its seconds, its sample count.
TRAINER = """
import json, os, sys, time
import batchd
from batchd import transforms as T
columns = {"image": [T.DecodeImage(), T.RandomResizedCrop(32)], "label": T.Label()}
started = time.monotonic()
loader = batchd.Loader(batchd.ImageFolder(sys.argv[2]), columns, batch_size=8, shuffle=True,
                       address=sys.argv[1])
opened = time.monotonic()
for batch in loader.steps(20):
    batch["image"].numpy()
with open("/proc/self/statm") as statm:
    rss = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
print(json.dumps({"seconds": opened - started, "rss_bytes": rss, "samples": loader.num_samples}),
      flush=True)
sys.stdin.read()  # the session stays open while the daemon is looked at
"""


def make_folder(root: pathlib.Path, samples: int) -> int:
    """Hard links to one picture a class; returns the bytes of the files' own names."""
    names = 0
    per_class = -(-samples // CLASSES)
    for first in range(0, samples, per_class):
        name = f"n{first // per_class:08d}"  # as long as ImageNet's names
        folder = root / name
        folder.mkdir(parents=True)
        picture = folder / f"{name}_{first:07d}.JPEG"
        picture.write_bytes(numbered(first // per_class))
        names += len(picture.name)
        for number in range(first + 1, min(first + per_class, samples)):
            link = f"{name}_{number:07d}.JPEG"
            os.link(picture, folder / link)
            names += len(link)
    return names


def open_in(daemon: Daemon, root: pathlib.Path) -> dict[str, Any]:
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER, daemon.address, str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as trainer:
        seen = json.loads(trainer.stdout.readline())
        index = daemon.metric("batchd_memory_bytes", kind="index")
        seen |= {"index_bytes": int(index), "daemon_rss_bytes": daemon.rss_bytes()}
        trainer.stdin.close()
    return seen


def measure(samples: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="batchd-index-") as name:
        folder = pathlib.Path(name)
        small = make_numbered_folder(folder / "small", 100)
        started = time.monotonic()
        names = make_folder(folder / "large", samples)
        made = time.monotonic() - started
        # A daemon of its own for every figure, so that none holds what another has left.
        with Daemon((name,), folder=folder / "d0") as daemon:
            least = open_in(daemon, small)
        with Daemon((name,), folder=folder / "d1") as daemon:
            cold = open_in(daemon, folder / "large")
            daemon.kill()
            daemon.start()
            cached = open_in(daemon, folder / "large")
            cache_file = sum(file.stat().st_size
                             for file in (folder / "d1/state").rglob("*") if file.is_file())
    assert cold["samples"] == cached["samples"] == samples
    return {
        "samples": samples,
        "classes": CLASSES,
        "seconds_to_make": round(made, 1),
        "name_bytes": names,
        "index_bytes": cold["index_bytes"],
        "index_bytes_per_path_beyond_names": (cold["index_bytes"] - names) / samples,
        "cache_file_bytes": cache_file,
        **{
            f"{key}_{word}": value
            for word, opened in (("listed", cold), ("from_cache", cached))
            for key, value in (
                ("seconds_to_open", round(opened["seconds"], 3)),
                ("daemon_rss_growth_bytes", opened["daemon_rss_bytes"] - least["daemon_rss_bytes"]),
                ("daemon_rss_bytes_per_path_beyond_names",
                 (opened["daemon_rss_bytes"] - least["daemon_rss_bytes"] - names) / samples),
                ("trainer_rss_growth_bytes", opened["rss_bytes"] - least["rss_bytes"]),
            )
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1_000_000)
    result = measure(parser.parse_args().samples)
    faults = [
        f"{key}={result[key]} is above {limit}"
        for key, limit in (
            ("index_bytes_per_path_beyond_names", BYTES_PER_PATH_MAX),
            ("daemon_rss_bytes_per_path_beyond_names_listed", BYTES_PER_PATH_MAX),
            ("daemon_rss_bytes_per_path_beyond_names_from_cache", BYTES_PER_PATH_MAX),
            ("trainer_rss_growth_bytes_listed", TRAINER_BYTES_MAX),
            ("trainer_rss_growth_bytes_from_cache", TRAINER_BYTES_MAX),
        )
        if result[key] > limit
    ]
    print(json.dumps({**result, "faults": faults}, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
