# SPDX-License-Identifier: Apache-2.0
"""The trainer's CPU time of a batch while batches lie ready: what next() and the look at an array
cost, without what waiting or a busy neighbour adds.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import batchd


class Cost(NamedTuple):
    """Microseconds of CPU time a batch."""

    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return f"min {self.least:.1f} median {self.median:.1f} max {self.most:.1f} us"


def cost_of_ready_batches(
    batches: Iterator[batchd.Batch],
    look: Callable[[batchd.Batch], Any],
    wait_until_ready: Callable[[], None],
    *,
    pid: int,
    rounds: int = 5,
    count: int = 40,
) -> Cost:
    """Of `rounds` times `count` batches, which `wait_until_ready` has seen lying ready. Process
    `pid`, the daemon, is stopped meanwhile, so that it takes no time on the trainer's core.
    """
    look(next(batches))  # maps the segments, imports what has to be
    costs = []
    for _ in range(rounds):
        wait_until_ready()
        with stopped(pid):
            for _ in range(count):
                started = time.thread_time_ns()
                batch = next(batches)
                look(batch)
                costs.append((time.thread_time_ns() - started) / 1000)
    return Cost(min(costs), statistics.median(costs), max(costs))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    # A batch may be ready and not announced yet; who waits for that one then gets it all the same.
    goes_on = threading.Timer(5, os.kill, (pid, signal.SIGCONT))
    os.kill(pid, signal.SIGSTOP)
    goes_on.start()
    try:
        yield
    finally:
        goes_on.cancel()
        os.kill(pid, signal.SIGCONT)
