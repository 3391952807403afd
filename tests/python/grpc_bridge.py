# SPDX-License-Identifier: Apache-2.0
"""A gRPC door in front of a fake daemon: each stream is one connection to its data socket."""

from __future__ import annotations

import mmap
import os
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from fake_daemon import FRAGMENT, HELLO, HELLO_MAGIC, RECORD, SLAB_HEADER, FakeDaemon
from google.protobuf import json_format

from batchd._proto import service_pb2, session_pb2

CHUNK_BYTES = 1 << 20


class GrpcBridge:
    """Serves until stop(); `address` is HOST:PORT."""

    def __init__(self, daemon: FakeDaemon, listen: str = "127.0.0.1:0") -> None:
        self.daemon = daemon
        handler = grpc.method_handlers_generic_handler(
            "batchd.v1.BatchService",
            {
                "Stream": grpc.stream_stream_rpc_method_handler(
                    self._stream,
                    request_deserializer=service_pb2.StreamRequest.FromString,
                    response_serializer=service_pb2.StreamResponse.SerializeToString,
                )
            },
        )
        self.server = grpc.server(futures.ThreadPoolExecutor(16))
        self.server.add_generic_rpc_handlers((handler,))
        port = self.server.add_insecure_port(listen)
        self.address = listen if listen.startswith("unix:") else f"127.0.0.1:{port}"
        self.server.start()

    def stop(self) -> None:
        self.server.stop(0).wait()

    def _stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            peer.connect(self.daemon.path)
        except OSError:
            peer.close()
            context.abort(grpc.StatusCode.UNAVAILABLE, "no daemon behind the bridge")
        context.add_callback(lambda: peer.fileno() >= 0 and peer.shutdown(socket.SHUT_RDWR))
        peer.send(HELLO.pack(HELLO_MAGIC, 1, 1, 0, 0))
        peer.recv(100)
        threading.Thread(target=self._forward, args=(requests, peer), daemon=True).start()
        with peer:
            yield from self._responses(peer)

    def _forward(self, requests: Iterator[Any], peer: socket.socket) -> None:
        try:
            for request in requests:
                message = request.message
                kind = message.WhichOneof("message")
                if kind in ("take", "release"):
                    body = getattr(message, kind)
                    waited = body.waited_nanoseconds if kind == "take" else 0
                    flags = int(body.was_ready) if kind == "take" else 0
                    peer.send(
                        RECORD.pack(
                            2 if kind == "take" else 3,
                            flags,
                            body.segment,
                            body.slot,
                            body.sequence,
                            *[0] * 8,
                            waited,
                        )
                    )
                else:
                    text = json_format.MessageToJson(
                        message, **{DEFAULTS: True} if kind == "open" else {}
                    ).encode()
                    peer.send(FRAGMENT.pack(ord("J"), 1, 0, len(text)) + text)
        except (grpc.RpcError, OSError):
            pass

    def _responses(self, peer: socket.socket) -> Iterator[Any]:
        segments: dict[int, mmap.mmap] = {}
        sizes: dict[int, int] = {}
        text = b""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(peer, 70000, 4)
            except OSError:
                return
            if not data:
                return
            if data[0] == ord("J"):
                text += data[8:]
                if not data[1]:
                    continue
                message = session_pb2.ServerMessage()
                json_format.Parse(text, message)
                text = b""
                if message.WhichOneof("message") == "segment":
                    segment = message.segment
                    size = segment.slot_count * segment.slab_size_bytes
                    segments[segment.index] = mmap.mmap(fds[0], size, prot=mmap.PROT_READ)
                    sizes[segment.index] = segment.slab_size_bytes
                    os.close(fds[0])
                else:
                    yield service_pb2.StreamResponse(message=message)
                continue
            for fields in RECORD.iter_unpack(data):
                index, slot = fields[2], fields[3]
                base = slot * sizes[index]
                used = SLAB_HEADER.unpack_from(segments[index], base)[11]
                yield from ready_and_chunks(fields, segments[index][base : base + used])


# The flag's name has changed between protobuf 4 and 5.
DEFAULTS = (
    "always_print_fields_with_no_presence"
    if "always_print_fields_with_no_presence" in json_format.MessageToJson.__code__.co_varnames
    else "including_default_value_fields"
)


def ready_and_chunks(fields: tuple[int, ...], image: bytes) -> Iterator[Any]:
    _, flags, segment, slot, sequence, generation, rows, valid, rank, epoch, step, world, _, _ = (
        fields
    )
    response = service_pb2.StreamResponse()
    ready = response.message.ready
    ready.segment, ready.slot, ready.sequence, ready.generation = (
        segment,
        slot,
        sequence,
        generation,
    )
    ready.rows, ready.valid_rows, ready.last_in_epoch = rows, valid, bool(flags & 1)
    ready.address.epoch, ready.address.step = epoch, step
    ready.address.rank, ready.address.world_size = rank, world
    ready.size_bytes = len(image)
    yield response
    for start in range(0, len(image), CHUNK_BYTES):
        response = service_pb2.StreamResponse()
        chunk = response.message.chunk
        chunk.sequence, chunk.offset_bytes = sequence, start
        chunk.data = image[start : start + CHUNK_BYTES]
        yield response
