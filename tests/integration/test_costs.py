# SPDX-License-Identifier: Apache-2.0
"""What a batch costs a trainer: no copy, no memory. Seconds are reported, counts are asserted."""

from __future__ import annotations

import ctypes
import gc
import pathlib
import sys
import time
import tracemalloc

import numpy as np
import pytest
from daemon import wait_until

import batchd
from batchd import transforms as T

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from hot import cost_of_ready_batches

READY = 24  # batches
COLUMNS = {"image": [T.DecodeImage(), T.RandomResizedCrop(224), T.Layout("NCHW")],
           "label": T.Label()}


@pytest.fixture
def one(daemon, photos_256):
    with batchd.Loader(batchd.ImageFolder(str(photos_256)), COLUMNS, batch_size=64, shuffle=True,
                       address=daemon.address) as made:
        yield made


def mapped_segments() -> list[tuple[int, int]]:
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "memfd:batchd" in line]
    return [(int(low, 16), int(high, 16)) for low, high in ranges]


def test_an_array_lies_in_the_shared_segment(one):
    for batch in one.steps(3):
        for make in (lambda c: c.numpy(), lambda c: np.from_dlpack(c), lambda c: np.asarray(c)):
            array = make(batch["image"])
            begin = array.ctypes.data
            assert array.shape == (64, 3, 224, 224)
            assert any(low <= begin and begin + array.nbytes <= high
                       for low, high in mapped_segments())


def test_a_torch_tensor_is_the_same_memory(one):
    torch = pytest.importorskip("torch", reason="this interpreter has no torch")
    batch = next(one.steps(1))
    tensor = batch["image"].torch()
    assert tensor.data_ptr() == batch["image"].numpy().ctypes.data
    assert torch.equal(tensor, torch.from_numpy(batch["image"].numpy().copy()))
    tensor.mul_(0)  # it may be written to
    assert batch["image"].numpy().max() == 0


def test_the_last_array_ends_the_lease(daemon, one):
    batches = one.steps(50)
    batch = next(batches)
    view = batch["image"].numpy()[3, 1]
    del batch
    next(batches)
    wait_until(lambda: daemon.metric("batchd_slabs", state="leased") == 2, 5)
    del view
    gc.collect()
    next(batches)
    wait_until(lambda: daemon.metric("batchd_slabs", state="leased") == 1, 5)


def test_a_batch_takes_little_memory_of_the_trainer(one):
    for batch in one.steps(8):
        batch["image"].numpy()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    peaks = []
    for batch in one.steps(20):
        batch["image"].numpy()
        now, peak = tracemalloc.get_traced_memory()
        peaks.append(peak - before)
        tracemalloc.reset_peak()
    tracemalloc.stop()
    assert max(peaks[2:]) < 4096, peaks


def test_the_cpu_time_of_a_ready_batch_is_reported(daemon, photos_256):
    with batchd.Loader(batchd.ImageFolder(str(photos_256)), COLUMNS, batch_size=64, shuffle=True,
                       address=daemon.address, prefetch=READY) as loader:
        batches = loader.steps(2**40)
        cost = cost_of_ready_batches(
            batches, lambda batch: batch["image"].numpy(),
            lambda: wait_until(lambda: daemon.metric("batchd_slabs", state="ready") >= READY, 60),
            pid=daemon.pid, rounds=3, count=READY)
        del batches
    print(f"cpu of the trainer per batch of 64x3x224x224 uint8 that lies ready: {cost}")
    assert cost.least > 0


def test_the_cpu_time_of_a_batch_that_is_waited_for_is_reported(one):
    costs = []
    batches = one.steps(40)
    for _ in range(40):
        started = time.thread_time_ns()
        batch = next(batches)
        batch["image"].numpy()
        costs.append((time.thread_time_ns() - started) / 1000)
    costs = sorted(costs[8:])
    print(f"cpu of the trainer per batch that it waits for: min {costs[0]:.1f} median "
          f"{costs[len(costs) // 2]:.1f} max {costs[-1]:.1f} us")
    assert costs[0] > 0


def test_numpy_and_libc_see_one_page(one):
    batch = next(one.steps(1))
    array = batch["label"].numpy()
    assert ctypes.c_int64.from_address(array.ctypes.data).value == array[0]
