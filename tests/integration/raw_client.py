# SPDX-License-Identifier: Apache-2.0
"""The data socket as a peer sees it that is no batchd client: bytes, right and wrong."""

from __future__ import annotations

import json
import socket
import struct

HELLO = struct.Struct("<QHHIQ40x")
MAGIC = int.from_bytes(b"Hbatchd1", "little")
READY, TAKE, RELEASE = 1, 2, 3


def connect(path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(10)
    peer.connect(str(path))
    return peer


def hello() -> bytes:
    return HELLO.pack(MAGIC, 1, 1, 0, 0)


def fragment(message: bytes, last: int = 1, size: int | None = None) -> bytes:
    return struct.pack("<BBHI", ord("J"), last, 0, len(message) if size is None else size) + message


def open_message(root, **more: object) -> dict:
    """An Open as small as can be: labels alone."""
    return {"dataset": {"name": "ImageFolder", "arguments": {"root": str(root)}},
            "pipeline": {"columns": [{"name": "label", "operations": [{"name": "Label"}]}]},
            "sampling": {"globalBatchSize": "8"}, "worldSize": 1, "prefetch": 2, **more}


def say(message: dict) -> bytes:
    return fragment(json.dumps(message).encode())


def answer_to(ready: bytes, kind: int, sequence: int | None = None) -> bytes:
    """The TAKE or RELEASE of a READY; with `sequence`, of one that was never announced."""
    record = bytearray(64)
    record[0] = kind
    record[2:16] = ready[2:16]
    if sequence is not None:
        record[8:16] = struct.pack("<Q", sequence)
    return bytes(record)


def opened(path, root) -> socket.socket:
    """A session whose Open is on its way."""
    peer = connect(path)
    peer.send(hello())
    assert peer.recv(64)[:8] == b"Hbatchd1"
    peer.send(say({"open": open_message(root)}))
    return peer


def next_ready(peer: socket.socket) -> bytes:
    """The record of the next batch; what comes before it is read away."""
    while True:
        datagram = peer.recv(1 << 17)
        assert datagram and b'"error"' not in datagram, datagram
        if datagram[0] == READY:
            return datagram[:64]


def receive_all(peer: socket.socket) -> list[bytes]:
    """Everything up to the end of the connection."""
    received = []
    while True:
        try:
            datagram = peer.recv(1 << 17)
        except ConnectionResetError:
            return received
        if not datagram:
            return received
        received.append(datagram)
