# SPDX-License-Identifier: Apache-2.0
"""What the pages of the documentation show, run as their reader would run it.

A fenced block is run when the line before it is a mark, an HTML comment that no reader sees:

  <!-- test: run -->        shell; must end with 0
  <!-- test: fails -->      shell; must not
  <!-- test: serve -->      shell; the last line is a daemon, left running for the blocks after it
  <!-- test: python -->     what is typed into one Python, which the whole page shares
  <!-- test: raises -->     the same; must end with an exception
  <!-- test: file NAME -->  saved as NAME
  <!-- test: output -->     lines, in this order, of what the last block printed, errors included;
                            "…" stands for anything within a line, or alone for any lines

The blocks of a page are run in their order, in one empty folder, with `batchd` and the virtual
environment's programs on PATH.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
from typing import NamedTuple

from daemon import BINARY

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ("run", "fails", "serve", "python", "raises", "file", "output")
TIMEOUT_SECONDS = 120

# Reads blocks as JSON strings, a line each; answers with what each has printed and its exception.
PYTHON = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(json.loads(line), "page", "exec"), names)
        except Exception as caught:
            error = "".join(traceback.format_exception_only(caught))
            caught.__traceback__ = None  # it would hold what the block held
    print(json.dumps([printed.getvalue(), error]), flush=True)
"""


class Block(NamedTuple):
    kind: str  # "" for one without a mark
    argument: str
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.split("\n", 1)[0]


def pages() -> list[str]:
    """Every page, relative to the root of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")]
    return sorted({str(path.relative_to(ROOT)) for path in found})


def blocks_of(page: str) -> list[Block]:
    found = re.findall(r"^(?:<!-- test: (\w+) ?(\S*) -->\n)?```(\w*)\n(.*?)^```$",
                       (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in found]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reader:
    """Somebody who follows a page in a folder of their own. Use it as a context manager."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.work = folder / "work"
        self._run_folder = folder / "run"
        self.printed = ""
        self._daemons: list[subprocess.Popen[str]] = []
        self._python: subprocess.Popen[str] | None = None
        for name in ("bin", "run", "work"):
            (folder / name).mkdir(mode=0o700)
        (folder / "bin" / "batchd").symlink_to(BINARY)
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATCHD_")}
        self._env = env | {
            "PATH": f"{folder}/bin:{pathlib.Path(sys.executable).parent}:{env['PATH']}",
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "BATCHD_HTTP": f"127.0.0.1:{free_port()}"}  # 9475 may be somebody's

    def follow(self, block: Block) -> None:
        if block.kind == "file":
            (self.work / block.argument).write_text(block.text)
        elif block.kind == "output":
            self._compare(block.text)
        elif block.kind == "serve":
            self._serve(block.text)
        elif block.kind in ("python", "raises"):
            self._type(block.text, block.kind == "raises")
        elif block.kind in ("run", "fails"):
            self._run(block.text, block.kind == "fails")

    def _run(self, text: str, fails: bool) -> None:
        done = subprocess.run(["bash", "-e", "-c", text], cwd=self.work, env=self._env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=TIMEOUT_SECONDS, check=False)
        self.printed = done.stdout
        assert (done.returncode != 0) == fails, f"{text}\nended with {done.returncode}:\n" \
                                                f"{self.printed}"

    def _compare(self, expected: str) -> None:
        pattern = "".join(
            r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
            for line in expected.splitlines())
        assert re.search("^" + pattern, self.printed + "\n", re.MULTILINE), \
            f"expected\n{expected}\nin what was printed:\n{self.printed}"

    def _type(self, text: str, raises: bool) -> None:
        if self._python is None:
            self._python = subprocess.Popen([sys.executable, "-c", PYTHON], cwd=self.work,
                                            env=self._env, text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE)
        self._python.stdin.write(json.dumps(text) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        assert answer, f"Python has ended with {self._python.wait()} at\n{text}"
        printed, error = json.loads(answer)
        self.printed = printed + error
        assert bool(error) == raises, f"{text}\n{error or 'raises nothing'}"

    def _serve(self, text: str) -> None:
        *before, last = text.strip().splitlines()
        script = "\n".join(["set -e", *before, f"exec {last}"])
        daemon = subprocess.Popen(["bash", "-c", script], cwd=self.work, env=self._env, text=True,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self._daemons.append(daemon)
        for line in daemon.stderr:
            if " I ready " in line:
                return
        raise AssertionError(f"no daemon, but exit code {daemon.wait()}")

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._python is not None:
            self._python.stdin.close()
            self._python.wait(TIMEOUT_SECONDS)
        end_private_daemons(self._run_folder)
        for daemon in self._daemons:
            daemon.send_signal(signal.SIGTERM)
            daemon.stderr.read()
            code = daemon.wait(TIMEOUT_SECONDS)
            assert kind is not None or code == 0, f"a daemon has ended with {code}"


def end_private_daemons(folder: pathlib.Path) -> None:
    """Those whose sockets are in `folder`: no children of ours, but their locks name them."""
    for lock in folder.rglob("sock.lock"):
        try:
            pidfd = os.pidfd_open(int(lock.read_text()))
        except (ProcessLookupError, FileNotFoundError, ValueError):
            continue  # it has just ended
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        ended, _, _ = select.select([pidfd], [], [], TIMEOUT_SECONDS)
        os.close(pidfd)
        assert ended, "a private daemon does not end"
