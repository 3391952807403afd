# SPDX-License-Identifier: Apache-2.0
"""Where the daemon is, and which carrier goes there."""

from __future__ import annotations

import os
from typing import NamedTuple

from batchd import private
from batchd.carrier import Carrier

_GRPC_SUFFIX = ".grpc"


class Route(NamedTuple):
    """The way to a daemon."""

    transport: str  # "shm" or "grpc"
    target: str  # a socket's path, or what gRPC calls a target
    secure: bool
    is_private: bool
    why: str  # for people

    def connect(self) -> Carrier:
        """Errors: Unavailable, ProtocolError."""
        if self.is_private:
            private.ensure_daemon(self.socket_path())
        if self.transport == "shm":
            from batchd.carrier_shm import ShmCarrier

            return ShmCarrier(self.target)
        from batchd.carrier_grpc import GrpcCarrier

        return GrpcCarrier(self.target, secure=self.secure)

    def socket_path(self) -> str:
        """Of a local daemon, the data socket's path."""
        return self.target.removeprefix("unix:").removesuffix(_GRPC_SUFFIX)


def choose_route(address: str | None, transport: str | None) -> Route:
    """The route to `address`, else to BATCHD_ADDRESS, else to a private daemon.

    Errors: ValueError if `transport` cannot go there.
    """
    if transport not in (None, "shm", "grpc"):
        raise ValueError(f"transport={transport!r} is unknown; there are 'shm' and 'grpc'")
    address = address or os.environ.get("BATCHD_ADDRESS") or None
    if address is None:
        return _local(private.socket_path(), transport, is_private=True)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:").removeprefix("//")
        return _local(os.path.abspath(path), transport, is_private=False)
    secure = address.startswith("grpcs://")
    target = address.removeprefix("grpcs://")
    _, separator, port = target.rpartition(":")
    if not separator or not port.isdigit():
        raise ValueError(
            f"address={address!r} is none of unix:PATH, HOST:PORT and grpcs://HOST:PORT"
        )
    if transport == "shm":
        raise ValueError(
            f"transport='shm' needs a daemon on this machine at unix:PATH; {address} is reached by "
            "'grpc'"
        )
    why = "as asked" if transport else "the daemon is reached over the network"
    return Route("grpc", target, secure, False, f"{why}; {address}")


def _local(path: str, transport: str | None, *, is_private: bool) -> Route:
    daemon = f"{'private daemon at ' if is_private else ''}unix:{path}"
    if transport == "grpc" or (transport is None and path.endswith(_GRPC_SUFFIX)):
        target = f"unix:{path.removesuffix(_GRPC_SUFFIX)}{_GRPC_SUFFIX}"
        why = "as asked" if transport else "the address is a gRPC socket"
        return Route("grpc", target, False, is_private, f"{why}; {daemon}")
    why = "as asked" if transport else "the daemon is on this machine"
    return Route("shm", path, False, is_private, f"{why}; {daemon}")
