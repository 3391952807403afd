# SPDX-License-Identifier: Apache-2.0
"""Both clients behind one face, for tests that must hold over either.

A client runs in a driver process, python_driver.py or client_driver (BATCHD_CLIENT_DRIVER), which
reads commands as lines of JSON and answers each with one. Every command but `open` names a loader;
an answer with "error" becomes ClientError here. A batch is a dict: its address, ids, row_status,
state after it, and a digest of all its bytes.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
CLIENTS = ("python", "cpp")


class ClientError(Exception):
    """An error of a client. `kind` is the name of the Python client's exception."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(f"{fields['kind']}: {fields['message']}")
        self.kind: str = fields["kind"]
        self.fields = fields


def command_of(client: str) -> list[str]:
    if client == "python":
        return [sys.executable, str(HERE / "python_driver.py")]
    return [os.environ["BATCHD_CLIENT_DRIVER"]]


class Client:
    """A driver process. One call at a time."""

    def __init__(self, client: str, env: dict[str, str] | None = None,
                 pass_fds: tuple[int, ...] = ()) -> None:
        self.name = client
        self.process = subprocess.Popen(command_of(client), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env={**os.environ, **(env or {})},
                                        pass_fds=pass_fds, text=True)
        self.pid = self.process.pid

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        self.begin(command, **arguments)
        return self.end()

    def begin(self, command: str, **arguments: Any) -> None:
        self.process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, f"the driver of {self.name} has ended with {self.process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer

    def open(self, **options: Any) -> Loader:
        return Loader(self, self.do("open", options=options)["loader"])

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def close(self) -> None:
        """Ends the driver as a program ends, which must go well."""
        self.process.stdin.close()
        killer = threading.Timer(30, self.process.kill)
        killer.start()
        status = self._end()
        killer.cancel()
        assert status == 0, f"the driver of {self.name} has ended with {status}"

    def _end(self) -> int:
        self.process.stdout.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait()


class Loader:
    """A loader in a driver."""

    def __init__(self, client: Client, number: int) -> None:
        self.client, self.number = client, number

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.client.do(command, loader=self.number, **arguments)

    def next(self, hold: bool = False) -> dict[str, Any]:
        return self.do("next", hold=hold)

    def take(self, count: int) -> list[dict[str, Any]]:
        return [self.next() for _ in range(count)]

    def epoch(self) -> list[dict[str, Any]]:
        """The rest of the epoch."""
        batches = [self.next()]
        while not batches[-1]["last_in_epoch"]:
            batches.append(self.next())
        return batches

    def state(self) -> dict[str, Any]:
        return self.do("state")["state"]

    def about(self) -> dict[str, Any]:
        return self.do("about")
