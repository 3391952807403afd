# SPDX-License-Identifier: Apache-2.0
"""MixUp and CutMix: who is mixed with whom, by how much, and that a step always mixes alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from batchd import CutMix, MixUp

try:
    import torch
except ImportError as error:
    torch = None
    why_not = f"torch cannot be imported: {error}"

LIBRARIES = ["numpy", pytest.param("torch", marks=pytest.mark.skipif(
    "torch is None", reason=globals().get("why_not", "")))]
ROWS, CLASSES = 6, 10


def a_batch(step: int = 3, epoch: int = 1, invalid: tuple[int, ...] = ()) -> Any:
    valid = np.ones(ROWS, bool)
    valid[list(invalid)] = False
    return SimpleNamespace(step=step, epoch=epoch, rows=ROWS, valid=valid)


def some_images(library: str = "numpy", dtype: type = np.float32) -> Any:
    """Image i has the value i everywhere."""
    images = np.broadcast_to(np.arange(ROWS)[:, None, None, None], (ROWS, 3, 20, 30)).astype(dtype)
    return images if library == "numpy" else torch.from_numpy(images)


def some_labels(library: str = "numpy") -> Any:
    labels = np.arange(ROWS, dtype=np.int64) + 2
    return labels if library == "numpy" else torch.from_numpy(labels)


def as_numpy(array: Any) -> Any:
    assert type(array).__module__.partition(".")[0] in ("numpy", "torch")
    return np.asarray(array)


@pytest.mark.parametrize("library", LIBRARIES)
def test_mixup_adds_the_row_before(library: str) -> None:
    mixed, targets = MixUp(CLASSES)(a_batch(), some_images(library), some_labels(library))

    images, targets = as_numpy(mixed), as_numpy(targets)
    assert images.dtype == targets.dtype == np.float32
    assert targets.shape == (ROWS, CLASSES)
    share = targets[1, 3]
    assert 0 < share < 1
    for row in range(ROWS):
        before = (row - 1) % ROWS
        assert targets[row, row + 2] == pytest.approx(share)
        assert targets[row, before + 2] == pytest.approx(1 - share)
        assert images[row] == pytest.approx(row * share + before * (1 - share))
    assert targets.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("library", LIBRARIES)
def test_cutmix_puts_a_box_of_the_row_before(library: str) -> None:
    given = some_images(library, np.uint8)
    mixed, targets = CutMix(CLASSES)(a_batch(), given, some_labels(library))

    images, targets = as_numpy(mixed), as_numpy(targets)
    assert images.dtype == np.uint8 and targets.dtype == np.float32
    boxes = images[:, 0] != np.arange(ROWS)[:, None, None]
    assert 0 < boxes[0].sum() < boxes[0].size
    assert (boxes == boxes[0]).all()
    rows, columns = boxes[0].any(axis=1), boxes[0].any(axis=0)
    assert (boxes[0] == rows[:, None] * columns).all()
    for row in range(ROWS):
        before = (row - 1) % ROWS
        assert (images[row][:, boxes[row]] == before).all()
        assert targets[row, before + 2] == pytest.approx(boxes[0].mean())
    assert targets.sum(axis=1) == pytest.approx(1)
    assert (as_numpy(given) == as_numpy(some_images(library, np.uint8))).all()


def test_cutmix_of_channels_last_cuts_the_same_box() -> None:
    first, _ = CutMix(CLASSES)(a_batch(), some_images(), some_labels())
    last, _ = CutMix(CLASSES, layout="NHWC")(
        a_batch(), some_images().transpose(0, 2, 3, 1), some_labels())

    assert (last.transpose(0, 3, 1, 2) == first).all()


@pytest.mark.parametrize("mixing", [MixUp(CLASSES), CutMix(CLASSES)])
def test_rows_that_are_not_valid_are_left_alone(mixing: Any) -> None:
    labels = some_labels()
    labels[2] = -100

    images, targets = mixing(a_batch(invalid=(2, 5)), some_images(), labels)

    assert (images[2] == 2).all() and (images[5] == 5).all()
    assert (targets[2] == 0).all()
    assert targets[5, 7] == pytest.approx(1)
    assert targets[3, 1 + 2] > 0  # the valid one before it
    assert targets[0, 4 + 2] > 0


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_draws_depend_on_seed_epoch_and_step_alone(make: Any) -> None:
    def mixed(seed: int, **place: int) -> bytes:
        images, _ = make(CLASSES, seed=seed)(a_batch(**place), some_images(), some_labels())
        return bytes(images.tobytes())

    assert mixed(0) == mixed(0) == mixed(2**64)
    seen = {mixed(0), mixed(1), mixed(-1), mixed(-2), mixed(2**63), mixed(2**63 + 1),
            mixed(0, step=4), mixed(0, epoch=2)}
    assert len(seen) == 8


def test_shares_have_the_beta_distribution() -> None:
    mixing = MixUp(CLASSES, alpha=0.2)
    shares = np.array([mixing(a_batch(step=step), some_images(), some_labels())[1][1, 3]
                       for step in range(2000)])

    assert shares.mean() == pytest.approx(0.5, abs=0.05)
    # Beta(a, a) has the variance 1 / (4 * (2a + 1)).
    assert shares.var() == pytest.approx(1 / 5.6, abs=0.02)


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(TypeError, match=r"images of uint8 .* T\.ToTensor\(\)"):
        MixUp(CLASSES)(a_batch(), some_images(dtype=np.uint8), some_labels())
    with pytest.raises(ValueError, match="alpha=0"):
        MixUp(CLASSES, alpha=0)
    with pytest.raises(ValueError, match="num_classes=0"):
        CutMix(0)
    with pytest.raises(ValueError, match="layout='HWC'"):
        CutMix(CLASSES, layout="HWC")
