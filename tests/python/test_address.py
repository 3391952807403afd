# SPDX-License-Identifier: Apache-2.0
"""Which way a loader goes to which address."""

from __future__ import annotations

import pytest

from batchd.address import choose_route


@pytest.mark.parametrize(
    ("address", "transport", "expected"),
    [
        ("unix:/run/b/sock", None, ("shm", "/run/b/sock", False)),
        ("unix:///run/b/sock", "shm", ("shm", "/run/b/sock", False)),
        ("unix:/run/b/sock", "grpc", ("grpc", "unix:/run/b/sock.grpc", False)),
        ("unix:/run/b/sock.grpc", None, ("grpc", "unix:/run/b/sock.grpc", False)),
        ("node7:5555", None, ("grpc", "node7:5555", False)),
        ("[::1]:5555", "grpc", ("grpc", "[::1]:5555", False)),
        ("grpcs://node7:443", None, ("grpc", "node7:443", True)),
    ],
)
def test_route(address: str, transport: str | None, expected: tuple[str, str, bool]) -> None:
    route = choose_route(address, transport)

    assert (route.transport, route.target, route.secure) == expected
    assert not route.is_private
    assert ("as asked" in route.why) == (transport is not None)


def test_the_environment_names_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHD_ADDRESS", "node7:5555")

    assert choose_route(None, None).target == "node7:5555"
    assert choose_route("node8:1", None).target == "node8:1"


@pytest.mark.parametrize("runtime", ["/run/user/7", None])
def test_without_an_address_it_is_the_private_daemon(
    monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    import os

    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    base = runtime or f"/tmp/batchd-{os.getuid()}"

    route = choose_route(None, None)

    assert route.is_private
    assert route.target == f"{base}/batchd/1/local/sock"
    assert choose_route(None, "grpc").target == f"unix:{base}/batchd/1/local/sock.grpc"
