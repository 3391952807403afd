# SPDX-License-Identifier: Apache-2.0
"""What must hold after any fault: the rows of an undisturbed run, and nothing left behind."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re

import job
from arena import Arena, Trainer
from daemon import Daemon, wait_until
from rows import Row, rows_of

SECONDS_TO_CLEAN_UP = 20.0
# gRPC and the HTTP server keep threads and descriptors of their own as they see fit.
SLACK = 6


class Undisturbed:
    """The rows of a run that nothing happens to: one rank, shared memory. Grows on demand."""

    def __init__(self, root: pathlib.Path):
        self._root = root
        self._rows: list[set[Row]] = []

    def rows(self, epochs: int) -> set[Row]:
        if len(self._rows) < epochs:
            with Daemon((self._root,)) as daemon, \
                    job.loader(daemon.address, self._root, columns=job.COLUMNS_SMALL) as loader:
                loader.set_epoch(len(self._rows))
                while loader.epoch < epochs:
                    self._rows.append({row for batch in loader
                                       for row in rows_of(batch, job.G, 0, 1)})
        return set().union(*self._rows[:epochs])


def check_rows(trainers: list[Trainer], undisturbed: Undisturbed, epochs: int) -> None:
    """Every row of these epochs has come once, to the rank that it belongs to."""
    rows = [Row(*row) for trainer in trainers for line in trainer.log.read_text().splitlines()
            for row in json.loads(line)["rows"]]
    assert len(rows) == len(set(rows)), "a row came twice"
    # A trainer that was told late may have gone on for an epoch.
    got = {row for row in rows if row.epoch < epochs}
    expected = undisturbed.rows(epochs)
    lost, wrong = sorted(expected - got), sorted(got - expected)
    assert got == expected, \
        f"{len(lost)} rows are lost: {lost[:3]}; {len(wrong)} wrong: {wrong[:3]}"


def belongings(daemon: Daemon) -> collections.Counter[str]:
    """What a daemon holds, by kind, that a client's end must give back."""
    held: collections.Counter[str] = collections.Counter()
    proc = pathlib.Path("/proc", str(daemon.pid))
    for fd in os.listdir(proc / "fd"):
        try:
            target = os.readlink(proc / "fd" / fd)
        except FileNotFoundError:
            continue
        held["segments" if "memfd:batchd" in target else "other descriptors"] += 1
    held["mapped segments"] = (proc / "maps").read_text().count("memfd:batchd")
    held["threads"] = len(os.listdir(proc / "task"))
    # The state folder beside them is a cache, made to stay.
    held["files"] = sum(path.name != "state" for path in daemon.folder.iterdir())
    metrics = daemon.get("/metrics")
    for name in ("batchd_sessions", "batchd_slabs", "batchd_memory_bytes"):
        for labels, value in re.findall(rf"^{name}(\S*) (\S+)$", metrics, re.MULTILINE):
            if "budget" not in labels and "index" not in labels:
                held[name + labels] = int(float(value))
    return held


def check_nothing_behind(daemon: Daemon, before: collections.Counter[str]) -> None:
    """Waits until the daemon holds no more than `before` it had clients."""
    allowed = before + collections.Counter({"threads": SLACK, "other descriptors": SLACK})
    left: dict[str, str] = {}

    def is_clean() -> bool:
        left.clear()
        for kind, count in belongings(daemon).items():
            if count > allowed[kind]:
                left[kind] = f"{count}, before {before[kind]}"
        return not left

    try:
        wait_until(is_clean, SECONDS_TO_CLEAN_UP)
    except AssertionError:
        raise AssertionError(f"left behind after {SECONDS_TO_CLEAN_UP:g} s: {left}") from None


def check_end(arena: Arena, undisturbed: Undisturbed, before: collections.Counter[str]) -> None:
    """All of it, and that the daemon then ends as asked and takes its sockets with it."""
    check_rows(arena.trainers, undisturbed, arena.finish())
    check_nothing_behind(arena.daemon, before)
    assert arena.daemon.terminate() == 0
    assert {path.name for path in arena.daemon.folder.iterdir()} <= {"log", "state"}
