# SPDX-License-Identifier: Apache-2.0
"""One session with a daemon: from Open to Close over one connection. It knows nothing of epochs,
iterators or reconnection; the loader does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from batchd.carrier import Carrier
from batchd.errors import (
    CODE_NAMES,
    BatchdError,
    ConnectionLost,
    OpenError,
    ProtocolError,
    SampleError,
    SlotsExhausted,
    StateMismatch,
    Unavailable,
)
from batchd.state import Position, make_state
from batchd.wire import LAST_IN_EPOCH, Record

_EXHAUSTED_SECONDS: Final = 5.0
_FOREVER_SECONDS: Final = 3600.0
_ORDINALS_PER_QUERY_MAX: Final = 4096


class ColumnSpec(NamedTuple):
    """A column of every batch: its name, the type of its values and the shape of one row."""

    name: str
    type_name: str
    shape: tuple[int, ...]


class Opened:
    """The message Opened."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.fingerprint: dict[str, str] = {
            part: message.get("fingerprint", {}).get(part, "")
            for part in ("dataset", "pipeline", "decoder")
        }
        sampling = message.get("sampling", {})
        self.seed = int(sampling.get("seed", 0))
        self.shuffle = _word(sampling, "shuffle", "SHUFFLE_")
        self.global_batch_size = int(sampling.get("globalBatchSize", 0))
        self.last_batch = _word(sampling, "lastBatch", "LAST_BATCH_")
        self.on_bad_sample = _word(sampling, "onBadSample", "ON_BAD_SAMPLE_")
        self.num_samples = int(message.get("numSamples", 0))
        self.num_classes = int(message.get("numClasses", 0))
        self.steps_per_epoch = int(message.get("stepsPerEpoch", 0))
        self.rows_max = int(message.get("rowsMax", 0))
        self.source_name = str(message.get("sourceName", ""))
        self.server_version = str(message.get("serverVersion", ""))
        self.warnings = [str(text) for text in message.get("warnings", ())]
        self.columns = tuple(
            ColumnSpec(
                str(column.get("name", "")),
                _word(column, "dataType", "DATA_TYPE_"),
                tuple(int(size) for size in column.get("shape", ())),
            )
            for column in message.get("columns", ())
        )


def _word(message: dict[str, Any], field: str, prefix: str) -> str:
    return str(message.get(field, "")).removeprefix(prefix).lower()


class Failure(BatchdError):
    """The message Failure, on its way to becoming the user's exception."""

    def __init__(self, message: dict[str, Any]) -> None:
        number = int(message.get("code", 2))
        super().__init__(str(message.get("message", "")), code=CODE_NAMES.get(number, "UNKNOWN"))
        self.generation = int(message.get("generation", 0))
        self.reason = str(message.get("reason", ""))
        self.ordinal = int(message.get("ordinal", 0))
        self.sample_name = str(message.get("sampleName", ""))
        following = message.get("next", {})
        self.next = Position(int(following.get("epoch", 0)), int(following.get("step", 0)))

    def to_user_error(self, run: Mapping[str, Any]) -> BatchdError:
        """`run` is the unchanging part of the run's states."""
        text = str(self)
        if self.code == "DATA_LOSS" or self.reason:
            return SampleError(
                text,
                reason=self.reason,
                ordinal=self.ordinal,
                sample_name=self.sample_name,
                next_state=make_state(run, self.next),
            )
        return (
            Unavailable(text) if self.code == "UNAVAILABLE" else BatchdError(text, code=self.code)
        )


class Session:
    """Belongs to one thread, but for what Carrier allows to others."""

    def __init__(self, carrier: Carrier, open_message: dict[str, Any]) -> None:
        """Opens; takes over the carrier. Errors: OpenError, Unavailable, ProtocolError."""
        self.carrier = carrier
        self._rank = int(open_message["rank"])
        self._world_size = int(open_message["worldSize"])
        self._ready = carrier.ready
        self._messages = carrier.messages
        self._failure: Failure | None = None  # the last of its generation: no batch comes after it
        self._answers: dict[int, list[str]] = {}
        self._query_id = 0
        self._generation = 0
        self._exhausted: dict[str, Any] | None = None
        self._held_then = 0  # leases when the daemon said so
        self._draining = False
        self._opened: Opened | None = None
        start = open_message["start"]
        # The address of the next batch, or None after a failure: then only a seek goes on.
        self.next: Position | None = None
        carrier.send({"open": open_message})
        try:
            while self._opened is None:
                self._receive(_FOREVER_SECONDS)
        except OpenError as error:
            # Nothing else can fail like this that did not fail when the state was made.
            if error.code == "FAILED_PRECONDITION" and any(open_message["expected"].values()):
                raise StateMismatch(str(error), code=error.code, field=error.field) from None
            raise
        self.opened: Opened = self._opened
        first = Position(int(start["epoch"]), int(start["step"]))
        self.next = first.normalized(self.opened.steps_per_epoch)

    def close(self) -> None:
        self.carrier.close()

    def seek(self, position: Position) -> None:
        """Goes on at `position`. What lies ready elsewhere is given back unseen."""
        if position == self.next:
            return
        self._generation += 1
        self.carrier.send(
            {"seek": {"generation": self._generation, "position": position.to_json()}}
        )
        self.next = position
        self._exhausted = None
        while self._ready:
            self.carrier.drop(self._ready.popleft())

    def take_next(self) -> tuple[Record, npt.NDArray[np.uint8]]:
        """The batch at `next` and its memory; waits for it.

        Errors: Failure, after which only a seek goes on; SlotsExhausted; ConnectionLost and
        Unavailable if another connection may have it.
        """
        record = self._pop()
        was_ready, waited_ns = True, 0
        if record is None:
            started = time.monotonic_ns()
            record = self._wait()
            was_ready, waited_ns = False, time.monotonic_ns() - started
        expected = self.next
        if (
            expected is None
            or record.step != expected.step
            or record.epoch != expected.epoch
            or record.rank != self._rank
            or record.world_size != self._world_size
        ):
            raise self._unexpected(record)
        self.next = Position.after(record.epoch, record.step, bool(record.flags & LAST_IN_EPOCH))
        return record, self.carrier.take(record, waited_ns, was_ready)

    def sample_names(self, ordinals: list[int]) -> list[str]:
        names: list[str] = []
        for start in range(0, len(ordinals), _ORDINALS_PER_QUERY_MAX):
            part = [str(ordinal) for ordinal in ordinals[start : start + _ORDINALS_PER_QUERY_MAX]]
            names += self._ask({"sampleNames": {"ordinals": part}})
        return names

    def class_names(self) -> list[str]:
        names: list[str] = []
        while len(names) < self.opened.num_classes:
            some = self._ask({"classNames": {"first": str(len(names))}})
            if not some:
                raise ProtocolError(f"the daemon names only {len(names)} of its classes")
            names += some
        return names

    def _ask(self, query: dict[str, Any]) -> list[str]:
        self._query_id += 1
        self.carrier.send({"query": {"queryId": str(self._query_id), **query}})
        while self._query_id not in self._answers:
            self._receive(_FOREVER_SECONDS)
        return self._answers.pop(self._query_id)

    def _pop(self) -> Record | None:
        """The batch that lies ready, if one does. Errors: Failure if that lies there instead."""
        while True:
            while self._ready:
                record = self._ready.popleft()
                if record.generation == self._generation:
                    return record
                self.carrier.drop(record)
            failure, self._failure = self._failure, None
            if failure is not None and failure.generation == self._generation:
                self.next = None
                raise failure
            came = self.carrier.receive_now()
            if self._messages:
                self._handle_messages()
            if not came:
                return None

    def _wait(self) -> Record:
        if self._draining:
            raise ConnectionLost("the daemon ends")
        since = time.monotonic()
        while True:
            if self._exhausted is not None and self.carrier.leases_out < self._held_then:
                self._exhausted = None  # one has gone back; if that is no help it says so again
            if self._exhausted is None:
                since = time.monotonic()
                self._receive(_FOREVER_SECONDS)
            else:
                left = since + _EXHAUSTED_SECONDS - time.monotonic()
                if left <= 0:
                    raise self._slots_exhausted()
                self._receive(left)
            record = self._pop()
            if record is not None:
                self._exhausted = None
                return record
            if self._draining:
                raise ConnectionLost("the daemon ends")

    def _slots_exhausted(self) -> SlotsExhausted:
        info = self._exhausted or {}
        held = int(info.get("heldSlots", self.carrier.leases_out))
        slab = int(info.get("slabSizeBytes", 0))
        budget = int(info.get("budgetBytes", 0))
        used = int(info.get("usedBytes", 0))
        text = info.get("message") or (
            f"the trainer holds {held} batches of {slab} bytes and {used} of {budget} bytes are in "
            "use"
        )
        return SlotsExhausted(
            f"{text}; none was given back within {_EXHAUSTED_SECONDS:g} s: drop or release() "
            "batches, keep batch.copy() instead, or raise the daemon's --memory",
            held_slots=held,
            slab_size_bytes=slab,
            budget_bytes=budget,
            used_bytes=used,
        )

    def _unexpected(self, record: Record) -> ProtocolError:
        self.carrier.drop(record)
        return ProtocolError(
            f"the daemon has announced epoch {record.epoch} step {record.step} rank "
            f"{record.rank}/{record.world_size} where {self.next} rank "
            f"{self._rank}/{self._world_size} is next"
        )

    def _receive(self, timeout: float) -> None:
        self.carrier.receive(timeout)
        self._handle_messages()

    def _handle_messages(self) -> None:
        while self._messages:
            self._on_message(self._messages.popleft())

    def _on_message(self, message: dict[str, Any]) -> None:
        if "failure" in message:
            self._failure = Failure(message["failure"])
        elif "opened" in message:
            self._opened = Opened(message["opened"])
        elif "answer" in message:
            answer = message["answer"]
            self._answers[int(answer.get("queryId", 0))] = list(answer.get("names", ()))
        elif "exhausted" in message:
            self._exhausted = message["exhausted"]
            # A RELEASE or a TAKE may have been on its way to the daemon when it counted.
            held = int(message["exhausted"].get("heldSlots", 0))
            self._held_then = max(held, self.carrier.leases_out)
        elif "draining" in message:
            self._draining = True
        elif "error" in message:
            raise _to_error(message["error"])
        # Anything else is of a later minor version, made to be ignored.


def _to_error(message: dict[str, Any]) -> BatchdError:
    code = CODE_NAMES.get(int(message.get("code", 2)), "UNKNOWN")
    text, field = str(message.get("message", "")), str(message.get("field", ""))
    if code == "UNAVAILABLE":
        return Unavailable(text)
    return OpenError(text, code=code, field=field)
