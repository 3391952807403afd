# SPDX-License-Identifier: Apache-2.0
"""Markdown tables of what run.py has written."""

from __future__ import annotations

import json
import pathlib
import statistics
from typing import Any

FOREIGN_MAX = 0.05  # of the machine's time: a run with more of it does not count for images/s
CLAIMED = ("spdl", "torch:io", "torch:pil")
Runs = list[dict[str, Any]]


def spread(values: list[float], form: str = ".0f") -> str:
    return (f"{min(values):{form}} / **{statistics.median(values):{form}}** / "
            f"{max(values):{form}}")


def median(runs: Runs, key: str) -> float | None:
    values = [run[key] for run in runs if run[key] is not None]
    return statistics.median(values) if values else None


def shown(value: float | None, form: str = ".0f") -> str:
    return "" if value is None else f"{value:{form}}"


def undisturbed(runs: Runs) -> Runs:
    """The quiet runs; where there is none, all of them."""
    return [run for run in runs if run["foreign"] <= FOREIGN_MAX] or runs


def best_of(groups: dict[tuple[str, int], Runs], name: str) -> Runs | None:
    """The runs of an entry at its best number of workers."""
    of_name = [runs for (entry, _), runs in groups.items() if entry == name]
    return max(of_name, key=lambda runs: median(undisturbed(runs), "images_s"), default=None)


def ratios(ours: Runs, theirs: Runs, key: str) -> list[float]:
    """Ours over theirs, within each round."""
    by_round = {run["round"]: run[key] for run in theirs}
    return [run[key] / by_round[run["round"]] for run in ours if run["round"] in by_round]


def row(name: str, workers: int, runs: Runs, ours: Runs | None) -> str:
    quiet = undisturbed(runs)
    speed = cpu = ""
    if ours and name != "batchd":
        speed = spread(ratios(ours, runs, "images_s"), ".2f")
        cpu = spread(ratios(ours, runs, "cpu_s_per_1000"), ".2f")
    quiet_count = sum(run["foreign"] <= FOREIGN_MAX for run in runs)
    cells = [name, str(workers), spread([run["images_s"] for run in quiet]),
             spread([run["cpu_s_per_1000"] for run in runs], ".2f"), speed, cpu,
             shown(median(runs, "pss_mb")), shown(beyond_imports(runs)),
             shown(median(runs, "first_batch_s"), ".2f"), shown(median(runs, "handoff_us")),
             f"{quiet_count} of {len(runs)}"]
    return "| " + " | ".join(cells) + " |"


HEAD = """\
| entry | workers | images/s min / median / max | CPU-s per 1000 images | batchd's images/s ÷ its \
| batchd's CPU-s ÷ its | PSS MB | beyond imports | first batch s | hand-off µs | quiet runs |
|---|---|---|---|---|---|---|---|---|---|---|"""


def beyond_imports(runs: Runs) -> float | None:
    """MB that loading takes beside what importing the library does."""
    values = [run["pss_mb"] - run["imports_pss_mb"] for run in runs if run["pss_mb"] is not None]
    return statistics.median(values) if values else None


def less(own: float, other: float, what: str, form: str) -> str:
    word = "less" if own < other else "NOT less"
    return f"{own:{form}} {what} are {word} than {other:{form}}"


def claims(groups: dict[tuple[str, int], Runs]) -> list[str]:
    """What batchd means to be, said of each rival as the numbers have it."""
    ours = best_of(groups, "batchd")
    lines = []
    for name in CLAIMED:
        theirs = best_of(groups, name)
        if not ours or not theirs:
            continue
        least = min(run["images_s"] for run in undisturbed(ours))
        middle = median(undisturbed(theirs), "images_s")
        above = "above" if least > middle else "NOT above"
        lines.append(f"- {name} at {theirs[0]['workers']} workers: " + "; ".join([
            f"batchd's least {least:.0f} images/s is {above} its median {middle:.0f}",
            less(*(median(runs, "cpu_s_per_1000") for runs in (ours, theirs)),
                 "CPU-s per 1000 images", ".2f"),
            less(*(median(runs, "pss_mb") for runs in (ours, theirs)), "MB of PSS", ".0f"),
            less(*map(beyond_imports, (ours, theirs)), "MB of PSS beyond imports", ".0f")]))
    return lines


def table(kind: str, records: Runs) -> str:
    groups: dict[tuple[str, int], Runs] = {}
    for record in records:
        groups.setdefault((record["entry"], record["workers"]), []).append(record)
    ours = best_of(groups, "batchd")
    order = sorted(groups.items(), key=lambda item: -median(undisturbed(item[1]), "images_s"))
    rows = [row(name, workers, runs, ours) for (name, workers), runs in order]
    return "\n".join([f"### {kind}", "", HEAD, *rows, "", *claims(groups), ""])


def tables(path: pathlib.Path) -> str:
    """All sets in the file, under the machine and the date of its last run."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    about = [line for line in lines if "machine" in line][-1]
    records = [line for line in lines if "images_s" in line]
    failures = [f"- {line['set']} {line['entry']}: {line['error']}"
                for line in lines if "error" in line]
    parts = [f"{about['machine']}; {about['date']}; batchd {about['commit']}; {about['data']}", ""]
    for kind in dict.fromkeys(record["set"] for record in records):
        parts.append(table(kind, [record for record in records if record["set"] == kind]))
    return "\n".join([*parts, *failures])
