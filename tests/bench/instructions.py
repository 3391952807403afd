#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions that a row of the train recipe takes, counted by valgrind's callgrind.

    instructions.py [--build build/release] [FILE ...]

Prints a table in Markdown. Unlike times, the counts hardly change from run to run or with the load
of the machine, so that a slower kernel shows. Without files, three of the shared transform cases.
Each figure is the mean over 16 draws of crop and flip, without what a first row costs. valgrind has
no AVX-512, so the kernels run as on a machine with AVX2.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases" / "transforms" / "inputs"
FILES = [CASES / name for name in ("photo_400x300.jpg", "photo_progressive.jpg", "chart.png")]
ROWS = 16


def count(program: pathlib.Path, file: pathlib.Path, rows: int, decode: str) -> int:
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, file,
         str(rows), decode], capture_output=True, text=True, timeout=300)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"callgrind has failed with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(found[1])


def builds(daemon: pathlib.Path) -> str:
    """The libraries that decode, with their versions."""
    printed = subprocess.run([daemon, "plugins", "--format=json"], capture_output=True, text=True,
                             check=True).stdout
    named = {kind["name"]: kind["build"] for kind in json.loads(printed)["decoders"]}
    return f"{named['jpeg']}, {named['png']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("files", nargs="*", type=pathlib.Path, default=FILES)
    given = parser.parse_args()
    program = given.build / "tests/bench/rows_of"
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True)
    print(f"{builds(given.build / 'server/daemon/batchd')}; {valgrind.stdout.strip()}; "
          f"{compiler.stdout.splitlines()[0]}\n")
    print("| picture | bytes | exact, instructions a row | fast |\n|---|---|---|---|")
    for file in given.files:
        counts = [(count(program, file, 1 + ROWS, decode) - count(program, file, 1, decode)) // ROWS
                  for decode in ("exact", "fast")]
        print(f"| {file.name} | {file.stat().st_size:,} | {counts[0]:,} | {counts[1]:,} |")


if __name__ == "__main__":
    main()
