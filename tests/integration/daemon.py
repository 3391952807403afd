# SPDX-License-Identifier: Apache-2.0
"""A real daemon as a child process: started, asked, killed by its pid."""

from __future__ import annotations

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import time
import urllib.request

BINARY = os.environ.get("BATCHD_BINARY", "batchd")
TRANSPORTS = ("shm", "grpc")


class Daemon:
    """`batchd serve` on a socket of its own. Use it as a context manager."""

    def __init__(self, roots=("/",), *flags: str, folder: pathlib.Path | None = None,
                 env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()):
        self._own = tempfile.TemporaryDirectory(prefix="batchd-test-") if folder is None else None
        self.folder = pathlib.Path(self._own.name if self._own else folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket = self.folder / "s"
        self.address = f"unix:{self.socket}"
        self.log = self.folder / "log"
        self._command = [*prefix, BINARY, "serve", "--listen", self.address,
                         "--http", "127.0.0.1:0", "--state-dir", str(self.folder / "state"),
                         *(f"--root={root}" for root in roots), *flags]
        self._env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with open(self.log, "ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=log,
                                            env=self._env)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            text = self.log.read_bytes()[begin:].decode("utf-8", "replace")
            ready = re.search(r"\bready\b.*?http=\"?([\d.]+:\d+)", text)
            if ready:
                self.http = ready[1]
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"the daemon has ended with {self.process.returncode}: {text}")
            select.select([], [], [], 0.01)
        raise RuntimeError(f"the daemon is not ready after 30 s: {text}")

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout: float = 30) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as reply:
            return reply.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of that name that have these labels."""
        total, found = 0.0, False
        for line in self.get("/metrics").splitlines():
            if not line.startswith(name) or line[len(name)] not in "{ ":
                continue
            if all(f'{key}="{value}"' in line for key, value in labels.items()):
                total, found = total + float(line.rsplit(" ", 1)[1]), True
        if not found:
            return 0.0
        return total

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        if self._own:
            self._own.cleanup()


def rss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Runs a command of the program."""
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60,
                          **options)


def wait_until(condition, seconds: float = 10, what: str = "the condition") -> None:
    """Polls a state of another process that sends no event of its own."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} does not hold after {seconds} s"
        select.select([], [], [], 0.01)


def plugins() -> dict:
    return json.loads(run("plugins", "--format=json").stdout)
