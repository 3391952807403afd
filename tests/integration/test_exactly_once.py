# SPDX-License-Identifier: Apache-2.0
"""A batch is a pure function of its address: over worlds, threads, transports and crashes."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

import pytest
from daemon import Daemon, wait_until
from pictures import make_photo_folder
from rows import Row, rows_of

import batchd
from batchd import transforms as T

COLUMNS = {"image": [T.DecodeImage(), T.RandomResizedCrop(12), T.RandomHorizontalFlip()],
           "label": T.Label()}
SAMPLES, G = 5000, 64
SEED = int(os.environ.get("BATCHD_TEST_SEED", random.SystemRandom().randrange(2**32)))


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> pathlib.Path:
    return make_photo_folder(tmp_path_factory.mktemp("p5000"), SAMPLES, classes=10, side=24)


def loader(daemon: Daemon, root, rank=0, world_size=1, **options) -> batchd.Loader:
    return batchd.Loader(batchd.ImageFolder(str(root)), COLUMNS, global_batch_size=G, shuffle=True,
                         seed=11, last_batch="partial", rank=rank, world_size=world_size,
                         address=daemon.address, **options)


def run_world(daemon: Daemon, root, world_size: int, epochs: int, **options) -> set[Row]:
    rows: list[Row] = []
    for rank in range(world_size):
        with loader(daemon, root, rank, world_size, **options) as one:
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
                with loader(daemon, photos, rank, world, prefetch=dice.choice([1, 4, 16])) as one:
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


TRAINER = """
import json, os, sys
sys.path.insert(0, sys.argv[4])
import batchd
from rows import rows_of
import test_exactly_once as t

class Address:
    address = sys.argv[1]

loader = t.loader(Address, sys.argv[2])
path = sys.argv[3]
log = open(path, "a")
# What counts is what the trainer has made its own: rows and state in one line, as a checkpoint has.
last = None
for line in open(path):
    if line.endswith("\\n"):
        last = json.loads(line)
if last:
    loader.load_state_dict(last["state"])
while loader.epoch < 2:
    for batch in loader:
        log.write(json.dumps({"rows": t.rows_of(batch, t.G, 0, 1), "state": batch.state}) + "\\n")
        log.flush()
        print(flush=True)
print("done", flush=True)
"""


def test_daemon_and_trainer_killed_twenty_times_each(photos, undisturbed, tmp_path):
    print(f"BATCHD_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    log = tmp_path / "log"
    log.touch()
    here = str(pathlib.Path(__file__).resolve().parent)

    def start(daemon):
        return subprocess.Popen([sys.executable, "-c", TRAINER, daemon.address, str(photos),
                                 str(log), here], stdout=subprocess.PIPE)

    victims = ["daemon", "trainer"] * 20
    dice.shuffle(victims)
    with Daemon() as daemon:
        trainer = start(daemon)
        finished = False
        for victim in victims:
            for _ in range(dice.randrange(1, 5)):
                line = trainer.stdout.readline()
                finished = finished or line == b"done\n"
            if victim == "daemon":
                daemon.kill()
                daemon.start()
            else:
                trainer.kill()
                trainer.wait()
                trainer.stdout.close()
                # A line that the kill has cut is no checkpoint.
                whole = log.read_bytes()
                log.write_bytes(whole[: whole.rfind(b"\n") + 1])
                trainer = start(daemon)
        assert not finished, "the epoch was over before the last kill: the test shows too little"
        for _ in trainer.stdout:
            pass
        assert trainer.wait(60) == 0
        trainer.stdout.close()
        wait_until(lambda: daemon.metric("batchd_sessions") == 0, 10, "no session is left")
        for state in ("filling", "ready", "leased", "free"):
            assert daemon.metric("batchd_slabs", state=state) == 0
        assert daemon.terminate() == 0
        left = [p.name for p in daemon.folder.iterdir()]
        assert "s" not in left and "s.grpc" not in left
    import json
    rows = [Row(*row) for line in log.read_text().splitlines() for row in json.loads(line)["rows"]]
    assert len(rows) == len(set(rows)), "a row came twice"
    assert set(rows) == undisturbed


def test_stopped_and_continued_processes_change_nothing(photos, undisturbed):
    with Daemon() as daemon:
        timers = []
        with loader(daemon, photos) as one:
            rows = []
            for _ in range(2):
                for batch in one:
                    rows += rows_of(batch, G, 0, 1)
                    if batch.step % 20 == 5:
                        os.kill(daemon.pid, signal.SIGSTOP)
                        timers.append(threading.Timer(0.2, os.kill, (daemon.pid, signal.SIGCONT)))
                        timers[-1].start()
        for timer in timers:
            timer.join()
    assert set(rows) == undisturbed and len(rows) == len(undisturbed)
