# SPDX-License-Identifier: Apache-2.0
"""Forks, signals, and the private daemon's start."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, ROOT
from fake_daemon import FakeDaemon

import batchd

PATHS = os.pathsep.join([str(ROOT / "python_client" / "src"), str(HERE)])


def in_child(work: Callable[[], None]) -> int:
    """Exit status of a forked child that does `work`; 0 if it raises nothing."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_cannot_use_the_loader_and_harms_nothing(
    make_loader: Any, daemon: FakeDaemon
) -> None:
    loader = make_loader(daemon)
    iterator = iter(loader)
    held = [next(iterator)]

    def work() -> None:
        for call in (lambda: next(iterator), lambda: loader.name_of(1), lambda: loader.peek()):
            with pytest.raises(batchd.ForkError, match="fork"):
                call()
        held.pop().release()
        loader.close()

    assert in_child(work) == 0
    assert daemon.held() == 1
    assert [batch.step for batch in iterator] == [1, 2, 3, 4]
    assert daemon.counts["close"] == 0


# In a process of its own, which has no other thread: one that waits for the GIL at the moment of
# such a fork would be waited for in the child for ever.
FORKS_BEHIND = """
import ctypes, os, sys, batchd
loader = batchd.Loader("x", {"image": batchd.transforms.DecodeImage(),
                             "label": batchd.transforms.Label()}, batch_size=4, address=sys.argv[1])
iterator = iter(loader)
batch = next(iterator)
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    batch.release()
    os._exit(0)
os.waitpid(pid, 0)
print([other.step for other in iterator], flush=True)
sys.stdin.read()
"""


def test_a_child_forked_behind_pythons_back_gives_nothing_back(daemon: FakeDaemon) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS_BEHIND, f"unix:{daemon.path}"],
        env={**os.environ, "PYTHONPATH": PATHS},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "[1, 2, 3, 4]\n"
            daemon.wait_for("release", 3)
            assert 1 in daemon.connections[0].leased  # the first batch is still the parent's
        finally:
            process.kill()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_connection(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    next(iter(loader))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # lives until the parent has seen the end
        os._exit(0)

    loader._session.carrier._close_fds()  # as if the parent had died
    daemon.wait_for("closed")

    os.close(write)
    os.close(read)
    os.waitpid(pid, 0)


def test_subprocesses_do_not_disturb(make_loader: Any, daemon: FakeDaemon) -> None:
    steps = []
    for batch in make_loader(daemon):
        subprocess.run(["true"], check=True)
        steps.append(batch.step)

    assert steps == [0, 1, 2, 3, 4]


# A shell starts what runs in the background with SIGINT ignored, and then Python leaves it so.
WAITING = """
import signal, sys, batchd
from batchd import transforms as T
signal.signal(signal.SIGINT, signal.default_int_handler)
loader = batchd.Loader("x", {"image": [T.DecodeImage()], "label": T.Label()}, batch_size=4,
                       prefetch=2, address=sys.argv[1], reconnect_timeout=float(sys.argv[2]))
try:
    for batch in loader:
        pass
except KeyboardInterrupt:
    print("interrupted at", loader.state_dict()["samples"], loader.epoch)
"""


def run_waiting(address: str, reconnect_timeout: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WAITING, address, str(reconnect_timeout)],
        env={**os.environ, "PYTHONPATH": PATHS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str]) -> str:
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=10)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert time.monotonic() - started < 3
    return output


def wait_until_it_sleeps(process: subprocess.Popen[str]) -> None:
    """The daemon has seen the last take: all that the client can still do is wait."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "S":
            return
    raise AssertionError("the client never waits")


def test_ctrl_c_ends_a_wait_at_once(start_daemon: Any) -> None:
    daemon = start_daemon(hold_after=3)
    process = run_waiting(f"unix:{daemon.path}", 10)
    daemon.wait_for("release", 2)
    wait_until_it_sleeps(process)

    assert interrupt(process) == "interrupted at 12 1\n"
    daemon.wait_for("closed")


def test_ctrl_c_ends_a_wait_over_grpc(start_daemon: Any) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed here")
    from grpc_bridge import GrpcBridge

    daemon = start_daemon(hold_after=3)
    bridge = GrpcBridge(daemon)
    process = run_waiting(bridge.address, 10)
    daemon.wait_for("release", 3)
    wait_until_it_sleeps(process)

    assert interrupt(process) == "interrupted at 12 1\n"
    bridge.stop()


def test_ctrl_c_ends_the_search_for_a_daemon(start_daemon: Any) -> None:
    daemon = start_daemon(hold_after=3)
    process = run_waiting(f"unix:{daemon.path}", 300)
    daemon.wait_for("release", 2)
    daemon.stop()
    wait_until_it_sleeps(process)

    assert interrupt(process) == "interrupted at 12 1\n"


LEFT_OPEN = """
import sys, batchd
loader = batchd.Loader("x", {"image": batchd.transforms.DecodeImage(),
                             "label": batchd.transforms.Label()}, batch_size=4, address=sys.argv[1])
iterator = iter(loader)
array = next(iterator)["image"].numpy()
"""


@pytest.mark.parametrize("carrier", ["shm", "grpc"])
def test_a_script_may_end_with_everything_open(daemon: FakeDaemon, carrier: str) -> None:
    address, stop = f"unix:{daemon.path}", lambda: None
    if carrier == "grpc":
        pytest.importorskip("grpc", reason="grpcio is not installed here")
        from grpc_bridge import GrpcBridge

        bridge = GrpcBridge(daemon)
        address, stop = bridge.address, bridge.stop

    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEFT_OPEN, address],
        env={**os.environ, "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
    daemon.wait_for("closed")
    stop()


@pytest.fixture
def private(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The fake stands in for the private daemon's program; yields XDG_RUNTIME_DIR."""
    binary = folder / "program"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_daemon.py"} "$@"\n')
    binary.chmod(0o755)
    starts = folder / "starts"
    starts.touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("BATCHD_BINARY", str(binary))
    monkeypatch.setenv("FAKE_DAEMON_STARTS", str(starts))
    yield folder
    for pid in starts.read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def job_folder(folder: Path, job: str = "local") -> Path:
    return folder / "batchd" / "1" / job


def private_loader(**arguments: Any) -> batchd.Loader:
    columns = {"image": [batchd.transforms.DecodeImage()], "label": batchd.transforms.Label()}
    return batchd.Loader("x", columns, batch_size=4, **arguments)


def starts(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "starts").read_text().split()]


def test_a_private_daemon_is_started_where_both_clients_look(private: Path) -> None:
    with private_loader() as loader:
        assert [batch.step for batch in loader] == [0, 1, 2, 3, 4]
        assert "private daemon" in repr(loader)

    folder = job_folder(private)
    assert stat.S_ISSOCK((folder / "sock").stat().st_mode)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (pid,) = starts(private)
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) != os.getpid()


def test_a_private_daemon_that_is_about_to_end_gets_another_chance(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DAEMON_REFUSES", "1")

    private_loader().close()


def test_a_job_has_its_own_daemon(private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12/../3")

    private_loader().close()

    assert (job_folder(private, "12_.._3") / "sock").exists()


def test_many_processes_at_once_get_one_daemon(private: Path) -> None:
    code = (
        "import sys, batchd\n"
        "l = batchd.Loader('x', {'label': batchd.transforms.Label()}, batch_size=4)\n"
        "print(len(list(l)))"
    )
    environment = {**os.environ, "PYTHONPATH": PATHS}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
        for _ in range(8)
    ]

    outputs = [process.communicate(timeout=60)[0] for process in processes]

    assert outputs == [b"5\n"] * 8
    assert len(starts(private)) == 1


def test_a_private_daemon_that_dies_is_started_again(private: Path) -> None:
    with private_loader(prefetch=1) as loader:
        iterator = iter(loader)
        next(iterator)
        os.kill(starts(private)[0], signal.SIGKILL)

        assert [batch.step for batch in iterator] == [1, 2, 3, 4]
        assert loader.reconnects == 1
    assert len(starts(private)) == 2


def test_a_private_daemon_that_fails_shows_its_log(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DAEMON_FAILS", "1")

    with pytest.raises(batchd.Unavailable, match="has ended; .*\n.*no cores left"):
        private_loader()


def test_a_missing_program_says_how_to_name_it(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHD_BINARY", "/nowhere/batchd")
    with pytest.raises(batchd.BatchdError, match="BATCHD_BINARY=/nowhere/batchd"):
        private_loader()

    monkeypatch.delenv("BATCHD_BINARY")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(batchd.BatchdError, match=r"on PATH.*BATCHD_BINARY.*BATCHD_ADDRESS"):
        private_loader()


def test_a_folder_that_others_can_enter_is_refused(private: Path) -> None:
    (private / "batchd").mkdir(mode=0o755)

    with pytest.raises(batchd.BatchdError, match=r"is not a folder of user \d+ alone"):
        private_loader()

    (private / "batchd").rmdir()
    (private / "elsewhere").mkdir(mode=0o700)
    (private / "batchd").symlink_to(private / "elsewhere")
    with pytest.raises(batchd.BatchdError, match="alone"):
        private_loader()
