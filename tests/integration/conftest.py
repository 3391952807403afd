# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run a real daemon."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from daemon import TRANSPORTS, Daemon  # noqa: E402
from pictures import make_numbered_folder, make_photo_folder  # noqa: E402


@pytest.fixture(scope="session")
def numbered_1000(tmp_path_factory) -> pathlib.Path:
    return make_numbered_folder(tmp_path_factory.mktemp("n1000"), 1000)


@pytest.fixture(scope="session")
def numbered_103(tmp_path_factory) -> pathlib.Path:
    return make_numbered_folder(tmp_path_factory.mktemp("n103"), 103)


@pytest.fixture(scope="session")
def photos_256(tmp_path_factory) -> pathlib.Path:
    return make_photo_folder(tmp_path_factory.mktemp("p256"), 256)


@pytest.fixture
def daemon():
    with Daemon() as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def transport(request) -> str:
    return request.param
