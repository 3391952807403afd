# SPDX-License-Identifier: Apache-2.0
"""The seed of all dice, and what the disturbed runs are compared with."""

from __future__ import annotations

import os
import pathlib
import random

import pytest
from checker import Undisturbed
from pictures import make_photo_folder

SEED = int(os.environ.get("BATCHD_CHAOS_SEED", random.SystemRandom().randrange(2**32)))
SAMPLES = 500


@pytest.fixture(scope="session", autouse=True)
def chaos_seed(request) -> int:
    """Said at the start, where -q and the capture of output cannot hide it."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nBATCHD_CHAOS_SEED={SEED} replays the faults of this run", flush=True)
    return SEED


@pytest.fixture
def dice(request) -> random.Random:
    """A test's own, so that it can be replayed alone."""
    print(f"BATCHD_CHAOS_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture(scope="session")
def chaos_photos(tmp_path_factory) -> pathlib.Path:
    return make_photo_folder(tmp_path_factory.mktemp("chaos"), SAMPLES, classes=10, side=24)


@pytest.fixture(scope="session")
def undisturbed(chaos_photos) -> Undisturbed:
    return Undisturbed(chaos_photos)
