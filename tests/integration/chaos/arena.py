# SPDX-License-Identifier: Apache-2.0
"""What the nemesis torments: a daemon, and trainers on it that run until they are told to end."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys

import job
from daemon import TRANSPORTS, Daemon, wait_until
from proxy import Proxy

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_SECONDS = 60.0
# The end is so many epochs past the one that the first trainer is in: none may be there before it
# is told.
EPOCHS_LEFT = 2


class Trainer:
    """One rank, in a process of its own. Its log outlives it."""

    def __init__(self, arena: Arena, rank: int, transport: str, address: str):
        self.log = arena.folder / f"rank{rank}.jsonl"
        self.log.touch()
        self._errors = arena.folder / f"rank{rank}.err"
        self._command = [sys.executable, str(HERE / "trainer.py"), address, str(arena.root),
                         str(self.log), str(rank), str(arena.world_size), transport,
                         str(arena.end)]
        self._env = {**os.environ, "PYTHONPATH": str(HERE.parent),
                     "BATCHD_RECONNECT_TIMEOUT_SECONDS": str(PATIENCE_SECONDS)}
        self.start()

    def start(self) -> None:
        # A line that a kill has cut is no checkpoint.
        whole = self.log.read_bytes()
        self.log.write_bytes(whole[: whole.rfind(b"\n") + 1])
        with open(self._errors, "ab") as errors:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL,
                                            stdout=errors, stderr=errors, env=self._env)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def batches(self) -> int:
        assert self.process.poll() in (None, 0), self._errors.read_text()
        return self.log.read_bytes().count(b"\n")

    def join(self) -> None:
        assert self.process.wait(PATIENCE_SECONDS) == 0, self._errors.read_text()

    def stop_for_good(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


class Arena:
    """A context manager: a daemon with `flags`, and trainers at either transport by turns. The last
    `proxied` of them reach it through connections that can be cut.
    """

    def __init__(self, root: pathlib.Path, folder: pathlib.Path, world_size: int = 2,
                 proxied: int = 0, flags: tuple[str, ...] = (), prefix: tuple[str, ...] = ()):
        self.root, self.folder, self.world_size = root, folder, world_size
        self._first_proxied = world_size - proxied
        self.end = folder / "end"
        self.daemon = Daemon((root,), *flags, folder=folder / "d", prefix=prefix)
        self.proxies: list[Proxy] = []
        self.trainers: list[Trainer] = []
        if proxied:
            upstream = self.daemon.socket
            self.proxies.append(Proxy(folder / "p", upstream, socket.SOCK_SEQPACKET))
            self.proxies.append(Proxy(("127.0.0.1", 0), upstream.with_name("s.grpc"),
                                      socket.SOCK_STREAM))

    def start_trainers(self) -> None:
        for rank in range(self.world_size):
            transport = TRANSPORTS[rank % len(TRANSPORTS)]
            address = (self.daemon.address if rank < self._first_proxied
                       else self._proxy_address(transport))
            self.trainers.append(Trainer(self, rank, transport, address))
        self.wait_for_batches(1)

    def _proxy_address(self, transport: str) -> str:
        if transport == "shm":
            return f"unix:{self.proxies[0].address}"
        host, port = self.proxies[1].address
        return f"{host}:{port}"

    def wait_for_batches(self, count: int, trainers: list[Trainer] | None = None) -> None:
        """Returns when each of the trainers has got so many batches more."""
        trainers = self.trainers if trainers is None else trainers
        wanted = [(trainer, trainer.batches() + count) for trainer in trainers]
        wait_until(lambda: all(trainer.batches() >= goal for trainer, goal in wanted),
                   PATIENCE_SECONDS, f"{count} more batches for each trainer")

    def finish(self) -> int:
        """Lets every trainer come to the end of one and the same epoch; how many there are."""
        latest = max(trainer.batches() for trainer in self.trainers) // self.steps_per_epoch()
        epochs = latest + EPOCHS_LEFT
        new = self.end.with_suffix(".new")
        new.write_text(str(epochs))
        new.rename(self.end)
        for trainer in self.trainers:
            trainer.join()
        return epochs

    def steps_per_epoch(self) -> int:
        samples = sum(1 for _ in self.root.glob("*/*"))
        return -(-samples // job.G)

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        for trainer in self.trainers:
            trainer.stop_for_good()
        for proxy in self.proxies:
            proxy.close()
        if self.daemon.process.poll() is None:
            self.daemon.process.send_signal(signal.SIGCONT)
            self.daemon.kill()
