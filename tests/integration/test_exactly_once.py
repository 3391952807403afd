# SPDX-License-Identifier: Apache-2.0
"""A batch is a pure function of its address: over worlds, threads, transports and stops. Faults and
crashes are in chaos/.
"""

from __future__ import annotations

import os
import pathlib
import random

import pytest
from daemon import Daemon
from job import G, loader
from pictures import make_photo_folder
from rows import Row, rows_of

SAMPLES = 5000
SEED = int(os.environ.get("BATCHD_TEST_SEED", random.SystemRandom().randrange(2**32)))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> pathlib.Path:
    return make_photo_folder(tmp_path_factory.mktemp("p5000"), SAMPLES, classes=10, side=24)


def run_world(daemon: Daemon, root, world_size: int, epochs: int, **options) -> set[Row]:
    rows: list[Row] = []
    for rank in range(world_size):
        with loader(daemon.address, root, rank, world_size, **options) as one:
            for _ in range(epochs):
                for batch in one:
                    rows += rows_of(batch, G, rank, world_size)
    assert len(rows) == len(set(rows)), "a row came twice"
    return set(rows)


@pytest.fixture(scope="module")
def undisturbed(photos) -> set[Row]:
    with Daemon() as daemon:
        rows = run_world(daemon, photos, 1, 2)
    for epoch in range(2):
        ids = sorted(row.sample_id for row in rows if row.epoch == epoch)
        assert ids == list(range(SAMPLES)), "every sample once per epoch"
    return rows


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_the_world_size_changes_no_row(photos, undisturbed, world_size):
    with Daemon() as daemon:
        assert run_world(daemon, photos, world_size, 2) == undisturbed


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_number_of_threads_changes_no_row(photos, undisturbed, threads):
    with Daemon(("/",), f"--cpus={threads}") as daemon:
        assert run_world(daemon, photos, 1, 2, prefetch=threads) == undisturbed


def test_a_cold_cache_changes_no_row(photos, undisturbed):
    for path in photos.rglob("*.jpg"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    with Daemon() as daemon:
        assert run_world(daemon, photos, 1, 2) == undisturbed


def test_the_transport_changes_no_row(photos, undisturbed):
    with Daemon() as daemon:
        assert run_world(daemon, photos, 1, 2, transport="grpc") == undisturbed


def test_ten_stops_half_of_them_with_another_world_size(photos, undisturbed):
    print(f"BATCHD_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    steps_total = 2 * -(-SAMPLES // G)
    stops = sorted(dice.sample(range(1, steps_total), 10))
    world, state, rows, done = 1, None, [], 0
    with Daemon() as daemon:
        for number, stop in enumerate([*stops, steps_total]):
            states = []
            for rank in range(world):
                prefetch = dice.choice([1, 4, 16])
                with loader(daemon.address, photos, rank, world, prefetch=prefetch) as one:
                    if state is not None:
                        one.load_state_dict(state)
                    for batch in one.steps(stop - done):
                        rows += rows_of(batch, G, rank, world)
                    states.append(one.state_dict())
            assert all(s == states[0] for s in states)
            state, done = states[0], stop
            if number % 2:
                world = dice.choice([w for w in (1, 2, 3, 8) if w != world])
    assert len(rows) == len(set(rows))
    assert set(rows) == undisturbed
