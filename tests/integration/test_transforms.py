# SPDX-License-Identifier: Apache-2.0
"""The shared transform cases and what operations inside operations do, through a daemon."""

from __future__ import annotations

import io
import json
import pathlib
import sys

import numpy as np
import pytest
from daemon import Daemon
from PIL import Image

import batchd
from batchd import transforms as T

CASES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "cases" / "transforms"
AT_RANDOM = {"horizontal_flip": T.RandomHorizontalFlip, "vertical_flip": T.RandomVerticalFlip,
             "sharpness": T.RandomAdjustSharpness, "autocontrast": T.RandomAutocontrast,
             "equalize": T.RandomEqualize, "posterize": T.RandomPosterize,
             "solarize": T.RandomSolarize, "invert": T.RandomInvert}
NAMES = {"filter": "interpolation", "border": "padding", "mode": "padding_mode",
         "channels": "num_output_channels", "factor": "sharpness_factor", "short_side": "size"}


@pytest.fixture(scope="module")
def daemon():
    with Daemon() as running:
        yield running


def operations_of(case: dict) -> list[batchd.transforms.Operation] | None:
    """The case in the product's names, with ranges of one value; None if it gives a box or a move
    that the product draws."""
    operations = []
    for given in case["ops"]:
        op = given["op"]
        arguments = {NAMES.get(key, key): value for key, value in given.items() if key != "op"}
        if op in AT_RANDOM:
            operations.append(AT_RANDOM[op](**arguments, p=1))
        elif op == "rotate":
            arguments["degrees"] = (arguments["degrees"],) * 2
            operations.append(T.RandomRotation(**arguments))
        elif op == "affine" and given["translate"] == [0, 0]:
            del arguments["translate"]
            shear_x, shear_y = arguments.pop("shear")
            operations.append(T.RandomAffine(
                (arguments.pop("degrees"),) * 2, scale=(arguments.pop("scale"),) * 2,
                shear=(shear_x, shear_x, shear_y, shear_y), **arguments))
        elif op == "color_jitter":  # the order inside one is drawn
            operations += [T.ColorJitter(**{kind: (given[kind],) * 2}) for kind in given["order"]]
        elif op in ("resize", "center_crop", "pad", "grayscale", "to_tensor", "normalize", "layout",
                    "cast"):
            if arguments.pop("antialias", True) is False:
                return None  # which the product has not, and cases accept
            name = "".join(word.capitalize() for word in op.split("_"))
            operations.append(getattr(T, name)(**arguments))
        else:
            return None
    return operations


def cases() -> list[dict]:
    if not CASES.is_dir():
        return []
    return json.loads((CASES / "expected.json").read_text())["cases"]


def row_of(daemon, folder: pathlib.Path, operations: list) -> np.ndarray:
    with batchd.Loader(batchd.ImageFolder(str(folder)), {"x": [T.DecodeImage(), *operations]},
                       batch_size=1, shuffle=False, address=daemon.address) as loader:
        batch = next(iter(loader))
        return batch["x"].numpy()[0].copy()


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared cases")
def test_every_shared_case_that_can_be_said(daemon, tmp_path):
    sys.path.insert(0, str(CASES))
    try:
        import transformlib
    finally:
        sys.path.remove(str(CASES))
    checked, wrong, kinds = 0, {}, set()
    for case in cases():
        if case["expect"]["result"] != "ok" or (operations := operations_of(case)) is None:
            continue
        (folder := tmp_path / case["id"] / "a").mkdir(parents=True)
        (folder / "1.png").write_bytes((CASES / case["file"]).read_bytes())
        if faults := transformlib.compare(CASES, case, row_of(daemon, folder.parent, operations)):
            wrong[case["id"]] = faults
        kinds |= {op["op"] for op in case["ops"]}
        checked += 1
    assert not wrong
    assert checked >= 110
    assert kinds >= {"pad", "rotate", "affine", "grayscale", "color_jitter", *AT_RANDOM} - {
        "vertical_flip"} - {op for op in AT_RANDOM if op == "invert"}


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared cases")
def test_what_cannot_be_is_refused_before_any_sample_is_read(daemon, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(b"no picture")
    refused = 0
    for case in cases():
        if case["expect"]["result"] != "error" or case["ops"][-1]["op"] == "resise":
            continue
        with pytest.raises(batchd.OpenError, match=r"pipeline\.x\[\d\]"):
            row_of(daemon, tmp_path, operations_of(case))
        refused += 1
    assert refused >= 5


def write_noise(folder: pathlib.Path, count: int, size: tuple[int, int] = (20, 24)) -> None:
    (folder / "a").mkdir()
    dice = np.random.default_rng(3)
    for number in range(count):
        data = io.BytesIO()
        Image.fromarray(dice.integers(0, 256, (*size, 3), np.uint8)).save(data, "PNG")
        (folder / "a" / f"{number:03}.png").write_bytes(data.getvalue())


TRAIN = [
    T.RandomCrop(16, padding=2, padding_mode="reflect"),
    T.RandomApply([T.RandomChoice([T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.Grayscale(3)],
                                  p=[3, 1])], p=0.8),
    T.RandAugment(), T.TrivialAugmentWide(interpolation="bilinear"), T.AutoAugment("svhn"),
    T.RandomAffine(10, translate=(0.1, 0.1)), T.GaussianBlur(3), T.RandomVerticalFlip(),
    T.ToTensor(), T.Normalize(), T.RandomErasing(value=(0.1, 0.2, 0.3)),
]


def epoch_rows(daemon, folder: pathlib.Path, batch_size: int, column: str = "x") -> dict:
    with batchd.Loader(batchd.ImageFolder(str(folder)), {column: [T.DecodeImage(), *TRAIN]},
                       batch_size=batch_size, seed=5, address=daemon.address) as loader:
        return {int(ordinal): row.copy() for batch in loader.steps(2 * len(loader))
                for ordinal, row in zip(batch.sample_ids, batch[column].numpy())}


def test_rows_depend_on_the_sample_and_not_on_their_batch(daemon, tmp_path):
    write_noise(tmp_path, 24)

    rows, others = epoch_rows(daemon, tmp_path, 3), epoch_rows(daemon, tmp_path, 12)
    renamed = epoch_rows(daemon, tmp_path, 12, column="y")

    assert len(rows) == 24
    for ordinal, row in rows.items():
        np.testing.assert_array_equal(row, others[ordinal])
    # The name of the column is part of what is drawn.
    assert any(not np.array_equal(row, renamed[ordinal]) for ordinal, row in rows.items())


def test_an_erased_box_has_its_value_in_every_layout(daemon, tmp_path):
    write_noise(tmp_path, 1)
    erasing = T.RandomErasing(p=1, scale=(0.2, 0.2), value=(0.5, -1, 2))
    for tail, layout in ([], "CHW"), ([T.Layout("NHWC"), T.Cast("float16")], "HWC"):
        row = row_of(daemon, tmp_path, [T.ToTensor(), erasing, *tail]).astype(np.float32)
        plain = row_of(daemon, tmp_path, [T.ToTensor(), *tail]).astype(np.float32)
        if layout == "HWC":
            row, plain = row.transpose(2, 0, 1), plain.transpose(2, 0, 1)
        erased = (row == np.float32([0.5, -1, 2])[:, None, None]).all(0)
        height, width = erased.any(1).sum(), erased.any(0).sum()
        assert erased.sum() == height * width  # a box
        assert abs(height * width - 0.2 * 20 * 24) <= 12
        np.testing.assert_array_equal(row[:, ~erased], plain[:, ~erased])


def test_a_wrong_argument_inside_an_operation_is_named_by_its_path(daemon, tmp_path):
    write_noise(tmp_path, 1)
    inner = T.RandomChoice([T.RandomInvert(), T.RandomPosterize(9)])
    with pytest.raises(batchd.OpenError, match=r"pipeline\.x\[1\]\.transforms\[0\]\.transforms"
                                               r"\[1\]\.bits: 9 is out of range"):
        row_of(daemon, tmp_path, [T.RandomApply([inner])])
    with pytest.raises(batchd.OpenError,
                       match=r"pipeline\.x\[1\]\.transforms\[0\]: .*some samples"):
        row_of(daemon, tmp_path, [T.RandomApply([T.ToTensor()])])


def test_a_picture_smaller_than_the_crop_is_named(daemon, tmp_path):
    write_noise(tmp_path, 1)
    with pytest.raises(batchd.BatchdError, match=r"a/000\.png.*pipeline\.x\[1\].*pad_if_needed"):
        row_of(daemon, tmp_path, [T.RandomCrop(50)])
