#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rows of the paper "Scalable and Performant Data Loading", on this machine: images/s, CPU time
and memory with 1,281,167 paths and 4 trainers, for batchd, SPDL and PyTorch's DataLoader.

    paper.py --venvs VENVS --data FOLDER --paths FOLDER

--paths gets 1,000 folders of hard links to the pictures of --data. Two things are measured:

feed    4 trainers, each with its rank's part, take pictures of the train recipe as fast as they
        come: images/s and CPU-seconds of all processes within a window, and their PSS after it
paths   4 trainers go through one shuffled epoch of all paths without decoding any, which is when
        DataLoader's workers get their own copies of the list: PSS of all processes after it, and
        how much of it is beyond 4 trainers that have Torch loaded and nothing else

Every trainer has Torch loaded. DataLoader forks its workers, its default on Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests" / "integration")]

import processes  # noqa: E402
from make_images import make_images  # noqa: E402
from run import machine  # noqa: E402

IMAGENET, CLASSES = 1_281_167, 1000


def make_paths(folder: pathlib.Path, pictures: pathlib.Path, count: int) -> None:
    """Names as long as ImageNet's; nothing is done where there are as many already."""
    note = folder.with_name(folder.name + ".json")
    if note.exists() and json.loads(note.read_text()) == count:
        return
    originals = itertools.cycle(sorted(map(str, pictures.glob("*/*"))))
    for label in range(min(CLASSES, count)):
        name = f"n{label:08d}"
        (folder / name).mkdir(parents=True)
        for number in range(label, count, CLASSES):
            os.link(next(originals), folder / name / f"{name}_{number:07d}.JPEG")
    note.write_text(json.dumps(count))


class Trainers:
    """The trainers of one run, and for batchd their one daemon, as children of this process."""

    def __init__(self, kind: str, workers: int, given: argparse.Namespace):
        self.processes: list[subprocess.Popen[str]] = []
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="batchd-bench-"))
        self.counts = pathlib.Path(folder, "counts")  # 8 bytes a trainer
        self.counts.write_bytes(bytes(8 * given.trainers))
        flags = [f"--data={given.paths}", f"--world-size={given.trainers}",
                 f"--workers={workers}", f"--warm={given.warm}"]
        if kind.startswith("batchd"):
            from daemon import Daemon

            daemon = self.stack.enter_context(Daemon((given.paths,)))
            flags.append(f"--address={daemon.address}")
        if kind.startswith("torch"):
            flags.append(f"--variant={given.torch_variant}")
        python = str(given.venvs / "rivals/bin/python")
        for rank in range(given.trainers):
            self.processes.append(subprocess.Popen(
                [python, str(HERE / "trainer.py"), kind, str(self.counts), f"--rank={rank}",
                 *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONWARNINGS": "ignore"}))

    def wait(self) -> None:
        """Until every trainer has said that it is warm, or through."""
        for process in self.processes:
            if not process.stdout.readline():
                raise RuntimeError(f"a trainer has ended with {process.wait()}")

    def rows(self) -> int:
        data = self.counts.read_bytes()
        return sum(int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8))

    def pss_mb(self) -> float:
        return processes.pss_mb(os.getpid()) - own_pss_mb()

    def end(self) -> None:
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.stack.close()


def own_pss_mb() -> float:
    for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("no Pss in smaps_rollup")


@contextlib.contextmanager
def running(kind: str, workers: int, given: argparse.Namespace) -> Iterator[Trainers]:
    trainers = Trainers(kind, workers, given)
    try:
        trainers.wait()
        yield trainers
    finally:
        trainers.end()


def feed(kind: str, workers: int, given: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    with running(kind, workers, given) as trainers:
        warm_s = time.perf_counter() - started
        rows, window = trainers.rows(), time.perf_counter()
        cpu, busy = processes.cpu_seconds(os.getpid()), processes.machine_busy_seconds()
        while time.perf_counter() - window < given.seconds or trainers.rows() == rows:
            time.sleep(0.1)
        rows, window = trainers.rows() - rows, time.perf_counter() - window
        cpu = processes.cpu_seconds(os.getpid()) - cpu
        busy = processes.machine_busy_seconds() - busy
        return {"part": "feed", "kind": kind, "workers": workers, "images_s": rows / window,
                "cpu_s_per_1000": 1000 * cpu / rows, "pss_mb": trainers.pss_mb(),
                "seconds_until_warm": warm_s,
                "foreign": max(0.0, busy - cpu) / (window * os.cpu_count())}


def paths(kind: str, workers: int, given: argparse.Namespace) -> dict[str, Any]:
    with running(f"{kind}-paths", workers, given) as trainers:
        return {"part": "paths", "kind": kind, "workers": workers, "rows": trainers.rows(),
                "pss_mb": trainers.pss_mb()}


def beyond_torch(records: list[dict[str, Any]]) -> None:
    """Takes the memory of the trainers without data off each record's."""
    bare_mb = next(record["pss_mb"] for record in records if record["kind"] == "nothing")
    for record in records:
        record["beyond_torch_mb"] = record["pss_mb"] - bare_mb


def report(records: list[dict[str, Any]]) -> str:
    lines = []
    for part, columns in (
            ("feed", {"images_s": ".0f", "cpu_s_per_1000": ".2f", "pss_mb": ".0f",
                      "beyond_torch_mb": ".0f", "seconds_until_warm": ".1f", "foreign": ".2f"}),
            ("paths", {"rows": ".0f", "pss_mb": ".0f", "beyond_torch_mb": ".0f"})):
        lines += [f"| {part} | workers a trainer | " + " | ".join(columns) + " |",
                  "|---|---" + "|---" * len(columns) + "|"]
        groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for record in (r for r in records if r["part"] == part):
            groups.setdefault((record["kind"], record["workers"]), []).append(record)
        for (kind, workers), group in groups.items():
            cells = []
            for column, form in columns.items():
                values = sorted(record[column] for record in group)
                cells.append(f"{values[0]:{form}} / **{values[len(values) // 2]:{form}}** / "
                             f"{values[-1]:{form}}")
            lines.append(f"| {kind} | {workers} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/bench-data/pictures")
    parser.add_argument("--count", type=int, default=2048, help="pictures in --data")
    parser.add_argument("--paths", type=pathlib.Path, default=ROOT / "build/bench-data/paths")
    parser.add_argument("--path-count", type=int, default=IMAGENET)
    parser.add_argument("--venvs", type=pathlib.Path, default=ROOT / "build/bench-venvs")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4], help="for each trainer")
    parser.add_argument("--kinds", nargs="+", default=["batchd", "spdl", "torch"])
    parser.add_argument("--torch-variant", choices=("pil", "io"), default="io")
    parser.add_argument("--rounds", type=int, default=3, help="of feed; paths is run once")
    parser.add_argument("--seconds", type=float, default=10, help="the window of feed")
    parser.add_argument("--warm", type=int, default=4, help="batches before it, of each trainer")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    os.environ["BATCHD_BINARY"] = str(given.build.resolve() / "server/daemon/batchd")
    make_images(given.data, given.count)
    make_paths(given.paths, given.data, given.path_count)
    records = []
    plan = [(feed, kind, given.workers[0]) for _ in range(given.rounds) for kind in given.kinds]
    plan.append((paths, "nothing", given.workers[0]))
    plan += [(paths, kind, workers) for workers in given.workers for kind in given.kinds
             if kind != "batchd" or workers == given.workers[0]]  # it has no workers of a trainer
    for measured, kind, workers in plan:
        records.append(measured(kind, workers, given))
        print(json.dumps(records[-1]), file=sys.stderr, flush=True)
    beyond_torch(records)
    about = machine()
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text("".join(json.dumps(line) + "\n" for line in [about, *records]))
    print(f"{about['machine']}; {about['date']}; batchd {about['commit']}; "
          f"{given.path_count} paths, {given.trainers} trainers\n\n{report(records)}")


if __name__ == "__main__":
    main()
