# SPDX-License-Identifier: Apache-2.0
"""The benchmarks work: each in a form too short to say anything about speed, without the rivals."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from daemon import BINARY

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
BUILD = pathlib.Path(BINARY).resolve().parents[2]
PROGRAMS = BUILD / "tests" / "bench"  # built with -DBATCHD_BENCH=ON
COUNT = 40
sys.path.insert(0, str(BENCH))

import report  # noqa: E402
from make_images import make_images  # noqa: E402

pytestmark = pytest.mark.release_only


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "pictures"
    make_images(folder, COUNT, classes=8)
    return folder


def bench(script: str, *flags: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH / script), *map(str, flags)],
                          capture_output=True, text=True, timeout=150)


def records(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_same_seed_makes_the_same_pictures(pictures, tmp_path):
    make_images(tmp_path / "again", 8, classes=8)

    for path in (tmp_path / "again").rglob("*.JPEG"):
        assert path.read_bytes() == (pictures / path.relative_to(tmp_path / "again")).read_bytes()


def test_a_box_decoded_alone_is_that_part_of_the_picture(pictures):
    done = subprocess.run([PROGRAMS / "jpeg_bound", pictures, "check", "1", "0", "0"],
                          capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(done.stdout) == {"images": COUNT - 1, "different": 0}  # one is a PNG


def test_picture_operations_and_crops_are_timed(pictures):
    files = sorted(pictures.rglob("*.JPEG"))[:4]
    done = subprocess.run([PROGRAMS / "picture_kernels", *files], capture_output=True, text=True,
                          timeout=60, check=True)

    seen = json.loads(done.stdout)
    assert {"jitter", "blur 23", "2 crops alone", "10 crops together"} <= set(seen)
    assert min(seen.values()) > 0


def test_entries_are_measured_in_every_round_and_missing_rivals_are_named(pictures, tmp_path):
    done = bench("run.py", "--data", pictures, "--count", COUNT, "--build", BUILD, "--venvs",
                 tmp_path, "--rounds", 2, "--warm", 1, "--batches", 12, "--batch-size", 8, "--wait",
                 0, "--out", tmp_path / "out.jsonl")

    assert done.returncode == 0, done.stdout + done.stderr
    seen = records(tmp_path / "out.jsonl")[1:]
    names = ["batchd", "batchd:fast", "batchd:isolated", "bound:whole", "bound:crop"]
    assert [record["entry"] for record in seen] == names + names[::-1]
    assert all(record["images"] == 96 and record["cpu_s_per_1000"] > 0 for record in seen)
    batchd = seen[0]
    assert batchd["pss_mb"] > batchd["imports_pss_mb"] > 1
    assert 0 < batchd["handoff_us"] < 1e6 * batchd["first_batch_s"]
    assert "spdl is left out" in done.stdout
    assert "### train-u8" in done.stdout


def test_eval_pixels_are_pillows(pictures, tmp_path):
    done = bench("run.py", "--check", "--only", "batchd", "--data", pictures, "--count", COUNT,
                 "--build", BUILD, "--batch-size", 8, "--batches", 5, "--out",
                 tmp_path / "out.jsonl")

    assert done.returncode == 0, done.stdout + done.stderr
    assert records(tmp_path / "out.jsonl")[1]["equal"] == COUNT


def test_an_entry_that_fails_is_reported(pictures, tmp_path):
    done = bench("run.py", "--only", "batchd", "--data", pictures, "--count", COUNT, "--build",
                 tmp_path, "--rounds", 1, "--wait", 0, "--out", tmp_path / "out.jsonl")

    assert done.returncode == 1
    assert "error" in records(tmp_path / "out.jsonl")[1]


def test_scaling_counts_a_row_on_any_number_of_cores(pictures, tmp_path):
    done = bench("scaling/scaling.py", "--data", pictures, "--count", COUNT, "--build", BUILD,
                 "--rounds", 1, "--warm", 1, "--batches", 1, "--no-op-batches", 40,
                 "--pixel-files", 128, "--queue-seconds", 0.02, "--out", tmp_path / "out.jsonl")

    assert done.returncode == 0, done.stdout + done.stderr
    seen = records(tmp_path / "out.jsonl")[1:]
    assert {record["part"] for record in seen} == {"real", "no-op", "queue"}
    assert {record["threads"] for record in seen if record["part"] == "queue"} == {1, 2, 64, 128}
    assert all(record["rows_s"] > 0 for record in seen if record["part"] != "real")


def test_the_papers_rows_with_two_trainers(pictures, tmp_path):
    python = tmp_path / "rivals/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = bench("paper/paper.py", "--data", pictures, "--count", COUNT, "--build", BUILD,
                 "--venvs", tmp_path, "--paths", tmp_path / "paths", "--path-count", 512, "--kinds",
                 "batchd", "--trainers", 2, "--rounds", 1, "--seconds", 0.5, "--warm", 1,
                 "--out", tmp_path / "out.jsonl")

    assert done.returncode == 0, done.stdout + done.stderr
    feed, bare, paths = records(tmp_path / "out.jsonl")[1:]
    assert feed["images_s"] > 0
    assert feed["beyond_torch_mb"] > 2 * 6 * 9.6  # the slabs of two sessions
    assert bare["beyond_torch_mb"] == 0 and paths["rows"] == 512


def run_of(entry: str, turn: int, images_s: float, workers: int = 2, foreign: float = 0.0) -> dict:
    return {"set": "train-u8", "entry": entry, "round": turn, "workers": workers,
            "images_s": images_s, "cpu_s_per_1000": 1000 / images_s, "pss_mb": 100.0,
            "imports_pss_mb": 50.0, "first_batch_s": 0.5, "handoff_us": 30.0, "foreign": foreign}


def test_the_report_compares_within_rounds_at_the_best_number_of_workers(tmp_path):
    lines = [{"machine": "two cores", "date": "today", "commit": "c", "data": "d"},
             run_of("batchd", 0, 100), run_of("batchd", 1, 300), run_of("batchd", 2, 200),
             run_of("spdl", 0, 50), run_of("spdl", 1, 100), run_of("spdl", 2, 100),
             run_of("spdl", 0, 40, 4), run_of("spdl", 1, 40, 4), run_of("spdl", 2, 500, 4, 0.9)]
    (tmp_path / "out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    text = report.tables(tmp_path / "out.jsonl")

    assert "| spdl | 2 | 50 / **100** / 100 | 10.00 / **10.00** / 20.00 | 2.00 / **2.00** / 3.00 " \
           in text
    assert "| spdl | 4 | 40 / **40** / 40 |" in text  # the disturbed run does not count
    assert "spdl at 2 workers: batchd's least 100 images/s is NOT above its median 100" in text
    assert "5.00 CPU-s per 1000 images are less than 10.00" in text


def test_instructions_of_a_row_are_counted():
    done = bench("instructions.py", "--build", BUILD)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| photo")]
    counts = [[int(cell.replace(",", "")) for cell in row[3:5]] for row in rows]
    assert len(counts) == 2
    assert all(exact > fast > 100_000 for exact, fast in counts)
