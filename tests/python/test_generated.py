# SPDX-License-Identifier: Apache-2.0
"""Generated files are those that their generators make, and the package stands alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import batchd
from batchd import transforms as T

CLIENT = ROOT / "python_client"
PACKAGE = CLIENT / "src" / "batchd"


def test_transforms_are_made_from_the_schemas(tmp_path: Path) -> None:
    out = tmp_path / "transforms.py"

    subprocess.run(
        [sys.executable, CLIENT / "generate_transforms.py", CLIENT / "plugins.json", out],
        check=True,
    )

    assert out.read_text() == (PACKAGE / "transforms.py").read_text()


@pytest.mark.skipif(shutil.which("protoc") is None, reason="protoc is not installed here")
def test_messages_are_made_from_the_protocol(tmp_path: Path) -> None:
    version = subprocess.run(["protoc", "--version"], capture_output=True, text=True, check=True)
    if " 3.21." not in version.stdout:
        pytest.skip(f"the committed files are of protoc 3.21, here is {version.stdout.strip()}")

    subprocess.run([CLIENT / "generate_proto.sh", tmp_path], check=True)

    made = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    committed = {path.name: path.read_text() for path in (PACKAGE / "_proto").glob("*.py")}
    assert made == committed


def test_the_local_path_needs_numpy_alone() -> None:
    code = (
        "import sys, batchd, batchd.carrier_shm, batchd.private\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'grpc', 'google', 'torch', 'jax', 'tensorflow'}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(CLIENT / "src")}

    output = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert output.strip() == "[]"


def test_arguments_become_plain_json() -> None:
    crop = T.RandomResizedCrop(np.int64(224), scale=np.array([0.25, 1.0]), ratio=(3 / 4, 4 / 3))

    assert crop.to_json() == {
        "name": "RandomResizedCrop",
        "arguments": {"size": 224, "scale": [0.25, 1.0]},  # ratio is the default
    }
    assert T.Resize([256, 300]).arguments == {"size": [256, 300]}
    assert T.DecodeImage(max_pixels=2**60).arguments == {"max_pixels": str(2**60)}
    assert repr(T.Layout("NHWC")) == "Layout(layout='NHWC')"
    nested = T.RandomApply([T.RandomInvert(), T.RandomChoice([T.ColorJitter(hue=0.1)])], p=0.3)
    assert nested.to_json() == {
        "name": "RandomApply",
        "arguments": {
            "transforms": [
                {"name": "RandomInvert", "arguments": {}},
                {
                    "name": "RandomChoice",
                    "arguments": {
                        "transforms": [{"name": "ColorJitter", "arguments": {"hue": 0.1}}]
                    },
                },
            ],
            "p": 0.3,
        },
    }
    assert repr(nested) == (
        "RandomApply(transforms=[RandomInvert(), "
        "RandomChoice(transforms=[ColorJitter(hue=0.1)])], p=0.3)"
    )
    assert T.CenterCrop(3) == T.CenterCrop(3) != T.CenterCrop(4)
    with pytest.raises(TypeError, match="Resize: size="):
        T.Resize(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        T.Resize(3, sise=4)  # type: ignore[call-arg]


def test_a_folder_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")

    assert batchd.ImageFolder("a/../b").arguments == {"root": f"{tmp_path}/b"}
    assert batchd.ImageFolder(Path("~/x")).arguments == {"root": "/home/someone/x"}
