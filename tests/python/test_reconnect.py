# SPDX-License-Identifier: Apache-2.0
"""A daemon that goes and comes back: the loop sees only a pause."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from fake_daemon import FakeDaemon

import batchd

UNDISTURBED = [(epoch, step) for epoch in range(3) for step in range(5)]


def addresses(loader: batchd.Loader, epochs: int = 3) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.step) for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("after", [1, 2, 4, 5, 6, 9])
@pytest.mark.parametrize("how", ["die_after", "drain_after"])
def test_nothing_is_lost_and_nothing_comes_twice(
    make_loader: Any, start_daemon: Any, how: str, after: int
) -> None:
    daemon = start_daemon(**{how: after})
    loader = make_loader(daemon, prefetch=2)

    assert addresses(loader) == UNDISTURBED
    assert loader.reconnects == 1
    assert daemon.opens[-1]["expected"] == daemon.behaviour.fingerprint


def test_a_daemon_that_is_away_for_a_while(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon, prefetch=1)
    iterator = iter(loader)
    kept = next(iterator)
    daemon.stop()
    starter = threading.Timer(0.3, daemon.start)
    starter.start()

    rest = [(batch.epoch, batch.step) for batch in iterator]
    starter.join()

    assert rest == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert kept["image"].numpy()[3, 0, 0, 0] == 3  # of the old daemon's memory
    del kept  # its release belongs to the old session and goes nowhere
    next(iter(loader))


def test_killed_twenty_times(make_loader: Any, start_daemon: Any) -> None:
    daemon = start_daemon(num_samples=400)
    loader = make_loader(daemon, prefetch=2)
    seen = []

    for batch in loader:
        seen += batch.sample_ids.tolist()
        if batch.step % 5 == 2:
            daemon.stop()
            daemon.start()

    assert seen == list(range(400))
    assert 10 <= loader.reconnects <= 20


def test_giving_up_keeps_the_position(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon, prefetch=1, reconnect_timeout=0.2)
    iterator = iter(loader)
    next(iterator)
    daemon.stop()

    with pytest.raises(batchd.ConnectionLost, match=r"reconnect_timeout=0\.2 s.*epoch 0 step"):
        while True:
            next(iterator)

    position = loader.state_dict()["samples"] // 4
    daemon.start()
    assert [batch.step for batch in loader] == list(range(position, 5))


def test_the_time_limit_comes_from_the_environment(
    make_loader: Any, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHD_RECONNECT_TIMEOUT_SECONDS", "0")
    loader = make_loader(daemon, reconnect_timeout=None)
    daemon.stop()
    started = time.monotonic()

    with pytest.raises(batchd.ConnectionLost):
        list(loader)

    assert time.monotonic() - started < 5


@pytest.mark.parametrize("part", ["dataset", "pipeline", "decoder"])
def test_other_data_after_a_restart_are_refused(
    make_loader: Any, daemon: FakeDaemon, part: str
) -> None:
    loader = make_loader(daemon, prefetch=1)
    next(iter(loader))
    daemon.behaviour.fingerprint = {**daemon.behaviour.fingerprint, part: "f" * 32}
    daemon.stop()
    daemon.start()

    with pytest.raises(batchd.StateMismatch, match=part):
        list(loader)


def test_questions_survive_a_restart(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    daemon.stop()
    daemon.start()

    assert loader.name_of(3) == "sample3.jpg"
    assert loader.reconnects == 1


def test_grpc_reconnects_too(make_loader: Any, start_daemon: Any) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed here")
    from grpc_bridge import GrpcBridge

    daemon = start_daemon(die_after=3)
    bridge = GrpcBridge(daemon)
    loader = make_loader(daemon, address=bridge.address, prefetch=2)

    assert addresses(loader) == UNDISTURBED
    assert loader.reconnects == 1
    loader.close()
    bridge.stop()


def test_grpc_socket_beside_the_data_socket(make_loader: Any, daemon: FakeDaemon) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed here")
    from grpc_bridge import GrpcBridge

    bridge = GrpcBridge(daemon, f"unix:{daemon.path}.grpc")
    loaders = [
        make_loader(daemon, transport="grpc"),
        make_loader(daemon, address=f"unix:{daemon.path}.grpc"),
    ]

    for loader in loaders:
        assert loader.transport == "grpc"
        assert next(iter(loader)).sample_ids.tolist() == [0, 1, 2, 3]
        loader.close()
    bridge.stop()


def test_grpc_without_a_daemon_is_unavailable() -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed here")
    import socket

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

        with pytest.raises(batchd.Unavailable, match=f"127.0.0.1:{port}"):
            batchd.Loader(
                "x", {"label": batchd.transforms.Label()}, batch_size=1, address=f"127.0.0.1:{port}"
            )
