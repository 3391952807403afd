#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures batchd and its rivals on the same files, one after the other, round by round.

    run.py --venvs VENVS --data FOLDER --out results/NAME.jsonl
    run.py --report results/NAME.jsonl

Makes the pictures in FOLDER if they are not there, runs every entry once a round (each second round
backwards), appends one line of JSON a run to --out and prints the tables of report.py. An entry
whose virtual environment is not below VENVS is left out, and said to be.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple

import processes
import report
from make_images import make_images

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SETS = ("train-u8", "eval-u8", "train-f32")
QUIET_SHARE = 0.10


class Entry(NamedTuple):
    name: str
    script: str
    variant: str = ""
    venv: str = ""  # below --venvs; empty: the Python that runs this
    many_workers: bool = False  # its best number of workers is looked for


ENTRIES = (
    Entry("batchd", "batchd_loader.py"),
    Entry("batchd:fast", "batchd_loader.py", "fast"),
    Entry("batchd:isolated", "batchd_loader.py", "isolated"),
    Entry("bound:whole", "jpeg_bound.py", "whole"),
    Entry("bound:crop", "jpeg_bound.py", "crop"),
    Entry("torch:pil", "torch_dataloader.py", "pil", "rivals", many_workers=True),
    Entry("torch:io", "torch_dataloader.py", "io", "rivals", many_workers=True),
    Entry("spdl", "spdl_pipeline.py", "", "rivals", many_workers=True),
    Entry("dali", "dali_cpu.py", "", "rivals", many_workers=True),
    Entry("tfdata:accurate", "tfdata.py", "accurate", "tf"),
    Entry("tfdata:official", "tfdata.py", "official", "tf"),
    Entry("ffcv", "ffcv_loader.py", "", "ffcv"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", metavar="RESULTS", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/bench-data/pictures")
    parser.add_argument("--count", type=int, default=2048, help="pictures in --data")
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "build/bench-venvs")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["train-u8"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture-size", default="", metavar="WIDTHxHEIGHT",
                        help="of all pictures, instead of ImageNet's sizes")
    parser.add_argument("--workers", type=int, nargs="+",
                        help="of every entry; by default the cores, and twice as many for rivals")
    parser.add_argument("--only", nargs="+", default=[], metavar="ENTRY")
    parser.add_argument("--warm", type=int, default=12)
    parser.add_argument("--batches", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--check", action="store_true", help="pixels instead of speed")
    parser.add_argument("--wait", type=float, default=10, help="seconds to wait for quiet")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench-data/results.jsonl")
    return parser.parse_args()


def python_of(entry: Entry, given: argparse.Namespace) -> pathlib.Path:
    return given.venvs / entry.venv / "bin/python" if entry.venv else pathlib.Path(sys.executable)


def chosen(given: argparse.Namespace) -> list[Entry]:
    entries = [e for e in ENTRIES if not given.only or e.name in given.only]
    for entry in [e for e in entries if not python_of(e, given).exists()]:
        print(f"{entry.name} is left out: there is no {python_of(entry, given)}", flush=True)
        entries.remove(entry)
    return entries


def command(entry: Entry, workers: int, kind: str, given: argparse.Namespace) -> list[str]:
    recipe, dtype = kind.split("-")
    flags = {"data": given.data, "recipe": recipe, "dtype": dtype, "workers": workers,
             "batch-size": given.batch_size, "warm": given.warm, "batches": given.batches,
             "cache": f"{given.data}.ffcv"}
    if entry.variant:
        flags["variant"] = entry.variant
    return [str(python_of(entry, given)), str(HERE / entry.script),
            *(f"--{name}={value}" for name, value in flags.items()),
            *(["--check"] if given.check else [])]


def environment(given: argparse.Namespace) -> dict[str, str]:
    return {**os.environ, "BATCHD_BINARY": str(given.build.resolve() / "server/daemon/batchd"),
            "BATCHD_JPEG_BOUND": str(given.build.resolve() / "tests/bench/jpeg_bound"),
            "PYTHONWARNINGS": "ignore"}


def run_one(argv: list[str], env: dict[str, str], timeout: float = 300) -> dict[str, Any]:
    """One entry in a process group of its own, with what others took of the machine meanwhile."""
    before, busy, started = os.times(), processes.machine_busy_seconds(), time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=env, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return {"error": f"no end after {timeout:g} s: {process.communicate()[1][-500:]}"}
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if process.returncode != 0 or not lines:
        return {"error": f"exit code {process.returncode}: {(errors or output)[-500:]}"}
    after, seconds = os.times(), time.monotonic() - started
    own = (after.children_user - before.children_user
           + after.children_system - before.children_system)
    foreign = (processes.machine_busy_seconds() - busy - own) / (seconds * os.cpu_count())
    return {**json.loads(lines[-1]), "foreign": max(0.0, foreign), "seconds": seconds}


def wait_until_quiet(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        busy, started = processes.machine_busy_seconds(), time.monotonic()
        time.sleep(0.5)
        spent = processes.machine_busy_seconds() - busy
        if spent / ((time.monotonic() - started) * os.cpu_count()) < QUIET_SHARE:
            return


def machine() -> dict[str, Any]:
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in cpuinfo
                  if line.startswith("model name")), platform.machine())
    commit = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    return {"machine": f"{len(os.sched_getaffinity(0))} cores of {model}, "
                       f"Linux {platform.release().split('-')[0]}",
            "date": datetime.date.today().isoformat(), "commit": commit}


def jobs(entries: list[Entry], given: argparse.Namespace) -> list[tuple[Entry, int]]:
    cores = len(os.sched_getaffinity(0))
    return [(entry, workers) for entry in entries
            for workers in given.workers or ([cores, 2 * cores] if entry.many_workers
                                             and not given.check else [cores])]


def summary(record: dict[str, Any]) -> str:
    if "error" in record:
        return record["error"]
    if "equal" in record:
        return (f"{record['equal']} of {record['pictures']} pictures equal to Pillow's, mean "
                f"difference {record['mean_difference']:.3f}, largest "
                f"{record['largest_difference']}")
    return (f"{record['images_s']:7.1f} images/s  {record['cpu_s_per_1000']:.3f} CPU-s/1000  "
            f"foreign {record['foreign']:.0%}  {record['seconds']:.0f} s")


def main() -> int:
    given = arguments()
    if given.report:
        print(report.tables(given.report))
        return 0
    data = make_images(given.data, given.count, size=given.picture_size)
    entries, env, failed = chosen(given), environment(given), False
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with open(given.out, "a") as out:
        out.write(json.dumps({**machine(), "data": data, "warm": given.warm,
                              "batches": given.batches, "batch_size": given.batch_size}) + "\n")
        for kind in ["eval-u8"] if given.check else given.sets:
            for turn in range(1 if given.check else given.rounds):
                for entry, workers in jobs(entries, given)[:: 1 if turn % 2 == 0 else -1]:
                    wait_until_quiet(given.wait)
                    record = {"set": kind, "round": turn, "entry": entry.name, "workers": workers,
                              **run_one(command(entry, workers, kind, given), env)}
                    failed |= "error" in record
                    out.write(json.dumps(record) + "\n")
                    out.flush()
                    print(f"{kind} round {turn} {entry.name:16} {workers} {summary(record)}",
                          flush=True)
    if not given.check:
        print(report.tables(given.out))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
