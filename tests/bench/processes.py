# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of a process and all that it has started, from /proc."""

from __future__ import annotations

import os
import pathlib

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the program's name, which may hold anything."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def tree(root: int) -> list[int]:
    """`root` and its descendants, those that live now."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except OSError:
                continue  # it has just ended
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, ended and awaited children included; to 10 ms a process."""
    ticks = 0
    for pid in tree(root):
        try:
            ticks += sum(map(int, _stat(pid)[11:15]))
        except OSError:
            continue
    return ticks / _TICKS_PER_SECOND


def pss_mb(root: int) -> float:
    """Proportional set size of the tree in MB: a page that n processes share counts once."""
    kib = 0
    for pid in tree(root):
        try:
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kib += int(line.split()[1])
        except OSError:
            continue
    return kib * 1024 / 1e6


def machine_busy_seconds() -> float:
    """CPU time that the machine has spent since it started, all cores together. What a hypervisor
    has taken away counts: it is not there for what is measured.
    """
    fields = [int(v) for v in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / _TICKS_PER_SECOND
