#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon that exists only to be talked to: it speaks proto/shm/wire.h to the letter and fills its
slabs with numbers that tell where they come from. Tests set its faults and wait for its events.

Row of sample i: image = bytes of value i % 256, label = i % 10. The order of an epoch is
(position + epoch) % num_samples, so that epochs differ.

As a program it stands in for the real one: fake_daemon.py serve --private --listen unix:PATH
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# Written out again on purpose: the client's own constants would hide its mistakes.
HELLO = struct.Struct("<QHHIQ40x")
HELLO_MAGIC = int.from_bytes(b"Hbatchd1", "little")
FRAGMENT = struct.Struct("<BBHI")
RECORD = struct.Struct("<BBHIQIIIIQQIIQ")
SLAB_HEADER = struct.Struct("<IHHIIQQIIQQQ")
SLAB_COLUMN = struct.Struct("<QQQQBBHI4IQ")
SLAB_MAGIC = int.from_bytes(b"BLSB", "little")
DTYPES = {
    "DATA_TYPE_UINT8": (1, 1),
    "DATA_TYPE_INT64": (2, 8),
    "DATA_TYPE_FLOAT16": (3, 2),
    "DATA_TYPE_BFLOAT16": (4, 2),
    "DATA_TYPE_FLOAT32": (5, 4),
}
PAGE = mmap.PAGESIZE


def align(value: int, unit: int = 64) -> int:
    return (value + unit - 1) // unit * unit


@dataclass
class Column:
    name: str
    data_type: str
    shape: tuple[int, ...]

    @property
    def row_size(self) -> int:
        size = DTYPES[self.data_type][1]
        for dimension in self.shape:
            size *= dimension
        return size


DEFAULT_COLUMNS = (
    Column("image", "DATA_TYPE_UINT8", (4, 4, 3)),
    Column("label", "DATA_TYPE_INT64", ()),
)


@dataclass
class Behaviour:
    """What the daemon is and does wrong. Tests change it between connections or under `lock`."""

    num_samples: int = 20
    columns: tuple[Column, ...] = DEFAULT_COLUMNS
    classes: tuple[str, ...] = tuple(f"class{i}" for i in range(10))
    fingerprint: dict[str, str] = field(
        default_factory=lambda: {"dataset": "d" * 32, "pipeline": "a" * 32, "decoder": "c" * 32}
    )
    hello_versions: tuple[int, int] = (1, 1)
    hellos_refused: int = 0  # so many clients are sent away after their hello
    open_error: dict[str, Any] | None = None  # an Error instead of Opened
    segments_max: int = 4  # segments of `prefetch` slots that one session may have
    slots_extra: int = 2  # slots of the first segment beyond prefetch
    bad_steps: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    row_status: tuple[int, ...] = ()  # of the rows of every batch, repeated; () for ok
    die_after: int | None = None  # closes the connection after so many batches, once
    drain_after: int | None = None  # says Draining after so many batches, once
    hold_after: int | None = None  # makes no more than so many batches until `go` is set
    fill: bool = True
    class_names_per_answer: int = 4
    fragment_bytes: int = 65536
    wrong_step_at: int | None = None


class Slab:
    """Layout of the slabs of a session."""

    def __init__(self, columns: tuple[Column, ...], rows_max: int) -> None:
        self.columns, self.rows_max = columns, rows_max
        place = SLAB_HEADER.size + SLAB_COLUMN.size * len(columns)
        self.ids = align(place)
        self.status = align(self.ids + 8 * rows_max)
        place = align(self.status + rows_max)
        self.values = []
        for column in columns:
            self.values.append(place)
            place = align(place + column.row_size * rows_max)
        self.used = place
        self.size = align(place, PAGE)

    def write(
        self,
        memory: Any,
        base: int,
        address: tuple[int, int, int, int],
        ordinals: list[int],
        status: list[int],
        fill: bool,
    ) -> int:
        epoch, step, rank, world = address
        valid = sum(1 for value in status if value in (0, 3))
        SLAB_HEADER.pack_into(
            memory,
            base,
            SLAB_MAGIC,
            1,
            len(self.columns),
            len(ordinals),
            valid,
            epoch,
            step,
            rank,
            world,
            self.ids,
            self.status,
            self.used,
        )
        for index, column in enumerate(self.columns):
            shape = (*column.shape, 0, 0, 0, 0)[:4]
            SLAB_COLUMN.pack_into(
                memory,
                base + SLAB_HEADER.size + index * SLAB_COLUMN.size,
                self.values[index],
                len(ordinals) * column.row_size,
                0,
                0,
                DTYPES[column.data_type][0],
                len(column.shape),
                0,
                0,
                *shape,
                0,
            )
        struct.pack_into(f"<{len(ordinals)}q", memory, base + self.ids, *ordinals)
        memory[base + self.status : base + self.status + len(status)] = bytes(status)
        if fill:
            for index, column in enumerate(self.columns):
                for row, ordinal in enumerate(ordinals):
                    start = base + self.values[index] + row * column.row_size
                    memory[start : start + column.row_size] = value_of(column, ordinal)
        return valid


def value_of(column: Column, ordinal: int) -> bytes:
    count = column.row_size // DTYPES[column.data_type][1]
    if column.data_type == "DATA_TYPE_UINT8":
        return bytes([ordinal % 256]) * count
    if column.data_type == "DATA_TYPE_INT64":
        return struct.pack("<q", ordinal % 10) * count
    if column.data_type == "DATA_TYPE_FLOAT32":
        return struct.pack("<f", float(ordinal)) * count
    if column.data_type == "DATA_TYPE_FLOAT16":
        return struct.pack("<e", float(ordinal)) * count
    return struct.pack("<f", float(ordinal))[2:] * count  # bfloat16: the upper half


class Run:
    """Order and cut, as the daemon's sampler has them but for the order."""

    def __init__(self, behaviour: Behaviour, message: dict[str, Any]) -> None:
        sampling = message["sampling"]
        self.n = behaviour.num_samples
        self.g = int(sampling["globalBatchSize"])
        self.shuffle = sampling.get("shuffle", "SHUFFLE_NONE")
        default = "LAST_BATCH_PARTIAL" if self.shuffle == "SHUFFLE_NONE" else "LAST_BATCH_DROP"
        self.last_batch = sampling.get("lastBatch", "LAST_BATCH_UNSPECIFIED")
        if self.last_batch == "LAST_BATCH_UNSPECIFIED":
            self.last_batch = default
        self.rank, self.world = message.get("rank", 0), message.get("worldSize", 1)
        whole = self.n // self.g
        self.steps = whole if self.last_batch == "LAST_BATCH_DROP" else -(-self.n // self.g)
        low, high = self.cut()
        self.rows_max = high - low

    def cut(self) -> tuple[int, int]:
        return self.rank * self.g // self.world, (self.rank + 1) * self.g // self.world

    def rows(self, epoch: int, step: int) -> list[tuple[int, int]]:
        low, high = self.cut()
        rows = []
        for position in range(step * self.g + low, step * self.g + high):
            if position < self.n or self.last_batch == "LAST_BATCH_PAD":
                rows.append(((position + epoch) % self.n, 0 if position < self.n else 1))
        return rows


class FakeDaemon:
    """Listens at `path` until stop(). Every connection has a thread."""

    def __init__(self, path: str, behaviour: Behaviour | None = None) -> None:
        self.path = path
        self.behaviour = behaviour or Behaviour()
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.go = threading.Event()
        self.opens: list[dict[str, Any]] = []
        self.seeks: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.takes: list[tuple[int, bool, int]] = []  # sequence, was_ready, waited_ns
        self.faults: list[str] = []
        self.connections: list[Connection] = []
        self.listener: socket.socket | None = None
        self.start()

    def start(self) -> None:
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(128)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def stop(self) -> None:
        """As kill -9 does: the socket file stays, everything else goes."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in list(self.connections):
            connection.kill()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            connection = Connection(self, peer)
            with self.lock:
                self.connections.append(connection)
            threading.Thread(target=connection.run, daemon=True).start()

    def event(self, name: str) -> None:
        with self.lock:
            self.counts[name] += 1
            self.changed.notify_all()

    def wait_for(self, name: str, count: int = 1, timeout: float = 60.0) -> None:
        with self.lock:
            if not self.changed.wait_for(lambda: self.counts[name] >= count, timeout):
                raise AssertionError(f"{name}: {self.counts[name]} of {count} after {timeout} s")

    def held(self) -> int:
        with self.lock:
            return sum(len(connection.leased) for connection in self.connections)


class Connection:
    """One client."""

    def __init__(self, daemon: FakeDaemon, peer: socket.socket) -> None:
        self.daemon, self.peer = daemon, peer
        self.behaviour = daemon.behaviour
        self.run_of: Run | None = None
        self.memory: list[mmap.mmap] = []
        self.free: list[tuple[int, int]] = []
        self.announced: dict[int, tuple[int, int]] = {}  # sequence → slot, not taken
        self.leased: dict[int, tuple[int, int]] = {}  # sequence → slot, taken
        self.generation = self.sequence = self.made = 0
        self.stopped = False
        self.said_exhausted = False
        self.parts = bytearray()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        try:
            if self._hello():
                while True:
                    datagram = self.peer.recv(70000)
                    if not datagram:
                        break
                    with self.daemon.lock:
                        if not self._on_datagram(datagram):
                            break
                        self._make()
        except OSError:
            pass
        finally:
            self.peer.close()
            with self.daemon.lock:
                self.daemon.connections.remove(self)
                for memory in self.memory:
                    memory.close()
            self.daemon.event("closed")

    def _hello(self) -> bool:
        data = self.peer.recv(100)
        if not data:
            return False
        magic, low, high, _, _ = HELLO.unpack(data)
        if magic != HELLO_MAGIC or not low <= high:
            self.daemon.faults.append(f"hello {data!r}")
        if self.behaviour.hellos_refused > 0:
            self.behaviour.hellos_refused -= 1
            return False
        mine = self.behaviour.hello_versions
        self.peer.send(HELLO.pack(HELLO_MAGIC, *mine, 0, 0))
        return mine[0] == mine[1] and low <= mine[1] <= high

    def say(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        body = json.dumps(message).encode()
        size = self.behaviour.fragment_bytes
        for start in range(0, len(body), size):
            part = body[start : start + size]
            last = start + len(part) == len(body)
            datagram = FRAGMENT.pack(ord("J"), last, 0, len(body)) + part
            if fds and start == 0:
                socket.send_fds(self.peer, [datagram], fds)
            else:
                self.peer.send(datagram)

    def _on_datagram(self, datagram: bytes) -> bool:
        if datagram[0] == ord("J"):
            _, last, _, size = FRAGMENT.unpack_from(datagram)
            self.parts += datagram[8:]
            if not last:
                return True
            body, self.parts = bytes(self.parts), bytearray()
            if len(body) != size:
                self.daemon.faults.append("message size")
            return self._on_message(json.loads(body))
        if len(datagram) % 64 or len(datagram) > 64 * 64:
            self.daemon.faults.append(f"datagram of {len(datagram)} bytes")
        for fields in RECORD.iter_unpack(datagram):
            kind, flags, segment, slot, sequence = fields[:5]
            if kind == 2:
                if self.announced.pop(sequence, None) != (segment, slot):
                    self.daemon.faults.append(f"take of {sequence}")
                self.leased[sequence] = (segment, slot)
                self.daemon.takes.append((sequence, bool(flags & 1), fields[13]))
                self.daemon.event("take")
            elif kind == 3:
                place = self.leased.pop(sequence, None) or self.announced.pop(sequence, None)
                if place != (segment, slot):
                    self.daemon.faults.append(f"release of {sequence}")
                else:
                    self.free.append(place)
                    self.said_exhausted = False
                self.daemon.event("release")
            else:
                self.daemon.faults.append(f"record of kind {kind}")
        return True

    def _on_message(self, message: dict[str, Any]) -> bool:
        ((kind, body),) = message.items()
        if kind == "open":
            return self._open(body)
        if kind == "seek":
            if body["generation"] <= self.generation:
                self.daemon.faults.append("generation does not grow")
            self.daemon.seeks.append(body)
            self.generation = body["generation"]
            self.epoch, self.step = (int(body["position"].get(k, 0)) for k in ("epoch", "step"))
            self.stopped = False
            self.daemon.event("seek")
        elif kind == "query":
            self._answer(body)
        elif kind == "close":
            self.daemon.event("close")
            return False
        else:
            self.daemon.faults.append(f"message {kind}")
        return True

    def _answer(self, query: dict[str, Any]) -> None:
        if "sampleNames" in query:
            names = [f"sample{i}.jpg" for i in query["sampleNames"]["ordinals"]]
        else:
            first = int(query["classNames"].get("first", 0))
            names = list(
                self.behaviour.classes[first : first + self.behaviour.class_names_per_answer]
            )
        self.say({"answer": {"queryId": query["queryId"], "names": names}})

    def _open(self, message: dict[str, Any]) -> bool:
        self.daemon.opens.append(message)
        self.daemon.event("open")
        behaviour = self.behaviour
        error = behaviour.open_error
        for part, value in message.get("expected", {}).items():
            if value and value != behaviour.fingerprint[part] and error is None:
                error = {
                    "code": 9,
                    "field": "",
                    "message": f"expected.{part}: the state has {value}, now it is "
                    f"{behaviour.fingerprint[part]}",
                }
        if error is not None:
            self.say({"error": error})
            return False
        run = self.run_of = Run(behaviour, message)
        self.slab = Slab(behaviour.columns, run.rows_max)
        self.prefetch = message["prefetch"]
        self.epoch, self.step = (int(message["start"].get(k, 0)) for k in ("epoch", "step"))
        self.say(
            {
                "opened": {
                    "sessionId": "7",
                    "fingerprint": behaviour.fingerprint,
                    "numSamples": str(run.n),
                    "numClasses": str(len(behaviour.classes)),
                    "stepsPerEpoch": str(run.steps),
                    "rowsMax": str(run.rows_max),
                    "columns": [
                        {
                            "name": c.name,
                            "dataType": c.data_type,
                            "shape": [str(s) for s in c.shape],
                        }
                        for c in behaviour.columns
                    ],
                    "sampling": {
                        "onBadSample": "ON_BAD_SAMPLE_FAIL",
                        **message["sampling"],
                        "lastBatch": run.last_batch,
                    },
                    "prefetch": self.prefetch,
                    "slabSizeBytes": str(self.slab.size),
                    "sourceName": "fake",
                    "serverVersion": "0.0.0",
                }
            }
        )
        self._add_segment(self.prefetch + behaviour.slots_extra)
        return True

    def _add_segment(self, slots: int) -> None:
        index = len(self.memory)
        fd = os.memfd_create("fake", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, slots * self.slab.size)
        self.memory.append(mmap.mmap(fd, slots * self.slab.size))
        self.free += [(index, slot) for slot in range(slots)]
        message: dict[str, Any] = {"slotCount": slots, "slabSizeBytes": str(self.slab.size)}
        if index:
            message["index"] = index  # proto3 JSON leaves a zero out
        try:
            self.say({"segment": message}, [fd])
        finally:
            os.close(fd)

    def _make(self) -> None:
        """Fills free slots as far as prefetch goes."""
        run, behaviour = self.run_of, self.behaviour
        while run is not None and not self.stopped and len(self.announced) < self.prefetch:
            held = behaviour.hold_after is not None and self.made >= behaviour.hold_after
            if held and not self.daemon.go.is_set():
                return
            if behaviour.die_after is not None and self.made >= behaviour.die_after:
                behaviour.die_after = None
                self.kill()
                return
            if behaviour.drain_after is not None and self.made >= behaviour.drain_after:
                behaviour.drain_after = None
                self.stopped = True
                self.say({"draining": {"deadlineMilliseconds": 1000}})
                return
            if self.step >= run.steps:
                self.epoch, self.step = self.epoch + 1, 0
            if (self.epoch, self.step) in behaviour.bad_steps:
                self._fail(behaviour.bad_steps[self.epoch, self.step])
                return
            if not self.free and len(self.memory) < behaviour.segments_max:
                self._add_segment(self.prefetch)
            if not self.free:
                self._say_exhausted()
                return
            self._announce(run)

    def _announce(self, run: Run) -> None:
        segment, slot = self.free.pop(0)
        rows = run.rows(self.epoch, self.step)
        status = [pad for _, pad in rows]
        if self.behaviour.row_status:
            given = self.behaviour.row_status
            status = [given[i % len(given)] for i in range(len(rows))]
        address = (self.epoch, self.step, run.rank, run.world)
        valid = self.slab.write(
            self.memory[segment],
            slot * self.slab.size,
            address,
            [ordinal for ordinal, _ in rows],
            status,
            self.behaviour.fill,
        )
        self.sequence += 1
        self.announced[self.sequence] = (segment, slot)
        step = self.step
        if self.behaviour.wrong_step_at == self.made:
            step += 1
        self.made += 1
        last = int(self.step + 1 == run.steps)
        self.peer.send(
            RECORD.pack(
                1,
                last,
                segment,
                slot,
                self.sequence,
                self.generation,
                len(rows),
                valid,
                run.rank,
                self.epoch,
                step,
                run.world,
                0,
                0,
            )
        )
        self.step += 1
        self.daemon.event("ready")

    def _fail(self, failure: dict[str, Any]) -> None:
        self.stopped = True
        run = self.run_of
        assert run is not None
        self.say(
            {
                "failure": {
                    "generation": self.generation,
                    "address": {"epoch": str(self.epoch), "step": str(self.step)},
                    "next": {"epoch": str(self.epoch), "step": str(self.step + 1)},
                    **failure,
                }
            }
        )

    def _say_exhausted(self) -> None:
        if self.announced or self.said_exhausted:
            return
        self.said_exhausted = True
        held = len(self.leased)
        self.say(
            {
                "exhausted": {
                    "heldSlots": str(held),
                    "slabSizeBytes": str(self.slab.size),
                    "budgetBytes": str(held * self.slab.size),
                    "usedBytes": str(held * self.slab.size),
                    "message": f"the trainer holds {held} batches of {self.slab.size} bytes",
                }
            }
        )
        self.daemon.event("exhausted")


def main() -> None:
    listen = sys.argv[sys.argv.index("--listen") + 1]
    if os.environ.get("FAKE_DAEMON_FAILS"):
        print("error: no cores left on this machine", file=sys.stderr)
        sys.exit(1)
    counter = os.environ.get("FAKE_DAEMON_STARTS")
    if counter:
        with open(counter, "a") as file:
            file.write(f"{os.getpid()}\n")
    refused = int(os.environ.get("FAKE_DAEMON_REFUSES", "0"))
    FakeDaemon(listen.removeprefix("unix:"), Behaviour(hellos_refused=refused))
    time.sleep(float(os.environ.get("FAKE_DAEMON_SECONDS", "60")))


if __name__ == "__main__":
    main()
