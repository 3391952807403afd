# SPDX-License-Identifier: Apache-2.0
"""Who holds a slab, and when it goes back."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_daemon import FakeDaemon

import batchd

Make = Callable[..., batchd.Loader]


def mapped_segments() -> list[tuple[int, int]]:
    """Address ranges of this process's mappings of the fake's memfds."""
    ranges = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/memfd:fake" in line:
                low, high = line.split()[0].split("-")
                ranges.append((int(low, 16), int(high, 16)))
    return ranges


def test_arrays_lie_in_the_segment_and_are_writable(make_loader: Make, daemon: FakeDaemon) -> None:
    batch = next(iter(make_loader(daemon)))

    array = batch["image"].numpy()

    address = array.__array_interface__["data"][0]
    assert any(low <= address < high for low, high in mapped_segments())
    assert address % 64 == 0
    assert array.flags.writeable
    array[:] = 0


def test_the_last_array_gives_the_slab_back(make_loader: Make, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    iterator = loader.steps(10)
    view = next(iterator)["image"].numpy()[1, 2:].view()
    next(iterator)
    daemon.wait_for("take", 2)
    assert view[0, 0, 0] == 1
    assert daemon.held() == 2

    del view
    next(iterator)
    daemon.wait_for("release", 2)

    assert daemon.held() == 1  # the batch that next() has just returned


def test_a_view_of_an_array_s_base_holds_the_slab_and_ends_nothing(
    make_loader: Make, daemon: FakeDaemon
) -> None:
    iterator = make_loader(daemon).steps(10)
    array = next(iterator)["image"].numpy()
    part, other = array.base[64:128], array.base[128:]
    del array, other
    next(iterator)
    daemon.wait_for("take", 2)
    assert daemon.held() == 2

    del part
    next(iterator)
    daemon.wait_for("release", 2)

    assert daemon.held() == 1


def test_metadata_holds_nothing(make_loader: Make, daemon: FakeDaemon) -> None:
    kept = []
    for batch in make_loader(daemon):
        kept.append((batch.sample_ids, batch.row_status, batch.valid, batch.state))
    del batch

    daemon.wait_for("release", 4)
    assert [ids[0] for ids, *_ in kept] == [0, 4, 8, 12, 16]


def test_release_gives_back_at_once_and_only_once(make_loader: Make, daemon: FakeDaemon) -> None:
    batch = next(iter(make_loader(daemon)))

    batch.release()
    batch.release()

    daemon.wait_for("release", 1)
    with pytest.raises(batchd.BatchdError, match="has been released"):
        batch["image"]
    with pytest.raises(batchd.BatchdError, match="has been released"):
        batch.copy()
    del batch
    gc.collect()
    assert daemon.counts["release"] == 1


def test_a_copy_holds_nothing_and_stays(make_loader: Make, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    copies = []
    for batch in loader.steps(30):
        copies.append(batch.copy())
        batch.release()

    daemon.wait_for("release", 30)
    assert daemon.held() == 0
    for index, copy in enumerate(copies):
        assert copy["image"].numpy()[0, 0, 0, 0] == copy.sample_ids[0]
        assert copy.step == index % 5
        copy.release()


def test_kept_batches_are_never_overwritten(make_loader: Make, start_daemon: Any) -> None:
    daemon = start_daemon(num_samples=1000, segments_max=100)
    loader = make_loader(daemon, batch_size=10, prefetch=2)

    kept = list(loader.steps(50))

    for index, batch in enumerate(kept):
        assert batch["image"].numpy()[:, 3, 3, 2].tolist() == [
            i % 256 for i in range(10 * index, 10 * index + 10)
        ]


def wait_until_next_waits(loader: batchd.Loader) -> None:
    """Until next() has seen that there is no slot, and waits."""
    deadline = time.monotonic() + 10
    session: Any = loader._session
    while not (session._exhausted and session.carrier._waiting):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that only a wake-up ends a wait in time."""
    monkeypatch.setattr("batchd.carrier_shm._WAIT_SECONDS_MAX", 60.0)


@pytest.mark.usefixtures("long_waits")
def test_an_array_that_dies_in_another_thread_wakes_next(
    make_loader: Make, start_daemon: Any
) -> None:
    daemon = start_daemon(segments_max=1, slots_extra=0)
    loader = make_loader(daemon, prefetch=2)
    held = [batch["image"].numpy() for batch in loader.steps(2)]

    def drop_when_next_waits() -> None:
        wait_until_next_waits(loader)
        held.clear()

    thread = threading.Thread(target=drop_when_next_waits)
    thread.start()
    started = time.monotonic()
    batch = next(iter(loader))
    thread.join()

    assert batch.step == 2
    assert time.monotonic() - started < 3


@pytest.mark.usefixtures("long_waits")
def test_release_in_another_thread_wakes_next(make_loader: Make, start_daemon: Any) -> None:
    daemon = start_daemon(segments_max=1, slots_extra=0)
    loader = make_loader(daemon, prefetch=2)
    held = list(loader.steps(2))

    def release_when_next_waits() -> None:
        wait_until_next_waits(loader)
        held[0].release()

    thread = threading.Thread(target=release_when_next_waits)
    thread.start()
    started = time.monotonic()
    assert next(iter(loader)).step == 2
    thread.join()
    assert time.monotonic() - started < 3


def test_slots_exhausted_says_what_is_held(
    make_loader: Make, start_daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchd.session._EXHAUSTED_SECONDS", 0.2)
    daemon = start_daemon(segments_max=1, slots_extra=1)
    loader = make_loader(daemon, prefetch=2)
    held = list(loader.steps(3))

    for _ in range(2):
        with pytest.raises(batchd.SlotsExhausted, match=r"holds 3 batches.*release\(\)") as info:
            next(iter(loader))
    assert (info.value.held_slots, info.value.code) == (3, "RESOURCE_EXHAUSTED")
    assert info.value.slab_size_bytes > 0

    held.pop()
    assert next(iter(loader)).step == 3  # nothing is lost


def test_a_slow_batch_after_a_release_is_not_exhaustion(
    make_loader: Make, start_daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchd.session._EXHAUSTED_SECONDS", 0.2)
    daemon = start_daemon(segments_max=1, slots_extra=0)
    loader = make_loader(daemon, prefetch=2)
    held = list(loader.steps(2))

    def release_and_be_slow() -> None:
        daemon.wait_for("exhausted")
        with daemon.lock:  # the daemon does nothing meanwhile
            held[0].release()
            threading.Event().wait(0.5)

    thread = threading.Thread(target=release_and_be_slow)
    thread.start()
    assert next(iter(loader)).step == 2
    thread.join()


def test_arrays_outlive_loader_and_daemon(make_loader: Make, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    array = next(iter(loader))["image"].numpy()

    loader.close()
    daemon.wait_for("closed")
    daemon.stop()
    del loader
    gc.collect()

    assert array[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    del array
    gc.collect()


def test_segments_and_files_go_with_the_last_array(make_loader: Make, daemon: FakeDaemon) -> None:
    # The fake's own mappings and files are in this process too: they go when it has seen the end.
    gc.collect()
    files, mappings = len(os.listdir("/proc/self/fd")), len(mapped_segments())

    for count in range(1, 4):
        loader = make_loader(daemon)
        kept = [batch["label"].numpy() for batch in loader.steps(6)]
        loader.close()
        daemon.wait_for("closed", count)
        del kept, loader

    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= files
    assert len(mapped_segments()) <= mappings


def test_take_says_whether_next_had_to_wait(make_loader: Make, start_daemon: Any) -> None:
    daemon = start_daemon(hold_after=1)
    loader = make_loader(daemon, prefetch=2)
    daemon.wait_for("ready", 1)
    iterator = iter(loader)
    first = next(iterator)

    def let_go() -> None:
        with daemon.lock:
            daemon.go.set()
            daemon.connections[0]._make()

    timer = threading.Timer(0.05, let_go)
    timer.start()
    second = next(iterator)
    timer.join()
    daemon.wait_for("take", 2)

    assert [was_ready for _, was_ready, _ in daemon.takes] == [True, False]
    assert daemon.takes[0][2] == 0
    assert daemon.takes[1][2] > 1_000_000
    assert (first.step, second.step) == (0, 1)


def test_more_releases_than_a_datagram_holds(make_loader: Make, start_daemon: Any) -> None:
    daemon = start_daemon(num_samples=1000, segments_max=100)
    loader = make_loader(daemon, batch_size=1, prefetch=8)
    kept = list(loader.steps(200))

    kept.clear()
    next(loader.steps(1))

    daemon.wait_for("release", 200)
    daemon.wait_for("take", 201)
    assert np.unique([sequence for sequence, *_ in daemon.takes]).size == 201
