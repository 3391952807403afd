#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How batchd goes from one core to all, and what a row costs beside its decoding.

    scaling.py --data FOLDER --build build/release

real    the train recipe with 1, 2, 4 ... all cores' threads, beside the same without a daemon
        (jpeg_bound)
no-op   a real daemon and a real trainer over shared memory, with next to nothing to decode: rows
        that are labels (nothing is read), and pictures of one pixel in files of 14 bytes (each is
        opened, read, decoded and measured as any other). CPU time of daemon and trainer together,
        divided by the rows: scheduling, hand-off and metrics, in the second case with the system
        calls for a file
queue   the ready queue alone (ready_queue.cc), driven by 1 to 128 threads

Prints Markdown, and JSON to --out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), str(ROOT / "python_client" / "src"),
                str(ROOT / "tests" / "integration")]

import processes  # noqa: E402
from make_images import make_images  # noqa: E402
from run import machine  # noqa: E402

PIXEL_FILES = 4096
SAMPLE_US_MAX = 25.0


def core_counts() -> list[int]:
    cores = len(os.sched_getaffinity(0))
    doubling = itertools.takewhile(lambda n: n < cores, (2**i for i in range(20)))
    return [*doubling, cores]


def run_json(argv: list[str], env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


def real(given: argparse.Namespace, env: dict[str, str]) -> list[dict[str, Any]]:
    records = []
    scripts = {"batchd": ["batchd_loader.py"], "bound:crop": ["jpeg_bound.py", "--variant=crop"]}
    for turn, cores in itertools.product(range(given.rounds), core_counts()):
        for script in scripts.values():
            argv = [sys.executable, str(HERE.parent / script[0]), *script[1:],
                    f"--data={given.data}", f"--workers={cores}", f"--warm={given.warm}",
                    f"--batches={given.batches}"]
            records.append({"part": "real", "round": turn, **run_json(argv, env)})
    return records


def make_pixels(folder: pathlib.Path, count: int) -> pathlib.Path:
    (folder / "c").mkdir(parents=True)
    for number in range(count):
        (folder / "c" / f"{number:06d}.ppm").write_bytes(b"P6\n1 1\n255\n\x10\x20\x30")
    return folder


def no_op(given: argparse.Namespace) -> list[dict[str, Any]]:
    from batchd import transforms as T

    label = {"label": T.Label()}
    cases = {"label": label, "one pixel": {"image": T.DecodeImage(), **label}}
    with tempfile.TemporaryDirectory(prefix="batchd-bench-") as folder:
        pixels = make_pixels(pathlib.Path(folder, "pixels"), given.pixel_files)
        return [{"part": "no-op", "round": turn, "case": case, "workers": cores,
                 **cost_of_rows(pixels, columns, cores, given.no_op_batches)}
                for turn in range(given.rounds) for cores in core_counts()
                for case, columns in cases.items()]


def cost_of_rows(folder: pathlib.Path, columns: Any, cores: int, batches: int) -> dict[str, Any]:
    from daemon import Daemon

    import batchd

    with (Daemon((folder,), f"--cpus={cores}") as daemon,
          batchd.Loader(batchd.ImageFolder(str(folder)), columns, batch_size=64, shuffle=True,
                        address=daemon.address) as loader):
        taken = loader.steps(2**40)
        for _ in range(batches // 4):
            next(taken)
        started = time.perf_counter()
        trainer, tree = time.process_time(), processes.cpu_seconds(os.getpid())
        for _ in range(batches):
            next(taken)
        trainer, tree = time.process_time() - trainer, processes.cpu_seconds(os.getpid()) - tree
        rows = 64 * batches
        return {"rows_s": rows / (time.perf_counter() - started),
                "cpu_us_per_row": 1e6 * tree / rows,
                "trainer_us_per_batch": 1e6 * trainer / batches}


def queue(given: argparse.Namespace) -> list[dict[str, Any]]:
    program = str(given.build / "tests/bench/ready_queue")
    return [{"part": "queue", "round": turn,
             **run_json([program, str(threads), str(batches), str(work), str(given.queue_seconds)],
                        dict(os.environ))}
            for turn in range(given.rounds) for threads in (1, 2, 64, 128)
            for batches in (1, 64) for work in (0, 200)]


def spread(values: list[float], form: str) -> str:
    values = sorted(values)
    return f"{values[0]:{form}} / **{values[len(values) // 2]:{form}}** / {values[-1]:{form}}"


def table(records: list[dict[str, Any]], keys: list[str], columns: dict[str, str]) -> str:
    """One row for each combination of `keys`; `columns`: name in the record -> format."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[key] for key in keys), []).append(record)
    lines = ["| " + " | ".join([*keys, *columns]) + " |", "|---" * (len(keys) + len(columns)) + "|"]
    for group, of_group in groups.items():
        cells = [spread([record[name] for record in of_group], form)
                 for name, form in columns.items()]
        lines.append("| " + " | ".join([*map(str, group), *cells]) + " |")
    return "\n".join(lines)


def report(records: list[dict[str, Any]]) -> str:
    def part(name: str) -> list[dict[str, Any]]:
        return [record for record in records if record["part"] == name]

    worst = max((record["cpu_us_per_row"] for record in part("no-op")), default=0.0)
    return "\n\n".join([
        "Cells: min / **median** / max over the rounds.",
        table(part("real"), ["entry", "workers"], {"images_s": ".0f", "cpu_s_per_1000": ".3f"}),
        table(part("no-op"), ["case", "workers"],
              {"cpu_us_per_row": ".1f", "trainer_us_per_batch": ".0f", "rows_s": ".0f"}),
        f"The dearest row: {worst:.1f} µs of CPU; the target is {SAMPLE_US_MAX:g} at most: "
        + ("met." if worst <= SAMPLE_US_MAX else "NOT met."),
        table(part("queue"), ["threads", "batches", "work_us"],
              {"cpu_us_per_row": ".2f", "rows_s": ".0f", "context_switches_per_row": ".3f"})])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/bench-data/pictures")
    parser.add_argument("--count", type=int, default=2048, help="pictures in --data")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=12)
    parser.add_argument("--batches", type=int, default=32)
    parser.add_argument("--no-op-batches", type=int, default=4000)
    parser.add_argument("--pixel-files", type=int, default=PIXEL_FILES)
    parser.add_argument("--queue-seconds", type=float, default=0.5)
    parser.add_argument("--parts", nargs="+", default=["real", "no-op", "queue"])
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    given.build = given.build.resolve()
    env = {**os.environ, "BATCHD_BINARY": str(given.build / "server/daemon/batchd"),
           "BATCHD_JPEG_BOUND": str(given.build / "tests/bench/jpeg_bound")}
    os.environ["BATCHD_BINARY"] = env["BATCHD_BINARY"]  # for Daemon, which reads it when imported
    records: list[dict[str, Any]] = []
    if "real" in given.parts:
        make_images(given.data, given.count)
        records += real(given, env)
    if "no-op" in given.parts:
        records += no_op(given)
    if "queue" in given.parts:
        records += queue(given)
    about = machine()
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text("".join(json.dumps(line) + "\n" for line in [about, *records]))
    print(f"{about['machine']}; {about['date']}; batchd {about['commit']}\n\n{report(records)}")


if __name__ == "__main__":
    main()
