# SPDX-License-Identifier: Apache-2.0
"""What systemd is to a daemon: it listens for it, starts it confined, and is told what it does."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess

import seccomp
from daemon import BINARY

SECONDS = 60
# The passed socket becomes descriptor 3; the pid is that of the program that takes bash's place.
TAKE_SOCKET = 'exec 3<&"$0"; export LISTEN_PID=$$; exec "$@"'
WRITE_AND_EXECUTE = 0x2 | 0x4  # PROT_WRITE, PROT_EXEC


class ServiceManager:
    """Use it as a context manager; what still runs at the end is killed by its pid."""

    def __init__(self, folder: pathlib.Path, kind: int = socket.SOCK_SEQPACKET):
        self.path = folder / "sock"
        self.log = folder / "log"
        self._notify_path = folder / "notify"
        self._listener = socket.socket(socket.AF_UNIX, kind)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.bind(str(self._notify_path))
        self._told.settimeout(SECONDS)
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, confine=None, **env: str) -> subprocess.Popen[bytes]:
        """Starts a command that gets the socket; `confine` runs in the child before it."""
        fd = self._listener.fileno()
        variables = {**os.environ, "NOTIFY_SOCKET": str(self._notify_path), "LISTEN_FDS": "1",
                     **env}
        with open(self.log, "ab") as log:
            child = subprocess.Popen(["bash", "-c", TAKE_SOCKET, str(fd), *command], stderr=log,
                                     env=variables, pass_fds=(fd,), preexec_fn=confine)
        self.children.append(child)
        return child

    def serve(self, *flags: str, **more) -> subprocess.Popen[bytes]:
        return self.start(BINARY, "serve", "--http", "127.0.0.1:0", *flags, **more)

    def hear(self) -> str:
        """The next thing that it is told."""
        return self._told.recv(4096).decode()

    def hear_until(self, state: str) -> None:
        while self.hear() != state:
            pass

    def __enter__(self) -> ServiceManager:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        self._told.close()
        self._listener.close()


def system_calls(names: list[str]) -> set[str]:
    """The system calls of a list such as SystemCallFilter's, whose groups are systemd's."""
    groups: dict[str, list[str]] = {}
    listing = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True,
                             timeout=SECONDS, check=True).stdout
    for line in listing.splitlines():
        if line.startswith("@"):
            members = groups.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.lstrip().startswith("#"):
            members.append(line.strip())
    calls = set()
    for name in names:
        calls |= system_calls_of(name, groups)
    return calls


def system_calls_of(name: str, groups: dict[str, list[str]]) -> set[str]:
    if not name.startswith("@"):
        return {name}
    return set().union(*(system_calls_of(member, groups) for member in groups[name]))


def confinement(unit: dict[str, list[str]]):
    """The filter of system calls that a unit asks for, to be run in a child before its program.

    Where the unit would have a call fail, the process is killed: nothing that the daemon does may
    depend on that.
    """
    allowed: set[str] = set()
    for value in unit["SystemCallFilter"]:
        if value.startswith("~"):
            allowed -= system_calls(value[1:].split())
        else:
            allowed |= system_calls(value.split())
    families = unit["RestrictAddressFamilies"][0].split()

    def confine() -> None:
        filter_ = seccomp.SyscallFilter(defaction=seccomp.KILL_PROCESS)
        for name in allowed - {"socket", "mmap", "mprotect"}:
            # Some are calls of other machines, or of a newer kernel than the library.
            with contextlib.suppress(RuntimeError):
                filter_.add_rule(seccomp.ALLOW, name)
        for name in families:
            filter_.add_rule(seccomp.ALLOW, "socket",
                             seccomp.Arg(0, seccomp.EQ, int(getattr(socket, name))))
        for name in ("mmap", "mprotect"):  # MemoryDenyWriteExecute
            for bits in (0x0, 0x2, 0x4):
                filter_.add_rule(seccomp.ALLOW, name,
                                 seccomp.Arg(2, seccomp.MASKED_EQ, WRITE_AND_EXECUTE, bits))
        filter_.load()

    return confine
