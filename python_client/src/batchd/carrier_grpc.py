# SPDX-License-Identifier: Apache-2.0
"""Batches over gRPC, from a daemon anywhere. Needs the extra: pip install "batchd[grpc]".

Copy 1 of 1: the chunks of a batch are put together in memory of this process. The slot is given
back as soon as next() has returned the batch, so leases cost the daemon nothing.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchd import wire
from batchd.errors import (
    CODE_NAMES,
    BatchdError,
    ConnectionLost,
    OpenError,
    ProtocolError,
    Unavailable,
)

_METHOD: Final = "/batchd.v1.BatchService/Stream"
_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024  # a chunk has 1 MiB at most, an answer a few
_WAIT_SECONDS_MAX: Final = 1.0
_CLOSE_SECONDS: Final = 1.0
# Servers take one ping in five minutes amiss if it comes earlier; a peer that is gone without a
# word is found out this way.
_KEEPALIVE_MILLISECONDS: Final = 310_000


class GrpcCarrier:
    """One Stream of a daemon's gRPC door; the same contract as ShmCarrier.

    A thread of its own reads the stream, as gRPC's Python API has no wait with a time limit. How
    much it reads ahead is bounded by the session's prefetch.
    """

    transport: Final = "grpc"

    def __init__(self, target: str, *, secure: bool = False) -> None:
        try:
            import grpc
            from google.protobuf import json_format

            from batchd._proto import service_pb2, session_pb2
        except ImportError as error:
            raise ImportError(
                f'reading over gRPC needs grpcio and protobuf ({error}): pip install "batchd[grpc]"'
            ) from error
        self._grpc = grpc
        self._json_format = json_format
        self._proto = session_pb2
        self._request_type = service_pb2.StreamRequest
        self._target = target
        options = (
            ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MILLISECONDS),
            # A restarted daemon should be found at once: the client backs off by itself.
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.use_local_subchannel_pool", 1),
        )
        self._channel = (
            grpc.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
            if secure
            else grpc.insecure_channel(target, options=options)
        )
        self.ready: deque[wire.Record] = deque()
        self.messages: deque[dict[str, Any]] = deque()
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}
        call = self._channel.stream_stream(
            _METHOD,
            request_serializer=service_pb2.StreamRequest.SerializeToString,
            response_deserializer=service_pb2.StreamResponse.FromString,
        )
        self._responses: Any = call(iter(self._requests.get, None))
        self._reader = threading.Thread(
            target=self._read, args=(self._responses,), name="batchd-grpc", daemon=True
        )
        self._reader.start()

    @property
    def leases_out(self) -> int:
        return 0

    def send(self, message: dict[str, Any]) -> None:
        request = self._request_type()
        self._json_format.ParseDict(message, request.message)
        self._requests.put(request)

    def take(self, record: wire.Record, waited_ns: int, was_ready: bool) -> npt.NDArray[np.uint8]:
        memory = self._memory.pop(record.sequence)
        request = self._request_type()
        take = request.message.take
        take.segment, take.slot, take.sequence = record.segment, record.slot, record.sequence
        take.waited_nanoseconds, take.was_ready = waited_ns, was_ready
        self._requests.put(request)
        self._release(record)
        return memory

    def drop(self, record: wire.Record) -> None:
        self._memory.pop(record.sequence, None)
        self._release(record)

    def flush(self) -> None:
        pass

    def receive_now(self) -> bool:
        return self.receive(0)

    def receive(self, timeout: float) -> bool:
        try:
            item = self._arrived.get(timeout > 0, min(timeout, _WAIT_SECONDS_MAX))
        except queue.Empty:
            return False
        if isinstance(item, BaseException):
            self._arrived.put(item)  # whoever asks again gets the same answer
            raise item
        if isinstance(item, tuple):
            record, memory = item
            self._memory[record.sequence] = memory
            self.ready.append(record)
        else:
            self.messages.append(item)
        return True

    def close(self) -> None:
        request = self._request_type()
        request.message.close.SetInParent()
        self._requests.put(request)
        self._requests.put(None)
        # The daemon answers a Close by ending the stream; one that does not is cut off.
        self._reader.join(_CLOSE_SECONDS)
        self._responses.cancel()
        self._channel.close()

    def _release(self, record: wire.Record) -> None:
        request = self._request_type()
        release = request.message.release
        release.segment, release.slot, release.sequence = (
            record.segment,
            record.slot,
            record.sequence,
        )
        self._requests.put(request)

    def _read(self, responses: Iterator[Any]) -> None:
        try:
            self._read_stream(responses)
            self._arrived.put(ConnectionLost(f"the daemon at {self._target} has ended the stream"))
        except self._grpc.RpcError as error:
            self._arrived.put(self._to_error(error))
        except Exception as error:
            self._arrived.put(error)

    def _read_stream(self, responses: Iterator[Any]) -> None:
        record: wire.Record | None = None
        memory: Any = None
        filled = 0
        for response in responses:
            message = response.message
            kind = message.WhichOneof("message")
            if kind == "ready":
                record, filled = _to_record(message.ready), 0
                memory = np.empty(message.ready.size_bytes, np.uint8)
            elif kind == "chunk":
                chunk = message.chunk
                end = chunk.offset_bytes + len(chunk.data)
                if record is None or chunk.sequence != record.sequence or end > memory.size:
                    raise ProtocolError(f"a chunk of batch {chunk.sequence} fits no batch")
                memory[chunk.offset_bytes : end] = np.frombuffer(chunk.data, np.uint8)
                filled += len(chunk.data)
            elif kind is not None:
                self._arrived.put(self._json_format.MessageToDict(message))
            if record is not None and filled == memory.size:
                self._arrived.put((record, memory))
                record = memory = None

    def _to_error(self, error: Any) -> BatchdError:
        code, details = error.code(), error.details()
        name = code.name if code is not None else CODE_NAMES[2]
        text = f"the daemon at {self._target}: {details}"
        if name in ("UNAVAILABLE", "CANCELLED"):
            return Unavailable(text)
        if name == "UNIMPLEMENTED":
            return ProtocolError(f"{text}; is another service at this address?", code=name)
        return OpenError(text, code=name)


def _to_record(ready: Any) -> wire.Record:
    address = ready.address
    return wire.Record(
        wire.READY,
        wire.LAST_IN_EPOCH if ready.last_in_epoch else 0,
        ready.segment,
        ready.slot,
        ready.sequence,
        ready.generation,
        ready.rows,
        ready.valid_rows,
        address.rank,
        address.epoch,
        address.step,
        address.world_size,
        0,
        0,
    )
