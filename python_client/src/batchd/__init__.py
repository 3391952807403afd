# SPDX-License-Identifier: Apache-2.0
"""Ready batches for training jobs: the client of the batchd daemon."""

from batchd import transforms
from batchd._version import __version__
from batchd.batch import Batch, Column, RowStatus
from batchd.datasets import ImageFolder, Named
from batchd.errors import (
    BatchdError,
    ConnectionLost,
    ForkError,
    OpenError,
    ProtocolError,
    SampleError,
    SlotsExhausted,
    StateMismatch,
    Unavailable,
)
from batchd.loader import Loader
from batchd.mixing import CutMix, MixUp

__all__ = [
    "Batch",
    "BatchdError",
    "Column",
    "ConnectionLost",
    "CutMix",
    "ForkError",
    "ImageFolder",
    "Loader",
    "MixUp",
    "Named",
    "OpenError",
    "ProtocolError",
    "RowStatus",
    "SampleError",
    "SlotsExhausted",
    "StateMismatch",
    "Unavailable",
    "__version__",
    "transforms",
]
