#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a batch costs the trainer: CPU time and allocated memory of taking a 64x3x224x224 uint8
batch over shared memory, looking at its image as an array and giving it back. The daemon is the
fake, in a process of its own that is stopped while it has batches ready: what is measured is the
client alone, with neither waiting nor a neighbour in it.

Usage: handoff_cost.py [ROUNDS]; the last line is for scripts.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
import timeit
import tracemalloc
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python_client" / "src"), str(HERE)]

from hot import cost_of_ready_batches  # noqa: E402

import batchd  # noqa: E402
from batchd import transforms as T  # noqa: E402

ROUNDS = 7
READY = 40  # batches a round

DAEMON = """
import sys, time
from fake_daemon import Behaviour, Column, FakeDaemon
columns = (Column("image", "DATA_TYPE_UINT8", (3, 224, 224)),
           Column("label", "DATA_TYPE_INT64", ()))
daemon = FakeDaemon(sys.argv[1], Behaviour(num_samples=64 * 10**6, columns=columns, fill=False))
print("up", flush=True)
sys.stdin.read()
"""


def look_as_array(batch: batchd.Batch) -> Any:
    return batch["image"].numpy()


def look_as_tensor(batch: batchd.Batch) -> Any:
    return batch["image"].torch()


def take(loader: batchd.Loader, count: int) -> None:
    for batch in loader.steps(count):
        look_as_array(batch)


def wait_until_idle(pid: int) -> None:
    """The fake has done all that it can when it uses no more time."""
    before = -1.0
    while (now := sum(map(int, Path(f"/proc/{pid}/stat").read_text().split()[13:15]))) != before:
        before = now
        time.sleep(0.1)


def peak_per_batch(loader: batchd.Loader, count: int) -> int:
    """The most bytes that Python has allocated at one time while it took batches."""
    take(loader, 10)
    tracemalloc.start()
    take(loader, 10)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    take(loader, count)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def measure(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bd") as folder:
        daemon = subprocess.Popen(
            [sys.executable, "-c", DAEMON, f"{folder}/sock"],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert daemon.stdout is not None and daemon.stdin is not None
        daemon.stdout.readline()
        try:
            columns = {"image": [T.DecodeImage()], "label": T.Label()}
            address = f"unix:{folder}/sock"
            with batchd.Loader(
                "fake", columns, batch_size=64, prefetch=READY, address=address
            ) as loader:
                take(loader, 200)
                result: dict[str, Any] = {"peak_bytes": peak_per_batch(loader, 200)}
                looks = {"cpu": look_as_array}
                if has_torch():
                    looks["torch"] = look_as_tensor
                for name, look in looks.items():
                    result[name] = cost_of_ready_batches(
                        loader.steps(2**40),
                        look,
                        lambda: wait_until_idle(daemon.pid),
                        pid=daemon.pid,
                        rounds=rounds,
                        count=READY,
                    )
                return result
        finally:
            daemon.stdin.close()
            daemon.wait()
            daemon.stdout.close()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    result = measure(rounds)
    # On a busy machine everything takes longer: this says by how much (about 0.2 on an idle one).
    yardstick = min(timeit.repeat("sum(range(10))", repeat=5, number=100_000)) * 10
    print(
        f"python {platform.python_version()}, {os.cpu_count()} CPUs, {rounds} x {READY} batches "
        f"that lie ready, load {os.getloadavg()[0]:.1f}, sum(range(10)) {yardstick:.2f} us"
    )
    for name in ("cpu", "torch"):
        print(f"{name}: {result.get(name, 'not installed')}")
    print(f"cpu_us_per_batch={result['cpu'].median:.1f} peak_bytes={result['peak_bytes']}")


if __name__ == "__main__":
    main()
