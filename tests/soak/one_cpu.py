#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the daemon's own choice of threads is worth where it may use one CPU of several: pinned by
taskset, and held by a quota of a CPU cgroup. Images per second with the defaults, divided by those
with --cpus 1, in rounds that take turns (S24).

Run by hand and as root, takes two minutes:
    BATCHD_BINARY=build/release/server/daemon/batchd python3 tests/soak/one_cpu.py [--rounds N]
Prints JSON. Ends with 1 if a default gives less than 0.8 of --cpus 1 in the median.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from daemon import BINARY, Daemon

import batchd
from batchd import transforms as T

PICTURES = 1000
RATIO_MIN = 0.8
PERIOD_US = 100_000


@contextlib.contextmanager
def one_cpu_cgroup() -> Iterator[pathlib.Path]:
    """A child of this process's CPU cgroup with the quota of one CPU, of whichever version."""
    paths = {name: line.split(":", 2)[2]
             for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
             for name in line.split(":", 2)[1].split(",")}
    v1 = pathlib.Path("/sys/fs/cgroup/cpu")
    parent = v1 / paths["cpu"].lstrip("/") if "cpu" in paths else \
        pathlib.Path("/sys/fs/cgroup") / paths[""].lstrip("/")
    folder = parent / f"batchd-one-cpu-{os.getpid()}"
    folder.mkdir()
    try:
        if "cpu" in paths:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(PERIOD_US))
        else:
            (folder / "cpu.max").write_text(f"{PERIOD_US} {PERIOD_US}")
        yield folder
    finally:
        folder.rmdir()


def images_per_second(root: str, prefix: tuple[str, ...], flags: tuple[str, ...]) -> float:
    with Daemon(("/",), *flags, prefix=prefix) as daemon:
        columns = {"image": [T.DecodeImage(), T.RandomResizedCrop(224)], "label": T.Label()}
        with batchd.Loader(batchd.ImageFolder(root), columns, batch_size=50, shuffle=True,
                           address=daemon.address) as loader:
            next(iter(loader))  # everything is mapped and warm
            started = time.monotonic()
            rows = sum(batch.rows for batch in loader)
            return rows / (time.monotonic() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    core = str(min(os.sched_getaffinity(0)))
    fits = True
    with tempfile.TemporaryDirectory() as data, one_cpu_cgroup() as cgroup:
        subprocess.run([BINARY, "demo", "--make-images", data, "--count", str(PICTURES)],
                       check=True, stdout=subprocess.DEVNULL)
        enter = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup / "cgroup.procs"))
        for name, prefix in (("taskset", ("taskset", "-c", core)), ("cgroup", enter)):
            ratios = []
            for _ in range(rounds):
                default = images_per_second(data, prefix, ())
                ratios.append(default / images_per_second(data, prefix, ("--cpus", "1")))
            median = statistics.median(ratios)
            fits &= median >= RATIO_MIN
            print(json.dumps({"one CPU by": name, "default / --cpus 1": {
                "min": round(min(ratios), 3), "median": round(median, 3),
                "max": round(max(ratios), 3)}, "rounds": rounds}))
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
