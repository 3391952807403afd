# SPDX-License-Identifier: Apache-2.0
"""A daemon with --decode-isolation process: the same batches, whatever becomes of its workers."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest
from daemon import Daemon, wait_until
from rows import batch_digest

import batchd
from batchd import transforms as T

ISOLATED = ("--decode-isolation", "process", "--cpus", "1")
CASES = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "cases"
COLUMNS = {"image": [T.DecodeImage(), T.RandomResizedCrop(64), T.RandomHorizontalFlip()]}


def worker_of(daemon: Daemon) -> int | None:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text()
            except OSError:
                continue  # it has just ended
            if stat.rsplit(")", 1)[1].split()[1] == str(daemon.pid):
                return int(entry)
    return None


def is_there(pid: int) -> bool:
    return pathlib.Path("/proc", str(pid), "stat").exists()


def loader_of(root: pathlib.Path, daemon: Daemon, **more) -> batchd.Loader:
    return batchd.Loader(batchd.ImageFolder(str(root)), more.pop("columns", COLUMNS),
                         address=daemon.address,
                         **{"batch_size": 8, "prefetch": 1, "shuffle": True, "seed": 3, **more})


def digests(root: pathlib.Path, flags: tuple[str, ...], **more) -> list[int]:
    with Daemon((root,), *flags) as daemon, loader_of(root, daemon, **more) as loader:
        return [batch_digest(batch) for batch in loader.steps(30)]


@pytest.mark.skipif(not CASES.is_dir(), reason=f"no shared cases at {CASES}: nothing is tested")
def test_batches_and_bad_samples_are_those_without_it(tmp_path):
    root = tmp_path / "d"
    root.mkdir()
    (root / "class").symlink_to(CASES / "images")
    options = {"on_bad_sample": "skip", "last_batch": "partial",
               "columns": {"image": [T.DecodeImage(orientation="upright"), T.Resize((32, 32))]}}

    # The same links lead to the same files: a private daemon follows them.
    assert (digests(root, ("--private", *ISOLATED), **options)
            == digests(root, ("--private",), **options))


def test_workers_that_fault_in_the_middle_cost_nothing(photos_256):
    expected = digests(photos_256, ())
    killed: set[int] = set()

    with Daemon((photos_256,), *ISOLATED) as daemon, loader_of(photos_256, daemon) as loader:
        got = []
        for i, batch in enumerate(loader.steps(30)):
            got.append(batch_digest(batch))
            if i % 4 == 0:  # what it hits is in one of the next three, and so has been made again
                worker = worker_of(daemon)
                os.kill(worker, signal.SIGSEGV)
                killed.add(worker)
        metric = daemon.metric("batchd_decode_worker_restarts_total", reason="fault")
        errors = daemon.metric("batchd_sample_errors_total")
        log = daemon.log.read_text()

    assert got == expected
    assert len(killed) == 8 and 7 <= metric <= 8  # after the last one nothing may be left to decode
    assert errors == 0
    # At most every 10 s; ASan makes an abort of the signal.
    assert 1 <= log.count("decode worker ended") < 8 and 'by="signal ' in log


def test_no_worker_outlives_a_daemon_that_is_killed(photos_256):
    with Daemon((photos_256,), *ISOLATED) as daemon, loader_of(photos_256, daemon) as loader:
        next(loader.steps(1))
        worker = worker_of(daemon)
        os.kill(worker, signal.SIGSTOP)  # it does not see that its socket has ended

        daemon.kill()

        wait_until(lambda: not is_there(worker), what="the worker has ended")


def test_a_stopped_worker_does_not_keep_a_daemon_from_ending(photos_256):
    flags = (*ISOLATED, "--drain-timeout", "0.2")
    with Daemon((photos_256,), *flags) as daemon, loader_of(photos_256, daemon) as loader:
        next(loader.steps(1))
        worker = worker_of(daemon)
        os.kill(worker, signal.SIGSTOP)
        started = time.monotonic()

        assert daemon.terminate(timeout=60) == 0

        wait_until(lambda: not is_there(worker), what="the worker has ended")
        print(f"ended after {time.monotonic() - started:.1f} s")


@pytest.mark.release_only  # sanitizer builds run workers unconfined: they need more system calls
def test_a_worker_has_nothing_but_its_socket(photos_256):
    secret = {"A_SECRET": "of the daemon's environment"}
    with (Daemon((photos_256,), *ISOLATED, env=secret) as daemon,
          loader_of(photos_256, daemon) as loader):
        next(loader.steps(1))
        proc = pathlib.Path("/proc", str(worker_of(daemon)))
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())

        assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1"
        assert status["Threads"].strip() == "1"
        if os.geteuid() == 0:  # it is not dumpable, so nobody else may look
            assert sorted(os.listdir(proc / "fd")) == ["0", "2"]
            assert os.readlink(proc / "fd" / "0").startswith("socket:")
            assert b"A_SECRET" not in (proc / "environ").read_bytes()


def test_pictures_that_end_their_worker_leave_no_descriptors(photos_256):
    with Daemon((photos_256,), *ISOLATED) as daemon, loader_of(photos_256, daemon) as loader:
        batches = loader.steps(30)
        next(batches)
        files = daemon.open_files()
        for _ in range(5):
            os.kill(worker_of(daemon), signal.SIGKILL)
            for _ in range(4):
                next(batches)

        assert daemon.open_files() <= files
        assert daemon.metric("batchd_decode_worker_restarts_total", reason="killed") == 5
