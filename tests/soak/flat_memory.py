#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does memory stay flat? A real daemon and one trainer process, many small batches; both are
looked at every 200 batches. After the first tenth the Theil-Sen slope of their resident memory has
to be at most 1 MiB in 100,000 batches, and their open files and threads must not have grown.

Run by hand, takes a minute or two:
    BATCHD_BINARY=build/dev/server/daemon/batchd python3 tests/soak/flat_memory.py [--batches 20000]
Prints one line of JSON. Ends with 1 if something has grown.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from daemon import Daemon, rss_bytes
from pictures import make_numbered_folder

EVERY = 200
SLOPE_BYTES_MAX = 1 << 20  # in PER_BATCHES batches
PER_BATCHES = 100_000

# The trainer says how many batches it has had and waits to be told to go on, so that both processes
# are looked at in the same state.
TRAINER = """
import sys
import batchd
from batchd import transforms as T
address, folder, count, every = sys.argv[1:5]
columns = {"image": [T.DecodeImage(), T.RandomResizedCrop(32), T.ToTensor()], "label": T.Label()}
with batchd.Loader(batchd.ImageFolder(folder), columns, batch_size=8, shuffle=True,
                   address=address) as loader:
    done = 0
    while done < int(count):
        for batch in loader.steps(int(every)):
            assert batch["image"].numpy().shape == (8, 3, 32, 32)
            assert batch["label"].numpy().shape == (8,)
        del batch
        done += int(every)
        print(done, flush=True)
        sys.stdin.readline()
"""


def look(pid: int) -> dict[str, int]:
    return {
        "rss": rss_bytes(pid),
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
    }


def slope(points: list[tuple[int, int]]) -> float:
    """Theil-Sen: the median of the slopes between all pairs."""
    return statistics.median(
        (y2 - y1) / (x2 - x1)
        for index, (x1, y1) in enumerate(points)
        for x2, y2 in points[index + 1 :]
    )


def watch(batches: int) -> dict[str, Any]:
    """Runs it. For both processes: resident memory and its slope; the fewest files and threads, as
    [of the first half, of the second].
    """
    seen: dict[str, list[tuple[int, dict[str, int]]]] = {"daemon": [], "trainer": []}
    with tempfile.TemporaryDirectory(prefix="batchd-soak-") as folder:
        root = make_numbered_folder(pathlib.Path(folder) / "data", 512)
        with Daemon((str(root),)) as daemon:
            started = time.monotonic()
            with subprocess.Popen(
                [sys.executable, "-c", TRAINER, daemon.address, str(root), str(batches),
                 str(EVERY)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            ) as trainer:
                for line in trainer.stdout:
                    seen["daemon"].append((int(line), look(daemon.pid)))
                    seen["trainer"].append((int(line), look(trainer.pid)))
                    trainer.stdin.write("\n")
                    trainer.stdin.flush()
            assert trainer.returncode == 0, "the trainer has failed"
            seconds = time.monotonic() - started
    result = {"batches": batches, "seconds": round(seconds, 1)}
    return {**result, **{name: summary(looks, batches // 10) for name, looks in seen.items()}}


def summary(looks: list[tuple[int, dict[str, int]]], warm_up: int) -> dict[str, Any]:
    late = [(done, values) for done, values in looks if done > warm_up]
    halves = late[: len(late) // 2], late[len(late) // 2 :]
    rise = slope([(done, values["rss"]) for done, values in late]) * PER_BATCHES
    return {
        "slope_bytes_per_100000": round(rise),
        "rss_bytes_first": late[0][1]["rss"],
        "rss_bytes_last": late[-1][1]["rss"],
        "rss_bytes_max": max(values["rss"] for _, values in late),
        **{
            # The fewest: a sample's file is open for a moment now and then, a leak is always.
            kind: [min(values[kind] for _, values in half) for half in halves]
            for kind in ("fds", "threads")
        },
    }


def leftovers(result: dict[str, Any]) -> list[str]:
    """Files and threads that have become more, in words."""
    return [
        f"{name}: {kind} from {before} to {after}"
        for name in ("daemon", "trainer")
        for kind in ("fds", "threads")
        for before, after in [result[name][kind]]
        if after > before
    ]


def rises(result: dict[str, Any]) -> list[str]:
    """Memory that grows, in words."""
    return [
        f"{name}: {result[name]['slope_bytes_per_100000']} bytes in {PER_BATCHES} batches"
        for name in ("daemon", "trainer")
        if result[name]["slope_bytes_per_100000"] > SLOPE_BYTES_MAX
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=20_000)
    result = watch(parser.parse_args().batches)
    faults = leftovers(result) + rises(result)
    print(json.dumps({**result, "grown": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
