# SPDX-License-Identifier: Apache-2.0
"""The job that tests disturb: an augmented run over small photos, whatever ranks it has."""

from __future__ import annotations

import batchd
from batchd import transforms as T

COLUMNS = {"image": [T.DecodeImage(), T.RandomResizedCrop(12), T.RandomHorizontalFlip()],
           "label": T.Label()}
# For a daemon that has little memory.
COLUMNS_SMALL = {**COLUMNS, "image": [T.DecodeImage(max_pixels=10**6, max_encoded_bytes=10**6),
                                      *COLUMNS["image"][1:]]}
G = 64


def loader(address: str, root, rank: int = 0, world_size: int = 1, columns=None,
           **options) -> batchd.Loader:
    return batchd.Loader(batchd.ImageFolder(str(root)), columns or COLUMNS, global_batch_size=G,
                         shuffle=True, seed=11, last_batch="partial", rank=rank,
                         world_size=world_size, address=address, **options)
