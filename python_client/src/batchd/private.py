# SPDX-License-Identifier: Apache-2.0
"""The private daemon: started by the first loader that needs it, shared by all of the user's job.

Its socket is ${XDG_RUNTIME_DIR:-/tmp/batchd-UID}/batchd/<protocol version>/<job>/sock, the same for
every client library. It ends by itself a while after its last client.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import socket
import stat
import subprocess
import time
from typing import Final

from batchd.errors import BatchdError, Unavailable
from batchd.wire import PROTOCOL_VERSION

_START_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02
_LOG_TAIL_BYTES: Final = 2000


def socket_path() -> str:
    job = re.sub(r"[^A-Za-z0-9_.-]", "_", os.environ.get("SLURM_JOB_ID") or "local")
    return os.path.join(_base(), "batchd", str(PROTOCOL_VERSION), job, "sock")


def ensure_daemon(path: str) -> None:
    """Returns once a daemon listens at `path`, having started one if there was none.

    Errors: Unavailable, with the end of its log, if it does not come up; BatchdError if the folder
    is not this user's alone or there is no program to start.
    """
    if _listens(path):
        return
    folder = os.path.dirname(path)
    _make_folder(folder)
    with open(os.path.join(folder, "start.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others wait here, and find the daemon running
        if not _listens(path):
            _start(path, os.path.join(folder, "log"))


def _base() -> str:
    return os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/batchd-{os.getuid()}"


def _make_folder(folder: str) -> None:
    """Makes `folder` and its parents, for this user only. In /tmp another user may have been first,
    so each folder that is not the system's own is looked at.
    """
    base = _base()
    if not os.environ.get("XDG_RUNTIME_DIR"):
        _make_one(base)
    for name in os.path.relpath(folder, base).split(os.sep):
        base = os.path.join(base, name)
        _make_one(base)


def _make_one(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise BatchdError(
            f"the private daemon's folder {folder} cannot be made: {error.strerror}; set "
            "XDG_RUNTIME_DIR to a folder of yours"
        ) from None
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise BatchdError(
            f"{folder} is not a folder of user {os.getuid()} alone (mode 0700); remove it, or set "
            "XDG_RUNTIME_DIR to a folder of yours",
            code="PERMISSION_DENIED",
        )


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(_START_SECONDS)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _binary() -> str:
    given = os.environ.get("BATCHD_BINARY")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "batchd")
    for candidate in (given,) if given else (beside, shutil.which("batchd")):
        if candidate and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return os.path.abspath(candidate)
    if given:
        raise BatchdError(f"BATCHD_BINARY={given} is no program that can be run", code="NOT_FOUND")
    raise BatchdError(
        "no program `batchd` to start: put it on PATH, name it in BATCHD_BINARY, or give the "
        "address of a running daemon (address=, BATCHD_ADDRESS)",
        code="NOT_FOUND",
    )


def _start(path: str, log_path: str) -> None:
    binary = _binary()
    # The shell goes at once and leaves the daemon to init: it is no child that somebody here has to
    # wait for. A process session of its own keeps Ctrl-C of this terminal from it.
    command = ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", binary]
    # Any port: BATCHD_HTTP may name that of another daemon.
    command += ["serve", "--private", "--listen", f"unix:{path}", "--http", "127.0.0.1:0"]
    with open(log_path, "wb") as log:
        shell = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
            check=False,
        )
    pid = int(shell.stdout or 0)
    deadline = time.monotonic() + _START_SECONDS
    while not _listens(path):
        ended = not _lives(pid)
        if ended and _listens(path):
            return
        if ended or time.monotonic() > deadline:
            what = "has ended" if ended else f"does not listen after {_START_SECONDS:g} s"
            raise Unavailable(
                f"the private daemon `{' '.join(command[4:])}` {what}; its log {log_path} ends "
                f"with:\n{_tail(log_path)}"
            )
        time.sleep(_POLL_SECONDS)


def _lives(pid: int) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # a kernel without pidfds: the time limit has to do
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(fd)


def _tail(log_path: str) -> str:
    try:
        with open(log_path, "rb") as log:
            log.seek(max(0, os.path.getsize(log_path) - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip() or "(it is empty)"
    except OSError as error:
        return f"(it cannot be read: {error.strerror})"
