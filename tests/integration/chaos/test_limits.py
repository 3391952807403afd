# SPDX-License-Identifier: Apache-2.0
"""A daemon that has little: few file descriptors, or a small memory cgroup. What does not fit is
refused in words; what is there already goes on.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import socket
import subprocess

import grpc
import job
import pytest
from arena import Arena
from checker import belongings, check_end
from daemon import BINARY, wait_until
from test_stock_grpc import METHOD

import batchd
from batchd import transforms as T

# A sanitizer takes memory and descriptors of its own.
pytestmark = pytest.mark.release_only
FILES = 64
MEMORY_BYTES = 256 << 20


def crowd(arena: Arena) -> contextlib.ExitStack:
    """Connections to every door that say nothing, more than there are descriptors."""
    host, port = arena.daemon.http.rsplit(":", 1)
    peers = contextlib.ExitStack()
    for _ in range(FILES):
        for family, kind, address in [
                (socket.AF_UNIX, socket.SOCK_STREAM, f"{arena.daemon.socket}.grpc"),
                (socket.AF_UNIX, socket.SOCK_SEQPACKET, str(arena.daemon.socket)),
                (socket.AF_INET, socket.SOCK_STREAM, (host, int(port)))]:
            peer = peers.enter_context(socket.socket(family, kind))
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(address)
    return peers


def test_few_descriptors(chaos_photos, undisturbed, tmp_path):
    with Arena(chaos_photos, tmp_path,
               prefix=("prlimit", f"--nofile={FILES}:{FILES}")) as arena:
        before = belongings(arena.daemon)
        arena.start_trainers()

        # Sessions up to the limit, and then a sentence with it.
        with contextlib.ExitStack() as sessions:
            with pytest.raises(batchd.BatchdError, match="ulimit -n") as refused:
                for _ in range(FILES):
                    sessions.enter_context(job.loader(arena.daemon.address, chaos_photos))
            assert refused.value.code == "RESOURCE_EXHAUSTED"
            assert arena.daemon.metric("batchd_sessions") > len(arena.trainers)
            arena.wait_for_batches(3)

        # Not even for a connection: nobody loses what he has.
        with crowd(arena):
            wait_until(lambda: b"no new gRPC connections" in arena.daemon.log.read_bytes(), 10)
            with pytest.raises(batchd.BatchdError) as refused:
                job.loader(arena.daemon.address, chaos_photos)
            assert refused.value.code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE")
            arena.wait_for_batches(30)
            assert arena.daemon.open_files() < FILES

        # And all doors open again.
        with grpc.insecure_channel(f"unix:{arena.daemon.socket}.grpc") as channel:
            assert channel.unary_unary(METHOD + "GetStatus")(b"", timeout=30, wait_for_ready=True)
        assert "batchd_sessions" in arena.daemon.get("/metrics")
        wait_until(lambda: arena.daemon.metric("batchd_sessions") == len(arena.trainers), 20)
        with job.loader(arena.daemon.address, chaos_photos) as one:
            assert next(iter(one)).rows == job.G
        check_end(arena, undisturbed, before)


@pytest.fixture
def memory_cgroup():
    """A child of this process's memory cgroup with a limit, of whichever version there is."""
    lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    mounts = pathlib.Path("/sys/fs/cgroup")
    if "memory" in paths:
        parent, limit = mounts / "memory" / paths["memory"].lstrip("/"), "memory.limit_in_bytes"
    else:
        parent, limit = mounts / paths.get("", "/").lstrip("/"), "memory.max"
        delegated = parent / "cgroup.subtree_control"
        if not delegated.exists() or "memory" not in delegated.read_text().split():
            pytest.skip(f"{delegated} does not hand the memory controller to child cgroups")
    folder = parent / f"batchd-chaos-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(MEMORY_BYTES))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"a memory cgroup cannot be made here: {error}")
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), 10, "the cgroup is empty")
    folder.rmdir()


def out_of_memory_kills(folder: pathlib.Path) -> int:
    for name in ("memory.oom_control", "memory.events"):
        if (folder / name).exists():
            found = re.search(r"^oom_kill (\d+)", (folder / name).read_text(), re.MULTILINE)
            if found:
                return int(found[1])
    raise AssertionError(f"{folder} counts no kills")


def test_a_small_memory_cgroup(chaos_photos, undisturbed, memory_cgroup, tmp_path):
    enter = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(memory_cgroup / "cgroup.procs"))
    with Arena(chaos_photos, tmp_path, prefix=enter) as arena:
        daemon = arena.daemon
        before = belongings(daemon)
        kinds = ("slabs_budget", "encoded_budget", "scratch_budget")
        budget = sum(daemon.metric("batchd_memory_bytes", kind=kind) for kind in kinds)
        assert budget == MEMORY_BYTES // 10 * 8
        arena.start_trainers()

        # What could not fit is refused, with the number that it would need.
        with pytest.raises(batchd.OpenError, match=r"need \d{9,} bytes.*--memory") as refused:
            large = {"image": [T.DecodeImage(max_pixels=10**6, max_encoded_bytes=10**6),
                               T.Resize((600, 600))]}
            job.loader(daemon.address, chaos_photos, columns=large)
        assert refused.value.code == "RESOURCE_EXHAUSTED"
        with pytest.raises(batchd.OpenError, match=r"max_encoded_bytes=67108864.*--memory"):
            job.loader(daemon.address, chaos_photos)

        # All of it held, and more asked for.
        held = {"image": [T.DecodeImage(max_pixels=10**6, max_encoded_bytes=10**6),
                          T.Resize((160, 160))]}
        kept = []
        with job.loader(daemon.address, chaos_photos, columns=held, prefetch=2) as greedy:
            with pytest.raises(batchd.SlotsExhausted, match=r"\d+ of \d+ are in use"):
                kept.extend(greedy.steps(1000))
            assert sum(batch["image"].numpy().nbytes for batch in kept) > MEMORY_BYTES // 10
            arena.wait_for_batches(3)
            kept.clear()
        assert out_of_memory_kills(memory_cgroup) == 0
        check_end(arena, undisturbed, before)
        assert out_of_memory_kills(memory_cgroup) == 0


def test_more_memory_than_the_cgroup_has_is_refused_at_the_start(memory_cgroup, tmp_path):

    done = subprocess.run(
        ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(memory_cgroup / "cgroup.procs"), BINARY,
         "serve", "--listen", f"unix:{tmp_path}/s", "--http", "127.0.0.1:0", "--root", "/",
         "--memory", "1G"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 69
    assert str(1 << 30) in done.stderr and str(MEMORY_BYTES) in done.stderr
