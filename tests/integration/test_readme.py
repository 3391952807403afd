# SPDX-License-Identifier: Apache-2.0
"""What README.md shows is what happens.

A fenced block is tested when the line before it is an HTML comment, which no reader sees:

  <!-- test: serve -->   shell; the last line is a daemon, left running for the blocks after it
  <!-- test: run -->     shell; must end with 0
  <!-- test: python -->  a script; must end with 0; finds data/train with pictures
  <!-- test: output -->  lines, in this order, of what the last `run` block printed

All run in one empty folder with `batchd` and the virtual environment's programs on PATH.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

import pytest
from daemon import BINARY

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("serve", "run", "python", "output")


class Block(NamedTuple):
    kind: str
    text: str


def marked_blocks() -> list[Block]:
    readme = (ROOT / "README.md").read_text()
    found = re.findall(r"^<!-- test: (\w+) -->\n```\w*\n(.*?)^```$", readme,
                       re.MULTILINE | re.DOTALL)
    assert len(found) == readme.count("<!-- test:"), "a mark that has no block after it"
    return [Block(*block) for block in found]


@pytest.fixture
def place():
    """A folder, and an environment that is nobody's in particular."""
    with tempfile.TemporaryDirectory(prefix="bd") as name:
        folder = pathlib.Path(name)
        (folder / "bin").mkdir()
        (folder / "bin" / "batchd").symlink_to(BINARY)
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATCHD_")}
        env |= {"PATH": f"{folder}/bin:{pathlib.Path(sys.executable).parent}:{env['PATH']}",
                "XDG_RUNTIME_DIR": str(folder / "run"),
                "BATCHD_PRIVATE_LINGER_SECONDS": "1",
                "BATCHD_HTTP": "127.0.0.1:0"}  # several tests at once
        (folder / "run").mkdir(mode=0o700)
        (folder / "work").mkdir()
        yield folder / "work", env


def run(command: list[str], place, **more) -> str:
    done = subprocess.run(command, cwd=place[0], env=place[1], capture_output=True, text=True,
                          timeout=120, **more, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(text: str, place) -> subprocess.Popen:
    """A shell that becomes the daemon of its last line; returns once that is ready."""
    *before, last = text.strip().splitlines()
    script = "\n".join(["set -e", *before, f"exec {last}"])
    process = subprocess.Popen(["bash", "-c", script], cwd=place[0], env=place[1], text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for line in process.stderr:
        if " I ready " in line:
            return process
    raise AssertionError(f"no daemon, but exit code {process.wait()}")


def test_every_mark_is_one_that_exists():
    kinds = [block.kind for block in marked_blocks()]

    assert set(kinds) == set(KINDS)


def test_the_python_of_the_readme_is_five_lines_that_run(place):
    (block,) = [block for block in marked_blocks() if block.kind == "python"]
    assert len(block.text.splitlines()) == 5
    run(["batchd", "demo", "--make-images", "data/train", "--count", "200"], place)

    script = block.text + "\nassert images.shape == (64, 3, 224, 224) and labels.shape == (64,)\n"
    run([sys.executable, "-"], place, input=script)


def test_the_shell_of_the_readme_runs_and_prints_what_it_says(place):
    daemon, printed = None, ""
    try:
        for block in marked_blocks():
            if block.kind == "serve":
                assert daemon is None
                daemon = start(block.text, place)
            elif block.kind == "run":
                printed = run(["bash", "-e", "-c", block.text], place)
            elif block.kind == "output":
                assert block.text in printed
    finally:
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            daemon.stderr.read()
            assert daemon.wait(30) == 0
    assert printed


def test_every_link_of_the_documents_leads_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "python_client/README.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
