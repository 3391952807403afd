# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the client's tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "python_client" / "src"))
sys.path.insert(0, str(HERE))

from fake_daemon import Behaviour, FakeDaemon  # noqa: E402

import batchd  # noqa: E402
from batchd import transforms as T  # noqa: E402


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "BATCHD_ADDRESS",
        "RANK",
        "WORLD_SIZE",
        "SLURM_JOB_ID",
        "BATCHD_BINARY",
        "BATCHD_RECONNECT_TIMEOUT_SECONDS",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket."""
    path = Path(tempfile.mkdtemp(prefix="bd"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start_daemon(folder: Path) -> Iterator[Callable[..., FakeDaemon]]:
    daemons: list[FakeDaemon] = []

    def start(**behaviour: Any) -> FakeDaemon:
        daemon = FakeDaemon(str(folder / f"sock{len(daemons)}"), Behaviour(**behaviour))
        daemons.append(daemon)
        return daemon

    yield start
    for daemon in daemons:
        daemon.stop()
        assert daemon.faults == []


@pytest.fixture
def daemon(start_daemon: Callable[..., FakeDaemon]) -> FakeDaemon:
    return start_daemon()


@pytest.fixture
def make_loader() -> Iterator[Callable[..., batchd.Loader]]:
    loaders: list[batchd.Loader] = []

    def make(daemon: FakeDaemon, **arguments: Any) -> batchd.Loader:
        arguments.setdefault("address", f"unix:{daemon.path}")
        if "global_batch_size" not in arguments:
            arguments.setdefault("batch_size", 4)
        arguments.setdefault("reconnect_timeout", 10)
        columns = arguments.pop("columns", {"image": [T.DecodeImage()], "label": T.Label()})
        loader = batchd.Loader(batchd.ImageFolder("data"), columns, **arguments)
        loaders.append(loader)
        return loader

    yield make
    for loader in loaders:
        loader.close()
