# SPDX-License-Identifier: Apache-2.0
"""MixUp and CutMix, on the trainer's device.

They are no operations of the daemon: whom a row is mixed with depends on how a batch is cut among
ranks, and a row of the daemon depends on its own sample alone. What is drawn depends on seed, epoch
and step, so that a run that goes on from a state mixes as it would have.

Images and labels may be torch tensors on any device, NumPy or JAX arrays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from batchd.batch import Batch

_SPATIAL_AXIS: Final = {"NCHW": 2, "NHWC": 1}


class _Mixing:
    """What the two share. Thread-safe: a call depends on its arguments alone."""

    _kind: int  # keeps the draws of the two apart

    def __init__(self, num_classes: int, alpha: float = 1.0, seed: int = 0) -> None:
        if num_classes < 1:
            raise ValueError(f"num_classes={num_classes}; it is the number of labels, 1 or more")
        if not alpha > 0:
            raise ValueError(f"alpha={alpha}; it is above 0, and nearer to 0 mixes less")
        self.num_classes = num_classes
        self.alpha = alpha
        self.seed = seed

    def _draws(self, batch: Batch) -> np.random.Generator:
        key = np.array([self.seed % 2**64, self._kind], np.uint64)
        # The first word counts on with what is drawn.
        counter = np.array([0, batch.step, batch.epoch, 0], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _targets(self, labels: Any, partner: Any, share: float) -> Any:
        """(rows, num_classes) of float32: `share` of the own label, the rest of the partner's."""
        own = _float32(labels[:, None] == _arange(self.num_classes, labels))
        return own * share + own[partner] * (1 - share)


class MixUp(_Mixing):
    """Adds to each image a part of another one of the batch, and so its label.

    `MixUp(num_classes=1000, alpha=0.2)(batch, images, labels)` returns new images and targets. The
    part is drawn once a batch, from Beta(alpha, alpha), as in torchvision. Source: Zhang et al.,
    "mixup: Beyond Empirical Risk Minimization" (ICLR 2018).

    Args:
        num_classes: Labels are 0 to num_classes - 1.
        alpha: Of the Beta distribution; above 0.
        seed: Other draws for another number.
    """

    _kind = 1

    def __call__(self, batch: Batch, images: Any, labels: Any) -> tuple[Any, Any]:
        """Images as the batch's column has them, of a floating type, and its labels, on one device.

        Returns images of the same type and shape and targets of float32, (rows, num_classes). Rows
        that are not valid (batch.valid) stay as they are and are nobody's partner; the target of a
        label outside 0 to num_classes - 1 is zeros.
        """
        if "float" not in str(images.dtype):
            raise TypeError(f"images of {images.dtype} cannot be mixed; add T.ToTensor() to their "
                            "column, or convert them")
        share = float(self._draws(batch).beta(self.alpha, self.alpha))
        partner = _partners(batch, images)
        mixed = images * share + images[partner] * (1 - share)
        return mixed, self._targets(labels, partner, share)


class CutMix(_Mixing):
    """Puts a box of another image of the batch over each, and mixes the labels by its area.

    `CutMix(num_classes=1000)(batch, images, labels)` returns new images and targets. The box is
    drawn once a batch, its area from Beta(alpha, alpha), as in torchvision. Source: Yun et al.,
    "CutMix: Regularization Strategy to Train Strong Classifiers" (ICCV 2019).

    Args:
        num_classes: Labels are 0 to num_classes - 1.
        alpha: Of the Beta distribution; above 0.
        seed: Other draws for another number.
        layout: Of the images: "NCHW" or "NHWC".
    """

    _kind = 2

    def __init__(
        self, num_classes: int, alpha: float = 1.0, seed: int = 0, layout: str = "NCHW"
    ) -> None:
        super().__init__(num_classes, alpha, seed)
        if layout not in _SPATIAL_AXIS:
            raise ValueError(f"layout={layout!r}; it is 'NCHW' or 'NHWC'")
        self.layout = layout

    def __call__(self, batch: Batch, images: Any, labels: Any) -> tuple[Any, Any]:
        """As MixUp's, for images of any type."""
        axis = _SPATIAL_AXIS[self.layout]
        height, width = images.shape[axis : axis + 2]
        draws = self._draws(batch)
        half = 0.5 * math.sqrt(1 - draws.beta(self.alpha, self.alpha))
        rows = _cut(draws, half, height)
        columns = _cut(draws, half, width)
        area = (rows.stop - rows.start) * (columns.stop - columns.start)
        partner = _partners(batch, images)
        box = (slice(None),) * axis + (rows, columns)
        mixed = _replaced(images, box, images[partner][box])
        return mixed, self._targets(labels, partner, 1 - area / (height * width))


def _cut(draws: np.random.Generator, half: float, length: int) -> slice:
    """A stretch around a place of `length`, as far as it lies inside."""
    centre, reach = int(draws.integers(length)), int(half * length)
    return slice(max(centre - reach, 0), min(centre + reach, length))


def _partners(batch: Batch, images: Any) -> Any:
    """For each row the one before it among the valid ones; for others itself."""
    partner = np.arange(batch.rows)
    valid = np.flatnonzero(batch.valid)
    partner[valid] = np.roll(valid, 1)
    if not _is_torch(images):
        return partner
    import torch

    return torch.from_numpy(partner).to(images.device)


def _is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _float32(array: Any) -> Any:
    return array.float() if _is_torch(array) else array.astype(np.float32)


def _arange(count: int, like: Any) -> Any:
    if not _is_torch(like):
        return np.arange(count)
    import torch

    return torch.arange(count, device=like.device)


def _replaced(array: Any, place: tuple[slice, ...], values: Any) -> Any:
    """A copy of the array with other values at that place."""
    if hasattr(array, "at"):  # JAX
        return array.at[place].set(values)
    copy = array.clone() if _is_torch(array) else array.copy()
    copy[place] = values
    return copy
