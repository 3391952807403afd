# SPDX-License-Identifier: Apache-2.0
"""What travels on the data socket, byte for byte: proto/shm/wire.h and proto/shm/slab.h."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from batchd.errors import ProtocolError

PROTOCOL_VERSION: Final = 1
PROTOCOL_VERSION_MIN: Final = 1
HELLO_MAGIC: Final = 0x3164686374616248  # "Hbatchd1" in memory order
FRAGMENT_BYTES_MAX: Final = 64 * 1024
MESSAGE_BYTES_MAX: Final = 1024 * 1024
RECORDS_PER_DATAGRAM_MAX: Final = 64
RECORD_BYTES: Final = 64

HELLO: Final = struct.Struct("<QHHIQ40x")
FRAGMENT: Final = struct.Struct("<BBHI")
RECORD: Final = struct.Struct("<BBHIQIIIIQQIIQ")
# A record of the client: what it does not use of RECORD is 0.
CLIENT_RECORD: Final = struct.Struct("<BBHIQ40xQ")

HELLO_BYTE: Final = ord("H")
JSON_BYTE: Final = ord("J")
READY: Final = 1
TAKE: Final = 2
RELEASE: Final = 3
LAST_IN_EPOCH: Final = 1  # flag of READY
WAS_READY: Final = 1  # flag of TAKE

SLAB_MAGIC: Final = 0x42534C42  # "BLSB" in memory order
SLAB_VERSION: Final = 1
SLAB_HEADER: Final = struct.Struct("<IHHIIQQIIQQQ")
SLAB_COLUMN: Final = struct.Struct("<QQQQBBHIIIIIQ")


class Record(NamedTuple):
    """A wire::Record; over gRPC it is made from the message Ready."""

    kind: int
    flags: int
    segment: int
    slot: int
    sequence: int
    generation: int
    rows: int
    valid_rows: int
    rank: int
    epoch: int
    step: int
    world_size: int
    reserved0: int
    waited_ns: int


# Of the fields that RECORD unpacks. Record._make() would count them again.
to_record: Final = functools.partial(tuple.__new__, Record)


def pack_take(record: Record, waited_ns: int, was_ready: bool) -> bytes:
    flags = WAS_READY if was_ready else 0
    return CLIENT_RECORD.pack(TAKE, flags, record.segment, record.slot, record.sequence, waited_ns)


def pack_release(record: Record) -> bytes:
    return CLIENT_RECORD.pack(RELEASE, 0, record.segment, record.slot, record.sequence, 0)


def pack_hello(low: int = PROTOCOL_VERSION_MIN, high: int = PROTOCOL_VERSION) -> bytes:
    return HELLO.pack(HELLO_MAGIC, low, high, 0, 0)


def check_hello(data: bytes) -> int:
    """The version that the daemon has chosen. Errors: ProtocolError if there is none in common."""
    if len(data) != HELLO.size:
        raise ProtocolError(f"the peer's first datagram has {len(data)} bytes; a hello has 64")
    magic, low, high, _, _ = HELLO.unpack(data)
    if magic != HELLO_MAGIC:
        raise ProtocolError("the peer is no batchd daemon: its hello has another magic number")
    if low == high and PROTOCOL_VERSION_MIN <= high <= PROTOCOL_VERSION:
        return int(high)
    raise ProtocolError(
        f"the daemon speaks protocol versions {low} to {high}, this client "
        f"{PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}; install the client of the daemon's release",
        code="UNIMPLEMENTED",
    )


def fragments(message: dict[str, Any]) -> Iterator[bytes]:
    """The datagrams of a message in proto3 JSON. Errors: ProtocolError if it is too long."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MESSAGE_BYTES_MAX:
        raise ProtocolError(
            f"a message of {len(body)} bytes is above the limit of {MESSAGE_BYTES_MAX}; "
            "ask for less at once"
        )
    for start in range(0, len(body), FRAGMENT_BYTES_MAX):
        part = body[start : start + FRAGMENT_BYTES_MAX]
        last = start + len(part) == len(body)
        yield FRAGMENT.pack(JSON_BYTE, last, 0, len(body)) + part


class Assembler:
    """Puts the fragments of JSON messages together again."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def add(self, datagram: memoryview) -> dict[str, Any] | None:
        """The message that this fragment completes, or None. Errors: ProtocolError."""
        if len(datagram) < FRAGMENT.size:
            raise ProtocolError(f"a fragment of {len(datagram)} bytes has no header")
        _, last, _, size = FRAGMENT.unpack_from(datagram)
        self._parts += datagram[FRAGMENT.size :]
        if size > MESSAGE_BYTES_MAX or len(self._parts) > size:
            raise ProtocolError(
                f"a message of {size} bytes is too long: {len(self._parts)} have come, and "
                f"{MESSAGE_BYTES_MAX} are the limit"
            )
        if not last:
            return None
        body, self._parts = self._parts, bytearray()
        if len(body) != size:
            raise ProtocolError(f"a message of {size} bytes has ended after {len(body)}")
        try:
            message = json.loads(body)
        except ValueError as error:
            raise ProtocolError(f"a message is not JSON: {error}") from None
        if not isinstance(message, dict):
            raise ProtocolError("a message is no JSON object")
        return message
