# SPDX-License-Identifier: Apache-2.0
"""The loader's scenarios: which samples come, in which order, whatever happens around them."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from daemon import BINARY, Daemon, rss_bytes, wait_until
from pictures import make_numbered_folder, number_of, numbered
from PIL import Image
from rows import batch_digest

import batchd
from batchd import transforms as T

PLAIN = {"image": T.DecodeImage(), "label": T.Label()}
AUGMENTED = {"image": [T.DecodeImage(), T.RandomResizedCrop(16), T.RandomHorizontalFlip()],
             "label": T.Label()}


def loader(daemon, root, columns=None, **options):
    options.setdefault("seed", 7)
    options.setdefault("shuffle", True)
    if "global_batch_size" not in options:
        options.setdefault("batch_size", 8)
    return batchd.Loader(batchd.ImageFolder(str(root)), columns or PLAIN,
                         address=daemon.address, **options)


def numbers(batch) -> list[int]:
    return [number_of(row) for row in batch["image"].numpy()]


def epoch_of(one) -> list[tuple[list[int], np.ndarray]]:
    return [(numbers(batch), batch.valid) for batch in one]


def digests(one, epochs=1) -> list[int]:
    return [batch_digest(batch) for _ in range(epochs) for batch in one]


# Which samples, in which order.


@pytest.mark.parametrize("last_batch", ["partial", "pad"])
def test_s01_every_rank_together_sees_every_sample_once(daemon, numbered_103, last_batch):
    seen, rows, steps = [], 0, set()
    for rank in range(4):
        with loader(daemon, numbered_103, shuffle=False, rank=rank, world_size=4,
                    last_batch=last_batch) as one:
            batches = epoch_of(one)
            steps.add(len(batches))
            for values, valid in batches:
                rows += len(values)
                seen += [value for value, ok in zip(values, valid) if ok]

    assert sorted(seen) == list(range(103))
    assert len(steps) == 1  # no rank waits for another for ever
    assert rows == (103 if last_batch == "partial" else 4 * steps.pop() * 8)


def test_s02_fewer_samples_than_ranks(daemon, tmp_path):
    root = make_numbered_folder(tmp_path / "d", 3)
    seen = []
    for rank in range(7):
        with loader(daemon, root, shuffle=False, batch_size=2, rank=rank, world_size=7) as one:
            batches = epoch_of(one)
            assert len(batches) == 1
            seen += batches[0][0]

    assert sorted(seen) == [0, 1, 2]


def test_s03_threads_prefetch_file_order_and_cache_change_nothing(tmp_path):
    roots = [make_numbered_folder(tmp_path / f"d{i}", 1000, reverse=i == 1) for i in range(2)]
    seen = set()
    for threads, prefetch, root, cold in [(1, 1, 0, False), (2, 16, 1, True), (8, 16, 0, True),
                                          (8, 1, 1, False)]:
        if cold:
            for path in roots[root].rglob("*.jpg"):
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)
        with Daemon(("/",), f"--cpus={threads}") as daemon:
            with loader(daemon, roots[root], AUGMENTED, batch_size=64, prefetch=prefetch) as one:
                seen.add(tuple(digests(one)))

    assert len(seen) == 1


def test_s04_epochs_differ_and_can_be_had_alone(daemon, numbered_103):
    def ids(rank, first, count):
        with loader(daemon, numbered_103, last_batch="partial", rank=rank, world_size=2) as one:
            one.set_epoch(first)
            return [[i for batch in one for i in batch.sample_ids.tolist()] for _ in range(count)]

    both = [ids(rank, 0, 3) for rank in range(2)]
    for epoch in range(3):
        assert not set(both[0][epoch]) & set(both[1][epoch])
        assert sorted(both[0][epoch] + both[1][epoch]) == list(range(103))
    assert both[0][0] != both[0][1] != both[0][2]
    assert ids(0, 2, 1) == [both[0][2]]


def test_s05_augmentation_is_drawn_per_sample_epoch_and_seed(tmp_path):
    root = tmp_path / "d" / "c"
    root.mkdir(parents=True)
    picture = np.random.default_rng(3).integers(0, 256, (48, 64, 3), np.uint8)
    for i in range(256):
        Image.fromarray(picture).save(root / f"{i:03d}.png")
    runs = []
    for threads in (1, 8):
        with Daemon(("/",), f"--cpus={threads}") as daemon:
            ranks = []
            for rank in range(2):
                with loader(daemon, tmp_path / "d", AUGMENTED, rank=rank, world_size=2) as one:
                    ranks.append([{int(i): row.tobytes() for batch in one
                                   for i, row in zip(batch.sample_ids, batch["image"].numpy())}
                                  for _ in range(2)])
            runs.append(ranks)
    assert runs[0] == runs[1]
    for epoch in range(2):
        crops = {**runs[0][0][epoch], **runs[0][1][epoch]}
        assert len(crops) == 256
        assert len(set(crops.values())) >= 250
    first = {**runs[0][0][0], **runs[0][1][0]}
    second = {**runs[0][0][1], **runs[0][1][1]}
    assert sum(first[i] != second[i] for i in first) >= 250


@pytest.mark.parametrize("prefetch", [2, 16])
def test_s06_s07_a_resumed_run_is_the_undisturbed_run(tmp_path, numbered_1000, prefetch):
    def make(daemon):
        return loader(daemon, numbered_1000, AUGMENTED, batch_size=16, prefetch=prefetch)

    with Daemon() as daemon, make(daemon) as one:
        whole = digests(one, epochs=2)
    for stop in (0, 1, 5, 7, 61, 62):
        with Daemon() as daemon, make(daemon) as one:
            before = []
            if stop:
                for batch in one:
                    before.append(batch_digest(batch))
                    if len(before) == stop:
                        break
            state = one.state_dict()
        with Daemon() as daemon, make(daemon) as one:
            one.load_state_dict(state)
            after = digests(one, epochs=1 if stop == 62 else 2)
        assert before + after == whole, stop


def test_s08_another_world_size_at_any_step(daemon, tmp_path):
    root = make_numbered_folder(tmp_path / "d", 960)
    seen, state = [], None
    for world, steps in [(4, 10), (2, 10), (8, 10)]:
        states = []
        for rank in range(world):
            with loader(daemon, root, global_batch_size=32, rank=rank, world_size=world) as one:
                if state is not None:
                    one.load_state_dict(state)
                for batch in one.steps(steps):
                    seen += numbers(batch)
                states.append(one.state_dict())
        assert all(s == states[0] for s in states)
        state = states[0]

    assert sorted(seen) == list(range(960))
    assert state["epoch"] == 1 or state["samples"] == 960


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("last_batch,sizes", [("drop", [8] * 12), ("partial", [8] * 12 + [4])])
def test_s11_the_announced_length_is_the_real_one(tmp_path, threads, last_batch, sizes):
    root = make_numbered_folder(tmp_path / "d", 100)
    with Daemon(("/",), f"--cpus={threads}") as daemon:
        with loader(daemon, root, last_batch=last_batch) as one:
            assert len(one) == len(sizes)
            assert [batch.rows for batch in one] == sizes


def test_s12_ranks_are_disjoint_by_the_environment(daemon, numbered_103, monkeypatch):
    parts = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        with loader(daemon, numbered_103, last_batch="partial") as one:
            parts.append([i for batch in one for i in batch.sample_ids.tolist()])
    assert sorted(sum(parts, [])) == list(range(103))


# Bad samples.


def spoiled_folder(root: pathlib.Path, count: int = 200) -> tuple[pathlib.Path, list[int]]:
    """Five of the samples are damaged, each in its own way; the last has gone."""
    make_numbered_folder(root, count)
    paths = sorted(root.rglob("*.jpg"))
    whole = paths[40].read_bytes()
    paths[10].write_bytes(b"")
    paths[40].write_bytes(whole[: len(whole) * 3 // 4])
    paths[41].write_bytes(b"<html><body>404</body></html>")
    png = bytearray(numbered(90, fmt="PNG"))
    png[png.index(b"IDAT") + 6] ^= 0xFF
    paths[90].write_bytes(bytes(png))
    return root, [10, 40, 41, 90, 199]


def test_s13_fail_names_the_sample_and_the_loader_goes_on(daemon, tmp_path):
    root, bad = spoiled_folder(tmp_path / "d")
    with loader(daemon, root, shuffle=False, batch_size=10, last_batch="partial") as one:
        sorted(root.rglob("*.jpg"))[199].unlink()
        seen, reasons = [], {}
        while one.epoch == 0:
            try:
                for batch in one:
                    seen += numbers(batch)
            except batchd.SampleError as error:
                reasons[error.ordinal] = error.reason
                assert error.sample_name in str(error)
                one.load_state_dict(error.next_state)
    # 40 and 41 are in one batch: the lower one is named.
    assert reasons == {10: "empty", 40: "truncated", 90: "corrupt", 199: "not_found"}
    assert seen == [i for i in range(200) if i // 10 not in (1, 4, 9, 19)]


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_s13_skip_and_substitute_cost_no_other_sample(daemon, tmp_path, policy):
    root, bad = spoiled_folder(tmp_path / "d")
    runs = []
    with loader(daemon, root, on_bad_sample=policy, last_batch="partial", name=policy) as one:
        sorted(root.rglob("*.jpg"))[199].unlink()
        for _ in range(2):
            one.set_epoch(0)
            runs.append([(int(i), name, number_of(row), int(label))
                         for batch in one
                         for i, name, row, label in zip(batch.sample_ids, batch.row_status_names,
                                                        batch["image"].numpy(),
                                                        batch["label"].numpy())])
        for reason in ("empty", "truncated", "corrupt", "not_an_image", "not_found"):
            assert daemon.metric("batchd_sample_errors_total", job=policy, reason=reason) >= 2
    assert runs[0] == runs[1]
    good = [row for row in runs[0] if row[1] == "ok"]
    assert sorted(row[0] for row in good) == [i for i in range(200) if i not in bad]
    assert all(row[0] == row[2] for row in good)
    rest = [row for row in runs[0] if row[1] != "ok"]
    assert len(rest) == 5
    if policy == "skip":
        assert sorted(row[0] for row in rest) == bad
        assert all(row[3] == -100 for row in rest)
    else:
        assert all(row[0] == row[2] and row[0] not in bad for row in rest)


def test_s14_only_bad_samples_end_with_words(daemon, tmp_path):
    (tmp_path / "d" / "c").mkdir(parents=True)
    for i in range(64):
        (tmp_path / "d" / "c" / f"{i}.jpg").write_bytes(b"")
    columns = {"image": [T.DecodeImage(), T.Resize((8, 8))]}
    with loader(daemon, tmp_path / "d", columns, on_bad_sample="skip") as one:
        begin = time.monotonic()
        with pytest.raises(batchd.BatchdError, match="no usable sample"):
            for _ in range(3):
                list(one)
        assert time.monotonic() - begin < 10


def test_s15_sizes_that_differ_are_named(daemon, tmp_path):
    (tmp_path / "d" / "c").mkdir(parents=True)
    (tmp_path / "d" / "c" / "a.jpg").write_bytes(numbered(1, 40, 30))
    (tmp_path / "d" / "c" / "b.jpg").write_bytes(numbered(2, 30, 40))
    with loader(daemon, tmp_path / "d", shuffle=False, batch_size=2) as one:
        with pytest.raises(batchd.BatchdError) as raised:
            list(one)
    for part in ("c/a.jpg", "c/b.jpg", "30x40", "40x30", "Resize"):
        assert part in str(raised.value)


def test_s15_grey_palette_cmyk_and_alpha_become_three_channels(daemon, tmp_path):
    folder = tmp_path / "d" / "c"
    folder.mkdir(parents=True)
    base = Image.fromarray(np.full((20, 24, 3), 90, np.uint8))
    base.convert("L").save(folder / "a.jpg")
    base.quantize(4).save(folder / "b.png")
    base.convert("CMYK").save(folder / "c.jpg")
    base.convert("RGBA").save(folder / "d.png")
    with loader(daemon, tmp_path / "d", shuffle=False, batch_size=4) as one:
        (batch,) = list(one)
        assert batch["image"].shape == (4, 20, 24, 3)
        assert np.abs(batch["image"].numpy().astype(int) - 90).max() <= 3


# Processes and memory.

TRAINER = """
import sys, batchd
from batchd import transforms as T
loader = batchd.Loader(batchd.ImageFolder(sys.argv[2]), {"image": T.DecodeImage()}, batch_size=8,
                       seed=7, shuffle=True, address=sys.argv[1], prefetch=4, name="trainer")
held = []
for batch in loader.steps(10**6):
    held.append(batch["image"].numpy())
    held = held[-3:]
    print(batch.step, flush=True)
"""


def start_trainer(daemon, root) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", TRAINER, daemon.address, str(root)],
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


@pytest.mark.release_only  # ASan keeps freed memory for a while
def test_s16_killed_trainers_leave_nothing_and_disturb_nobody(daemon, numbered_1000):
    with loader(daemon, numbered_1000, AUGMENTED) as one:
        undisturbed = digests(one, epochs=2)
    shm_before = set(os.listdir("/dev/shm"))
    stop, seen = threading.Event(), []

    def neighbour():
        with loader(daemon, numbered_1000, AUGMENTED, name="neighbour") as other:
            while not stop.is_set():
                other.set_epoch(0)
                seen.append(digests(other, epochs=2))

    thread = threading.Thread(target=neighbour)
    thread.start()
    rss, files = [], []
    try:
        for _ in range(20):
            trainer = start_trainer(daemon, numbered_1000)
            for _ in range(5):
                assert trainer.stdout.readline()
            trainer.kill()
            trainer.wait()
            trainer.stdout.close()
            wait_until(lambda: daemon.metric("batchd_sessions") <= 1, 5, "the session is gone")
            rss.append(daemon.rss_bytes())
            files.append(daemon.open_files())
    finally:
        stop.set()
        thread.join()

    assert seen and all(run == undisturbed for run in seen)
    assert set(os.listdir("/dev/shm")) == shm_before
    # From the fifth round on: before, allocators and caches still fill.
    assert abs(np.median(rss[-5:]) - np.median(rss[5:10])) < 4 << 20
    assert max(files[5:]) <= max(files[:5]) + 2


def test_s17_a_killed_daemon_comes_back_and_the_sequence_goes_on(tmp_path, numbered_1000):
    with Daemon() as daemon, loader(daemon, numbered_1000, AUGMENTED) as one:
        undisturbed = digests(one)
    with Daemon() as daemon, loader(daemon, numbered_1000, AUGMENTED) as one:
        seen, held = [], []
        for batch in one:
            seen.append(batch_digest(batch))
            if len(seen) in (20, 60):
                held.append((batch, batch_digest(batch)))
                daemon.kill()
                daemon.start()
        assert one.reconnects == 2
        assert all(batch_digest(batch) == digest for batch, digest in held)
    assert seen == undisturbed


def test_s18_ctrl_c_ends_trainer_and_daemon_at_once(daemon, tmp_path):
    folder = tmp_path / "d" / "c"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(numbered(1))
    os.mkfifo(folder / "b.jpg")  # listed or not, it never gives bytes
    trainer = start_trainer(daemon, make_numbered_folder(tmp_path / "n", 100))
    assert trainer.stdout.readline()
    os.kill(daemon.pid, signal.SIGSTOP)  # from here on the trainer waits
    try:
        begin = time.monotonic()
        trainer.send_signal(signal.SIGINT)
        assert trainer.wait(3) != 0
        assert time.monotonic() - begin < 3
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
        trainer.stdout.close()
    begin = time.monotonic()
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(3) == 0
    assert not daemon.socket.exists()


def test_s20_few_descriptors_and_64_batches_alive(numbered_1000):
    with Daemon(("/",), prefix=("prlimit", "--nofile=256:256")) as daemon:
        with loader(daemon, numbered_1000, prefetch=4) as one:
            held, files = [], []
            for count, batch in enumerate(one.steps(2000)):
                held = [*held[-63:], batch["image"].numpy()]
                if count % 100 == 99:
                    files.append((daemon.open_files(), len(os.listdir("/proc/self/fd"))))
            # Besides, each CPU thread may have a sample open.
            assert max(f[0] for f in files[2:]) - min(f[0] for f in files[2:]) <= 4, files
            assert len({f[1] for f in files[2:]}) == 1, files


def test_s22_batches_that_are_kept_are_never_overwritten(daemon, numbered_1000):
    with loader(daemon, numbered_1000, AUGMENTED) as one:
        kept = [(batch, batch_digest(batch)) for batch in one.steps(50)]
        for _ in one.steps(40):
            pass
        assert all(batch_digest(batch) == digest for batch, digest in kept)


def test_s22_a_trainer_that_keeps_all_is_told_what_it_holds(numbered_1000):
    columns = {"image": [T.DecodeImage(max_pixels=10**6), T.Resize((256, 256))]}
    with Daemon(("/",), "--memory=1G") as daemon:
        with loader(daemon, numbered_1000, columns, batch_size=64, prefetch=2) as one:
            kept = []
            with pytest.raises(batchd.SlotsExhausted) as raised:
                for batch in one.steps(1000):
                    kept.append(batch)
            assert raised.value.held_slots == len(kept)
            digests_before = [batch_digest(batch) for batch in kept[:3]]
            kept = kept[:3]
            assert next(iter(one.steps(1))).rows == 64  # it goes on once there is room
            assert [batch_digest(batch) for batch in kept] == digests_before


def test_s23_forks(daemon, numbered_103):
    with loader(daemon, numbered_103, batch_size=4) as one:
        batches = one.steps(20)
        next(batches)
        for _ in range(50):
            subprocess.run(["true"], check=True)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                next(batches)
                os.write(write, b"worked")
            except batchd.BatchdError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        text = os.read(read, 1000).decode()
        os.close(read)
        assert "fork" in text
        assert next(batches).rows == 4


def test_s24_threads_follow_what_is_allowed(numbered_103):
    core = min(os.sched_getaffinity(0))
    with Daemon(prefix=("taskset", "-c", str(core))) as daemon:
        assert daemon.metric("batchd_cpu_threads") == 1
    with Daemon() as daemon:
        assert daemon.metric("batchd_cpu_threads") == len(os.sched_getaffinity(0))


def test_s25_a_large_batch_by_grpc(daemon, photos_256):
    columns = {"image": [T.DecodeImage(), T.RandomResizedCrop(224), T.ToTensor(), T.Normalize()]}
    with loader(daemon, photos_256, columns, batch_size=64, transport="grpc") as one:
        batch = next(iter(one))
        assert batch["image"].numpy().nbytes == 64 * 3 * 224 * 224 * 4
        remote = batch_digest(batch)
    with loader(daemon, photos_256, columns, batch_size=64, transport="shm") as one:
        assert batch_digest(next(iter(one))) == remote


def test_a_trainer_holds_no_copy_of_the_index(daemon, numbered_1000):
    with loader(daemon, numbered_1000) as one:
        list(one)
        before = rss_bytes(os.getpid())
        for _ in range(5):
            list(one)
        assert rss_bytes(os.getpid()) - before < 4 << 20


def test_the_program_is_there():
    assert subprocess.run([BINARY, "--version"], capture_output=True).returncode == 0
