# SPDX-License-Identifier: Apache-2.0
"""What a column becomes: NumPy, Torch, DLPack; always the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_daemon import Column

import batchd

try:
    import torch
except ImportError as error:
    torch = None
    why_not = f"torch cannot be imported: {error}"

needs_torch = pytest.mark.skipif("torch is None", reason=globals().get("why_not", ""))

TYPES = {
    "u8": ("DATA_TYPE_UINT8", np.uint8),
    "i64": ("DATA_TYPE_INT64", np.int64),
    "f16": ("DATA_TYPE_FLOAT16", np.float16),
    "bf16": ("DATA_TYPE_BFLOAT16", np.uint16),
    "f32": ("DATA_TYPE_FLOAT32", np.float32),
}


@pytest.fixture
def batch(make_loader: Any, start_daemon: Any) -> batchd.Batch:
    columns = tuple(Column(name, kind, (2, 3)) for name, (kind, _) in TYPES.items())
    loader = make_loader(start_daemon(columns=columns))
    return next(iter(loader))


def address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("name", TYPES)
def test_numpy_has_type_shape_and_values(batch: batchd.Batch, name: str) -> None:
    column = batch[name]

    array = column.numpy()

    assert array.dtype == column.dtype == TYPES[name][1]
    assert array.shape == column.shape == (4, 2, 3)
    values = array[:, 1, 2]
    if name == "bf16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    assert values.tolist() == [0, 1, 2, 3]


def test_array_protocol_copies_only_when_asked(batch: batchd.Batch) -> None:
    column = batch["u8"]
    address = address_of(column.numpy())

    assert address_of(np.asarray(column)) == address
    assert address_of(np.array(column)) != address
    assert np.asarray(column, dtype=np.float32).dtype == np.float32
    assert (np.asarray(column) + 1).shape == (4, 2, 3)
    with pytest.raises(ValueError, match="without a copy"):
        column.__array__(np.dtype(np.float32), copy=False)


def test_dlpack_shares_memory(batch: batchd.Batch) -> None:
    column = batch["f32"]

    array = np.from_dlpack(column)  # type: ignore[arg-type]

    assert address_of(array) == address_of(column.numpy())
    assert column.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="torch"):
        batch["bf16"].__dlpack__()


def test_dlpack_holds_the_lease(batch: batchd.Batch) -> None:
    array = np.from_dlpack(batch["i64"])  # type: ignore[arg-type]
    memory = batch._memory
    sequence, carrier = memory._sequence, memory._carrier
    del memory

    batch._memory = None  # as if the batch were gone

    assert sequence in carrier._held
    del array
    assert sequence not in carrier._held


@needs_torch
@pytest.mark.parametrize("name", TYPES)
def test_torch_shares_memory(batch: batchd.Batch, name: str) -> None:
    tensor = batch[name].torch()

    assert tensor.data_ptr() == address_of(batch[name].numpy())
    assert tuple(tensor.shape) == (4, 2, 3)
    assert tensor[:, 0, 0].tolist() == [0, 1, 2, 3]
    assert (tensor.dtype == torch.bfloat16) == (name == "bf16")


@needs_torch
def test_a_tensor_holds_the_lease(batch: batchd.Batch) -> None:
    tensor = batch["bf16"].torch()[1:].view(-1)
    memory = batch._memory
    sequence, carrier = memory._sequence, memory._carrier
    del memory

    batch._memory = None

    assert sequence in carrier._held
    del tensor
    assert sequence not in carrier._held


@needs_torch
def test_torch_from_dlpack_shares_memory(batch: batchd.Batch) -> None:
    tensor = torch.from_dlpack(batch["u8"])

    assert tensor.data_ptr() == address_of(batch["u8"].numpy())


def test_an_empty_batch_has_its_shape(make_loader: Any, start_daemon: Any) -> None:
    loader = make_loader(start_daemon(num_samples=1), batch_size=2, rank=1, world_size=2)

    batch = next(iter(loader))

    assert len(batch) == 0
    assert batch["image"].numpy().shape == (0, 4, 4, 3)
    assert batch.sample_ids.tolist() == []


def test_only_the_cpu_is_a_device_so_far(batch: batchd.Batch, make_loader: Any) -> None:
    assert batch.to("cpu") is batch
    with pytest.raises(batchd.BatchdError, match="device='cuda:0' is not supported"):
        batch.to("cuda:0")
    with pytest.raises(batchd.BatchdError, match="device='cuda' is not supported"):
        batchd.Loader("x", {"label": batchd.transforms.Label()}, batch_size=1, device="cuda")
