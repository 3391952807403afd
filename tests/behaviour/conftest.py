# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the behaviours that both clients have."""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
for folder in ("behaviour", "integration", "python"):
    sys.path.insert(0, str(TESTS / folder))

from clients import CLIENTS, Client, Loader  # noqa: E402
from fake_daemon import Behaviour, FakeDaemon  # noqa: E402

COLUMNS = [["image", [["DecodeImage", {}]]], ["label", [["Label", {}]]]]
STRAY = ("BATCHD_ADDRESS", "RANK", "WORLD_SIZE", "SLURM_JOB_ID",
         "BATCHD_RECONNECT_TIMEOUT_SECONDS")


@pytest.fixture(autouse=True, scope="session")
def clean_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in STRAY:
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", params=CLIENTS)
def client(request: pytest.FixtureRequest, clean_environment: None) -> Iterator[Client]:
    """A driver that all tests of this client share; it must end well at last."""
    running = Client(request.param)
    yield running
    running.close()


@pytest.fixture
def start_client() -> Iterator[Callable[..., Client]]:
    """Drivers of a test's own, with an environment or an end of their own."""
    clients: list[Client] = []

    def start(name: str, env: dict[str, str] | None = None,
              pass_fds: tuple[int, ...] = ()) -> Client:
        clients.append(Client(name, env, pass_fds))
        return clients[-1]

    yield start
    for one in clients:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder whose path is short enough for a Unix socket."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="bd"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fake(folder: pathlib.Path) -> Iterator[Callable[..., FakeDaemon]]:
    """Starts a daemon that misbehaves as told; it must have found no fault with its clients."""
    daemons: list[FakeDaemon] = []

    def start(**behaviour: object) -> FakeDaemon:
        daemons.append(FakeDaemon(str(folder / f"s{len(daemons)}"), Behaviour(**behaviour)))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.stop()
        assert daemon.faults == []


@pytest.fixture
def opened() -> Iterator[Callable[..., Loader]]:
    """Opens a loader of a client at a daemon; closes it at the end."""
    loaders: list[Loader] = []

    def open_loader(client: Client, daemon: FakeDaemon, **options: object) -> Loader:
        options.setdefault("address", f"unix:{daemon.path}")
        options.setdefault("columns", COLUMNS)
        options.setdefault("reconnect_timeout", 10)
        if "global_batch_size" not in options:
            options.setdefault("batch_size", 4)
        loaders.append(client.open(**options))
        return loaders[-1]

    yield open_loader
    for loader in loaders:
        if loader.client.process.poll() is None:
            loader.do("close")


@pytest.fixture(params=["shm", "grpc"])
def over(request: pytest.FixtureRequest,
         opened: Callable[..., Loader]) -> Iterator[Callable[..., Loader]]:
    """The same over each carrier."""
    if request.param == "shm":
        yield opened
        return
    from grpc_bridge import GrpcBridge

    bridges = []

    def open_loader(client: Client, daemon: FakeDaemon, **options: object) -> Loader:
        bridges.append(GrpcBridge(daemon))
        return opened(client, daemon, address=bridges[-1].address, **options)

    yield open_loader
    for bridge in bridges:
        bridge.stop()
