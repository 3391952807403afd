# SPDX-License-Identifier: Apache-2.0
"""The loader: a run through a dataset, epoch by epoch. It owns its position."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

from batchd import request
from batchd._version import __version__
from batchd.address import Route, choose_route
from batchd.batch import Batch, Run, no_device
from batchd.errors import (
    BatchdError,
    ConnectionLost,
    ForkError,
    OpenError,
    ProtocolError,
    StateMismatch,
    Unavailable,
)
from batchd.iterators import BatchIterator, EpochIterator, StepsIterator
from batchd.operation import Operation
from batchd.session import ColumnSpec, Failure, Opened, Session
from batchd.state import Position, check_state, log_changes, make_state

_log = logging.getLogger("batchd")

_BACK_OFF_SECONDS_MIN: Final = 0.1
_BACK_OFF_SECONDS_MAX: Final = 5.0
_PREFETCH_MAX: Final = 256
_EPOCH_MAX: Final = 2**32 - 1

_Result = TypeVar("_Result")
_Iterator = TypeVar("_Iterator", bound=BatchIterator)


class Loader:
    """Iterates over a dataset in batches that a batchd daemon makes.

    Args:
        dataset: what the samples are, for example batchd.ImageFolder(PATH); or the name of a
            dataset in a shared daemon's configuration.
        columns: what is made of each sample: column name → operation or list of operations.
        batch_size: rows per rank; the global batch is batch_size times world_size.
        global_batch_size: rows of one step over all ranks. Give one of the two.
        shuffle: True, False, or "torch" for the order of torch's DistributedSampler.
        seed: key of all randomness: order, augmentation, substitutes.
        last_batch: "drop", "pad" or "partial"; by default "drop" when shuffled, else "partial".
        on_bad_sample: "fail", "skip" or "substitute".
        max_bad_samples: the most bad rows of an epoch, an int for a count or a float for a share.
        prefetch: how many batches are made ahead.
        name: the job's name in logs and metrics.
        rank, world_size: this process's part; from RANK and WORLD_SIZE where not given.
        device: where batches are wanted; only None and "cpu" so far.
        transport: "shm" or "grpc"; by default the best that the address allows.
        address: unix:PATH, HOST:PORT or grpcs://HOST:PORT; from BATCHD_ADDRESS where not given,
            else a private daemon is started.
        reconnect_timeout: seconds to look for a daemon that has gone, before giving up; from
            BATCHD_RECONNECT_TIMEOUT_SECONDS where not given, else 300.

    Errors: OpenError, StateMismatch, Unavailable, ProtocolError; ValueError and TypeError for
    arguments that cannot be sent. A loader belongs to one thread and to the process that made it;
    batches may be released anywhere.
    """

    def __init__(
        self,
        dataset: Operation | str,
        columns: Mapping[str, request.ColumnOperations],
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        last_batch: str | None = None,
        on_bad_sample: str = "fail",
        max_bad_samples: int | float | None = None,
        prefetch: int = 4,
        name: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        device: Any = None,
        transport: str | None = None,
        address: str | None = None,
        reconnect_timeout: float | None = None,
    ) -> None:
        self._session: Session | None = None
        self._closed = False
        self._pid = os.getpid()
        if device is not None and str(device) != "cpu":
            raise no_device(device)
        request.check_choice("last_batch", last_batch, request.LAST_BATCHES)
        request.check_choice("on_bad_sample", on_bad_sample, request.POLICIES)
        self._rank, self._world_size = request.rank_and_world(rank, world_size)
        if (batch_size is None) == (global_batch_size is None):
            raise ValueError(
                f"batch_size={batch_size!r} and global_batch_size={global_batch_size!r}; "
                "give exactly one"
            )
        self._explicit_global_batch_size = global_batch_size
        if batch_size is not None:
            rows = request.check_int("batch_size", batch_size, 1, 2**24)
            global_batch_size = rows * self._world_size
        self._sampling: dict[str, Any] = {
            "seed": request.check_int("seed", seed, 0, 2**64 - 1),
            "shuffle": request.shuffle_word(shuffle),
            "global_batch_size": request.check_int(
                "global_batch_size", global_batch_size, 1, 2**24
            ),
            "last_batch": last_batch,
            "on_bad_sample": on_bad_sample,
        }
        request.bad_samples_to_json(max_bad_samples)
        self._max_bad_samples = max_bad_samples
        self._dataset = dataset
        self._prefetch = request.check_int("prefetch", prefetch, 1, _PREFETCH_MAX)
        self._reconnect_timeout = request.reconnect_seconds(reconnect_timeout)
        self._route: Route = choose_route(address, transport)
        self._request = {
            "dataset": request.dataset_to_json(dataset),
            "pipeline": request.pipeline_to_json(columns),
            "rank": self._rank,
            "worldSize": self._world_size,
            "transport": request.TRANSPORTS[self._route.transport],
            "job": "" if name is None else str(name),
            "clientVersion": f"batchd-python {__version__}",
        }
        self._reconnects = 0
        self._classes: list[str] | None = None

        self._epoch = 0
        self._position = Position(0, 0)  # after the last batch that was returned
        self._resume: Position | None = None  # where the next iterator starts, if not at an epoch
        self._live = 0  # token of the live iterator; 0: there is none
        self._use(self._open_first(self._position, {}))
        _open_loaders.add(self)
        for warning in self._opened.warnings:
            _log.warning("%s", warning)

    # What the data are.

    @property
    def num_samples(self) -> int:
        return self._opened.num_samples

    @property
    def columns(self) -> dict[str, ColumnSpec]:
        """Type and shape of a row, for each column."""
        return {column.name: column for column in self._opened.columns}

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        if self._classes is None:
            self._classes = self._with_session(lambda session: session.class_names())
        return list(self._classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.classes)}

    @overload
    def name_of(self, ids: int) -> str: ...
    @overload
    def name_of(self, ids: Sequence[int]) -> list[str]: ...
    def name_of(self, ids: Any) -> Any:
        """The name of the sample with this ordinal, or of each: name_of(batch.sample_ids)."""
        is_one = not hasattr(ids, "__iter__")
        ordinals = [int(item) for item in ([ids] if is_one else ids)]
        names = self._with_session(lambda session: session.sample_names(ordinals))
        return names[0] if is_one else names

    # Iterating.

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self._opened.steps_per_epoch

    @property
    def epoch(self) -> int:
        """The epoch that is being iterated, else that which the next iterator takes."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iterator takes this epoch: at its beginning, or at the loaded position if that
        is in it. What is being iterated now goes on.
        """
        self._epoch = request.check_int("epoch", epoch, 0, _EPOCH_MAX)
        if self._resume is not None and self._resume.epoch != self._epoch:
            self._resume = None
        if not self._live and self._position.epoch != self._epoch:
            self._position = Position(self._epoch, 0)

    def __iter__(self) -> EpochIterator:
        """The batches of `epoch`, from its beginning or from the loaded position. An iterator that
        is exhausted or abandoned after a batch raises `epoch` by one.
        """
        start = self._begin()
        return self._enter(EpochIterator(self, start.epoch))

    def steps(self, count: int) -> StepsIterator:
        """`count` batches from where the run stands, across epochs. What follows goes on there."""
        request.check_int("count", count, 0, 2**63 - 1)
        self._begin()
        return self._enter(StepsIterator(self, count))

    def peek(self, n: int = 1) -> list[Batch]:
        """Copies of the next `n` batches, by a session of its own: moves nothing."""
        self._check_usable()
        count = request.check_int("n", n, 1, _PREFETCH_MAX)
        start = self._position if self._live else self._start()
        session = self._connect(start, self._opened.fingerprint, min(count, self._prefetch))
        try:
            run = Run(self._opened.columns, self._run)
            batches = []
            for _ in range(count):
                record, memory = session.take_next()
                batch = Batch(record, memory, run)
                batches.append(batch.copy())
                batch.release()
            return batches
        except Failure as failure:
            raise failure.to_user_error(self._run) from None
        finally:
            session.close()

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The state after the last batch that was returned; the same on every rank."""
        return make_state(self._run, self._position)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Goes on from `state`, whose seed, shuffle, global batch and policies win.

        Errors: StateMismatch if it is of other data or of another pipeline; strict=False accepts
        another pipeline and keeps the order. After an error the loader is as it was.
        """
        self._check_usable()
        position = check_state(state)
        size = state["global_batch_size"]
        if self._explicit_global_batch_size not in (None, size):
            raise StateMismatch(
                f"global_batch_size={self._explicit_global_batch_size} contradicts the state's "
                f"{size}; leave it out, or start a new run",
                field="global_batch_size",
            )
        sampling = {name: state[name] for name in self._sampling}
        expected = {name: str(state[name]) for name in ("dataset", "pipeline", "decoder")}
        if not strict:
            expected = {"dataset": expected["dataset"]}
        now = {name: self._run[name] for name in (*sampling, *expected)}
        if now != {**sampling, **expected}:
            before, self._sampling = self._sampling, sampling
            try:
                session = self._open_first(position, expected)
            except BaseException as error:
                self._sampling = before
                # The rest of the request has been accepted before.
                if isinstance(error, OpenError) and error.code == "INVALID_ARGUMENT":
                    raise StateMismatch(str(error), code=error.code, field=error.field) from None
                raise
            self._close_session()
            self._use(session)
            log_changes(now, self._run)
            _log.info(
                "loaded state: rank %d of %d has at most %d rows a batch",
                self._rank,
                self._world_size,
                self._opened.rows_max,
            )
        position = position.normalized(self._opened.steps_per_epoch)
        self._live = 0  # an iterator that is still there has lost its place
        self._epoch = position.epoch
        self._position = self._resume = position

    # Ends.

    def close(self) -> None:
        """Ends the session. Batches and arrays that are still there stay valid."""
        self._closed = True
        self._live = 0
        if self._pid == os.getpid():
            self._close_session()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None:
            self.close()

    @property
    def reconnects(self) -> int:
        """How often the loader has gone to a daemon anew, because the one before was gone."""
        return self._reconnects

    @property
    def transport(self) -> str:
        """How batches come: "shm" or "grpc"."""
        return self._route.transport

    def __repr__(self) -> str:
        size = self._run["global_batch_size"]
        return (
            f"Loader({self._dataset!r}, source={self._opened.source_name!r}, "
            f"samples={self.num_samples}, global_batch_size={size}, rank={self._rank}, "
            f"world_size={self._world_size}, epoch={self._epoch}, "
            f"transport={self._route.transport} ({self._route.why}))"
        )

    # For the iterators.

    @property
    def position(self) -> Position:
        return self._position

    def is_live(self, token: int) -> bool:
        return self._live == token

    def next_batch(self, across_epochs: bool) -> Batch:
        """The batch at the position. `across_epochs`: the run goes on, perhaps into another epoch,
        and `epoch` with it.
        """
        try:
            batch = self._with_session(self._take)
        except Failure as failure:
            raise failure.to_user_error(self._run) from None
        self._resume = None
        if across_epochs:
            self._epoch = self._position.epoch
        return batch

    def end_epoch(self, epoch: int) -> None:
        """An iterator over `epoch` is done."""
        self._live = 0
        self._flush()
        self._resume = None
        if self._epoch == epoch:
            self._epoch += 1

    def end_here(self) -> None:
        """An iterator is done; the next goes on at the position, unless it was sent elsewhere."""
        self._live = 0
        self._flush()
        if self._epoch == self._position.epoch:
            self._resume = self._position

    # Inside.

    def _take(self, session: Session) -> Batch:
        if session.next != self._position:
            session.seek(self._position)
        record, memory = session.take_next()
        self._position = session.next or self._position  # take_next() has moved it
        return Batch(record, memory, self._batch_run)

    def _start(self) -> Position:
        return self._resume or Position(self._epoch, 0)

    def _begin(self) -> Position:
        """Moves to where the next iterator starts. Errors: BatchdError if there is a live one."""
        self._check_usable()
        if self._live:
            gc.collect()  # it may be garbage in a cycle
        if self._live:
            raise BatchdError(
                "this loader has another live iterator; let it end, close() it, or make a second "
                "Loader"
            )
        self._position = self._start()
        return self._position

    def _enter(self, iterator: _Iterator) -> _Iterator:
        self._live = iterator.token
        return iterator

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise ForkError(
                "this loader was made before a fork and cannot be used in the child; make a new "
                "Loader there"
            )
        if self._closed:
            raise BatchdError("this loader is closed; make a new one")

    def _connect(self, start: Position, expected: Mapping[str, str], prefetch: int) -> Session:
        message = {
            **self._request,
            "sampling": request.sampling_to_json(self._sampling, self._max_bad_samples),
            "start": start.to_json(),
            "prefetch": prefetch,
            "expected": dict(expected),
        }
        carrier = self._route.connect()
        try:
            return Session(carrier, message)
        except BaseException:
            carrier.close()
            raise

    def _open_first(self, start: Position, expected: Mapping[str, str]) -> Session:
        """A session that the user has asked for: what is wrong is said at once. Only a private
        daemon that was just about to end is given another chance.
        """
        try:
            return self._connect(start, expected, self._prefetch)
        except Unavailable:
            if not self._route.is_private:
                raise
            return self._connect(start, expected, self._prefetch)

    def _use(self, session: Session) -> None:
        self._session = session
        self._opened: Opened = session.opened
        opened = session.opened
        self._run: dict[str, Any] = {
            "seed": opened.seed,
            "global_batch_size": opened.global_batch_size,
            "shuffle": opened.shuffle,
            "last_batch": opened.last_batch,
            "on_bad_sample": opened.on_bad_sample,
            **opened.fingerprint,
        }
        self._batch_run = Run(opened.columns, self._run)

    def _flush(self) -> None:
        if self._session is not None and self._pid == os.getpid():
            self._session.carrier.flush()

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _with_session(self, call: Callable[[Session], _Result]) -> _Result:
        """`call` with the session, again with a new one if the connection is lost meanwhile."""
        self._check_usable()
        while True:
            session = self._session or self._reconnect()
            try:
                return call(session)
            except Failure:
                raise
            except Unavailable as error:
                self._close_session()
                _log.warning("connection lost, looking for the daemon: %s", error)
                self._reconnect()
                self._reconnects += 1
            except (OpenError, ProtocolError):
                self._close_session()  # it goes no further; the next call opens another
                raise
            except Exception:
                raise
            except BaseException:
                self._close_session()  # interrupted anywhere: what it holds is not known
                raise

    def _reconnect(self) -> Session:
        """A new session at the same place of the same run."""
        deadline = time.monotonic() + self._reconnect_timeout
        delay = _BACK_OFF_SECONDS_MIN
        while True:
            try:
                session = self._connect(self._position, self._opened.fingerprint, self._prefetch)
                break
            except BatchdError as error:
                if error.code not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"):
                    raise
                if time.monotonic() + delay > deadline:
                    raise ConnectionLost(
                        f"no daemon within reconnect_timeout={self._reconnect_timeout:g} s; the "
                        f"loader stays at {self._position} and goes on when one is there: {error}"
                    ) from error
            time.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, _BACK_OFF_SECONDS_MAX)
        self._use(session)
        _log.info("session opened again at %s", self._position)
        return session


_open_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


def _close_all() -> None:
    """Before the interpreter takes itself apart: a session needs it whole to end."""
    for loader in list(_open_loaders):
        loader.close()


atexit.register(_close_all)
