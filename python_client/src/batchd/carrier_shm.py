# SPDX-License-Identifier: Apache-2.0
"""Batches through shared memory: the data socket of a daemon on this machine.

The trainer's arrays lie in the daemon's segments; nothing is copied. A slab comes back to the
daemon when its lease ends, which is when the last array on it dies. That may happen anywhere: in
another thread, in a garbage collection in the middle of anything. So a finaliser never sends: it
only puts its record on a list, which next(), release() and close() flush without blocking.
"""

from __future__ import annotations

import array
import mmap
import os
import select
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from batchd import wire
from batchd.errors import BatchdError, ConnectionLost, ProtocolError, Unavailable

_HELLO_TIMEOUT_SECONDS: Final = 30.0
_SOCKET_PATH_BYTES_MAX: Final = 107
# A signal may arrive just before a wait begins; Python then sees it only at the wait's end.
_WAIT_SECONDS_MAX: Final = 1.0
# Without a GIL, an array that dies in another thread is freed only when its creator runs again. The
# creator may be waiting here for just that slab.
_WAIT_SECONDS_MAX_FREE_THREADED: Final = 0.002
_DATAGRAM_BYTES_MAX: Final = wire.FRAGMENT_BYTES_MAX + wire.FRAGMENT.size
_FDS_PER_DATAGRAM_MAX: Final = 16
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(4 * _FDS_PER_DATAGRAM_MAX)
# Plain numbers: the enumerations of the standard library take microseconds to combine.
_RECEIVE_FLAGS: Final = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000))
_SEND_FLAGS: Final = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
_CUT_FLAGS: Final = int(socket.MSG_CTRUNC | socket.MSG_TRUNC)

_DEAD_BYTES_MAX: Final = (wire.RECORDS_PER_DATAGRAM_MAX - 1) * wire.RECORD_BYTES
_new_array: Final = np.ndarray.__new__
_UINT8: Final = np.dtype(np.uint8)

_is_gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)


class _Segment:
    """A mapped segment. It stays mapped while a lease on one of its slabs lives."""

    __slots__ = ("memory", "slab_size_bytes", "slot_count")

    def __init__(self, fd: int, slot_count: int, slab_size_bytes: int) -> None:
        size = slot_count * slab_size_bytes
        actual = os.fstat(fd).st_size
        if size <= 0 or actual < size:
            raise ProtocolError(
                f"a segment of {actual} bytes cannot hold {slot_count} slabs of {slab_size_bytes}"
            )
        # Writable: the trainer owns what it has been given, and only writable memory can be pinned.
        self.memory = mmap.mmap(
            fd,
            size,
            flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
        self.slot_count = slot_count
        self.slab_size_bytes = slab_size_bytes


class Lease(np.ndarray[Any, np.dtype[np.uint8]]):
    """The right to one slab, and the slab's bytes: the arrays on it have it as their base, so the
    last of them ends it. Thread-safe.
    """

    __slots__ = ("_carrier", "_sequence")
    _carrier: ShmCarrier
    _sequence: int

    def release(self) -> None:
        """Gives the slab back now. Does nothing the second time."""
        if self._carrier.give_back(self._sequence):
            self._carrier.flush()

    def __del__(self) -> None:
        try:
            carrier = self._carrier
        except AttributeError:
            return  # a view that NumPy has made of a lease is none
        carrier.give_back(self._sequence)


class ShmCarrier:
    """One connection to a data socket. receive(), take() and send() belong to one thread; leases
    may end in any.

    What has come lies in `ready`, if it is a batch, or in `messages`, if it is a ServerMessage.
    """

    transport: Final = "shm"

    def __init__(self, path: str) -> None:
        """Errors: Unavailable if no daemon is there, ProtocolError if it is not one of ours."""
        self.ready: deque[wire.Record] = deque()
        self.messages: deque[dict[str, Any]] = deque()
        self._pid = os.getpid()
        self._segments: dict[int, _Segment] = {}
        self._fds: deque[int] = deque()
        self._held: dict[int, bytes] = {}  # sequence of each lease → its RELEASE
        self._dead: deque[bytes] = deque()  # RELEASE records that have not been sent
        self._out: deque[bytes] = deque()  # datagrams that the socket would not take yet
        self._send_lock = threading.Lock()
        self._waiting = False
        self._assembler = wire.Assembler()
        self._buffer = bytearray(_DATAGRAM_BYTES_MAX)
        self._view = memoryview(self._buffer)
        self._socket = _connect(path)
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake_fd, select.POLLIN)
        _carriers.add(self)

    @property
    def leases_out(self) -> int:
        return len(self._held)

    def send(self, message: dict[str, Any]) -> None:
        """Sends a ClientMessage. A lost connection shows at the next receive()."""
        parts = list(wire.fragments(message))
        with self._send_lock:
            self._out.extend(parts)
            self._flush_locked()

    def take(self, record: wire.Record, waited_ns: int, was_ready: bool) -> Lease:
        """Makes the batch the trainer's."""
        segment = self._segments.get(record.segment)
        if segment is None or record.slot >= segment.slot_count:
            raise ProtocolError(f"segment {record.segment} has no slot {record.slot}")
        size = segment.slab_size_bytes
        lease = _new_array(Lease, size, _UINT8, segment.memory, record.slot * size)
        lease._carrier = self
        lease._sequence = record.sequence
        self._held[record.sequence] = wire.pack_release(record)
        datagram = wire.pack_take(record, waited_ns, was_ready)
        with self._send_lock:
            if self._dead:
                datagram = self._dead_records() + datagram
            self._out.append(datagram)
            self._flush_locked()
        return lease

    def drop(self, record: wire.Record) -> None:
        """Gives a batch back that nobody has seen."""
        self._dead.append(wire.pack_release(record))

    def give_back(self, sequence: int, _getpid: Callable[[], int] = os.getpid) -> bool:
        """Ends a lease; False if it has ended before. Called by finalisers: never sends."""
        if _getpid() != self._pid:
            return False  # a forked child has the arrays too, but the lease is its parent's
        release = self._held.pop(sequence, None)
        if release is None:
            return False
        self._dead.append(release)
        if self._waiting:
            os.eventfd_write(self._wake_fd, 1)
        return True

    def flush(self) -> None:
        """Sends what the socket takes at once. Any thread."""
        if self._send_lock.acquire(blocking=False):
            try:
                self._flush_locked()
            finally:
                self._send_lock.release()

    def receive(self, timeout: float) -> bool:
        """Takes in what has come next, some batches or one message; waits a while if that is
        nothing, at most `timeout` seconds. False if nothing has come. Errors: ConnectionLost,
        ProtocolError.
        """
        if self.receive_now():
            return True
        limit = _WAIT_SECONDS_MAX
        if self._held and not _is_gil_enabled():
            limit = _WAIT_SECONDS_MAX_FREE_THREADED
        self._waiting = True  # from here on a lease that ends wakes the poll
        try:
            self.flush()
            mask = select.POLLIN | (select.POLLOUT if self._out else 0)
            self._poll.modify(self._socket, mask)
            ready = self._poll.poll(min(timeout, limit) * 1000)
        finally:
            self._waiting = False
        if any(fd == self._wake_fd for fd, _ in ready):
            os.eventfd_read(self._wake_fd)
        self.flush()
        return self.receive_now()

    def close(self) -> None:
        """Ends the session. Arrays stay valid: their segments stay mapped."""
        with self._send_lock:
            if self._socket.fileno() < 0:
                return
            self._out.extend(wire.fragments({"close": {}}))
            self._flush_locked()
            self._close_fds()

    def after_fork(self) -> None:
        """In the child: lets go of the parent's connection, without a word to the daemon."""
        self._send_lock = threading.Lock()
        self._held.clear()
        self._dead.clear()
        self._out.clear()
        self._close_fds()

    def _close_fds(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._waiting = False
        self._socket.close()
        os.close(self._wake_fd)
        while self._fds:
            os.close(self._fds.popleft())

    def _dead_records(self) -> bytes:
        records = b""
        while self._dead and len(records) < _DEAD_BYTES_MAX:
            records += self._dead.popleft()
        return records

    def _flush_locked(self) -> None:
        while self._out or self._dead:
            if self._dead:
                self._out.append(self._dead_records())
            try:
                self._socket.send(self._out[0], _SEND_FLAGS)
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()  # the connection is gone; receive() finds that out
                self._dead.clear()
                return
            self._out.popleft()

    def receive_now(self) -> bool:
        """Like receive(), but never waits."""
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into(
                (self._buffer,), _ANCILLARY_BYTES, _RECEIVE_FLAGS
            )
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConnectionLost(f"the connection to the daemon is lost: {error}") from None
        if size == 0:
            raise ConnectionLost("the daemon has closed the connection")
        if ancillary:
            self._keep_fds(ancillary)
        if flags & _CUT_FLAGS:
            raise _cut_error(flags)
        kind = self._buffer[0]
        if kind == wire.READY and size % wire.RECORD_BYTES == 0:
            self.ready.extend(map(wire.to_record, wire.RECORD.iter_unpack(self._view[:size])))
        elif kind == wire.JSON_BYTE:
            message = self._assembler.add(self._view[:size])
            if message is not None:
                self._on_message(message)
        else:
            raise ProtocolError(f"a datagram of {size} bytes and kind {kind} is unknown")
        return True

    def _keep_fds(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)

    def _on_message(self, message: dict[str, Any]) -> None:
        segment = message.get("segment")
        if segment is None:
            self.messages.append(message)
            return
        if not self._fds:
            raise ProtocolError("a segment has come without its file descriptor")
        fd = self._fds.popleft()
        try:
            self._segments[int(segment.get("index", 0))] = _Segment(
                fd, int(segment.get("slotCount", 0)), int(segment.get("slabSizeBytes", 0))
            )
        finally:
            os.close(fd)


def _cut_error(flags: int) -> BatchdError:
    if flags & socket.MSG_CTRUNC:
        return BatchdError(
            "a segment's file descriptor was lost on the way: this process may open no more files; "
            "raise the limit with `ulimit -n`",
            code="RESOURCE_EXHAUSTED",
        )
    return ProtocolError(f"a datagram is longer than {_DATAGRAM_BYTES_MAX} bytes")


def _connect(path: str) -> socket.socket:
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise ValueError(
            f"the socket path {path!r} has {len(os.fsencode(path))} bytes; "
            f"{_SOCKET_PATH_BYTES_MAX} are the most"
        )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_HELLO_TIMEOUT_SECONDS)
        connection.connect(path)
        connection.send(wire.pack_hello())
        answer = connection.recv(wire.HELLO.size + 1)
        if not answer:
            raise Unavailable(f"the daemon at unix:{path} has closed the connection")
        wire.check_hello(answer)
        connection.setblocking(False)
    except PermissionError as error:
        connection.close()
        raise BatchdError(
            f"unix:{path}: {error.strerror}; run as the daemon's user or ask for access to it",
            code="PERMISSION_DENIED",
        ) from None
    except OSError as error:
        connection.close()
        raise Unavailable(
            f"no daemon answers at unix:{path}: {error.strerror or error}; "
            f"start one with `batchd serve --listen unix:{path}`"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


_carriers: weakref.WeakSet[ShmCarrier] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for carrier in list(_carriers):
        carrier.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
