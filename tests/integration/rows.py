# SPDX-License-Identifier: Apache-2.0
"""What a trainer has got, row by row, as hashes: to compare runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xxhash

import batchd


class Row(NamedTuple):
    epoch: int
    position: int  # in the epoch
    sample_id: int
    digest: int  # XXH3 of (epoch, position, id, bytes)


def position_of(step: int, row: int, global_batch_size: int, rank: int, world_size: int) -> int:
    return step * global_batch_size + rank * global_batch_size // world_size + row


def rows_of(batch: batchd.Batch, global_batch_size: int, rank: int, world_size: int) -> list[Row]:
    ids = batch.sample_ids
    columns = [batch[name].numpy() for name in sorted(batch.keys())]
    out = []
    for i in range(batch.rows):
        position = position_of(batch.step, i, global_batch_size, rank, world_size)
        hasher = xxhash.xxh3_64(np.array([batch.epoch, position, ids[i]], "<i8").tobytes())
        for column in columns:
            hasher.update(np.ascontiguousarray(column[i]).tobytes())
        out.append(Row(batch.epoch, position, int(ids[i]), hasher.intdigest()))
    return out


def batch_digest(batch: batchd.Batch) -> int:
    hasher = xxhash.xxh3_64(np.array([batch.epoch, batch.step, batch.rows], "<i8").tobytes())
    hasher.update(batch.sample_ids.tobytes())
    hasher.update(batch.row_status.tobytes())
    for name in sorted(batch.keys()):
        hasher.update(np.ascontiguousarray(batch[name].numpy()).tobytes())
    return hasher.intdigest()
