#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a batch costs the trainer: CPU time and allocated memory of taking a 64x3x224x224 uint8
batch over shared memory, looking at it as an array and giving it back. The daemon is the fake, in a
process of its own.

Usage: handoff_cost.py [BATCHES]; the last line is for scripts.
"""

from __future__ import annotations

import os
import platform
import statistics
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

import batchd  # noqa: E402
from batchd import transforms as T  # noqa: E402

ROUNDS = 7

DAEMON = """
import sys, time
from fake_daemon import Behaviour, Column, FakeDaemon
columns = (Column("image", "DATA_TYPE_UINT8", (3, 224, 224)),
           Column("label", "DATA_TYPE_INT64", ()))
daemon = FakeDaemon(sys.argv[1], Behaviour(num_samples=64 * 10**6, columns=columns, fill=False))
print("up", flush=True)
sys.stdin.read()
"""


def take(loader: batchd.Loader, count: int, *, as_torch: bool) -> None:
    for batch in loader.steps(count):
        image = batch["image"].torch() if as_torch else batch["image"].numpy()
        label = batch["label"].numpy()
        assert image.shape[0] == label.shape[0]


def cpu_per_batch(loader: batchd.Loader, count: int, as_torch: bool) -> float:
    """Microseconds, the median of some rounds: other work on the machine makes some slower."""
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time_ns()
        take(loader, count, as_torch=as_torch)
        rounds.append((time.process_time_ns() - started) / count / 1000)
    return statistics.median(rounds)


def peak_per_batch(loader: batchd.Loader, count: int) -> int:
    """The most bytes that Python has allocated at one time while it took batches."""
    take(loader, 10, as_torch=False)
    tracemalloc.start()
    take(loader, 10, as_torch=False)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    take(loader, count, as_torch=False)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def measure(count: int) -> dict[str, Any]:
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
            with batchd.Loader("fake", columns, batch_size=64, address=address) as loader:
                take(loader, 200, as_torch=False)
                result: dict[str, Any] = {"cpu_us": cpu_per_batch(loader, count, False)}
                try:
                    import torch  # noqa: F401
                except ImportError:
                    result["torch_cpu_us"] = None
                else:
                    take(loader, 10, as_torch=True)
                    result["torch_cpu_us"] = cpu_per_batch(loader, count, True)
                result["peak_bytes"] = peak_per_batch(loader, 200)
                return result
        finally:
            daemon.stdin.close()
            daemon.wait()
            daemon.stdout.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    result = measure(count)
    # On a busy machine everything takes longer: this says by how much (about 0.2 on an idle one).
    yardstick = min(timeit.repeat("sum(range(10))", repeat=5, number=100_000)) * 10
    print(
        f"python {platform.python_version()}, {os.cpu_count()} CPUs, {ROUNDS} x {count} batches, "
        f"load {os.getloadavg()[0]:.1f}, sum(range(10)) {yardstick:.2f} us"
    )
    torch = result["torch_cpu_us"]
    print(
        f"cpu_us_per_batch={result['cpu_us']:.1f} "
        f"torch_cpu_us_per_batch={'none' if torch is None else f'{torch:.1f}'} "
        f"peak_bytes={result['peak_bytes']}"
    )


if __name__ == "__main__":
    main()
