# SPDX-License-Identifier: Apache-2.0
"""A batch and its columns, as views of the memory that the daemon has filled."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from batchd import wire
from batchd.errors import BatchdError, ProtocolError
from batchd.state import Position, make_state

if TYPE_CHECKING:
    from batchd.session import ColumnSpec

Array = npt.NDArray[Any]
Slab = Any  # npt.NDArray[np.uint8]; but to NumPy 1's type stubs an array is no buffer

_BFLOAT16: Final = 4
_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int64),
    3: np.dtype(np.float16),
    _BFLOAT16: np.dtype(np.uint16),  # NumPy has no bfloat16: its bits
    5: np.dtype(np.float32),
}


class RowStatus(enum.IntEnum):
    """What a row of a batch is."""

    OK = 0
    PAD = 1  # repeats a sample to fill the last batch up; not to be counted
    SKIPPED = 2  # the sample was bad: zeros, label -100
    SUBSTITUTED = 3  # the sample was bad: another one stands in its place


class Column:
    """One column of a batch. What is made of it shares the batch's memory and keeps its lease."""

    __slots__ = ("_array", "_is_bfloat16")

    def __init__(self, array: Array, is_bfloat16: bool) -> None:
        self._array = array
        self._is_bfloat16 = is_bfloat16

    def numpy(self) -> Array:
        """A NumPy array, without a copy. Of bfloat16 its bits, as uint16."""
        return self._array

    def torch(self) -> Any:
        """A torch tensor, without a copy."""
        import torch

        if self._is_bfloat16:
            return torch.from_numpy(self._array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of numpy()."""
        return self._array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        if copy is False and array.dtype != self._array.dtype:
            raise ValueError(f"{self._array.dtype} cannot become {dtype} without a copy")
        return array.copy() if copy and array is self._array else array

    def __dlpack__(self, **arguments: Any) -> Any:
        if self._is_bfloat16:
            raise BufferError("bfloat16 goes by torch(), or as bits by numpy(), not by DLPack")
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        name = "bfloat16" if self._is_bfloat16 else str(self.dtype)
        return f"Column(shape={self.shape}, dtype={name})"


class Place(NamedTuple):
    """Where a column lies in a slab."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_bfloat16: bool


class Layout(NamedTuple):
    """Where the columns lie in slabs of `rows` rows that describe themselves alike."""

    rows: int
    described: tuple[bytes, ...]
    places: dict[str, Place]  # of the columns that somebody has asked for


class Run:
    """What all batches of a session have in common. Batches may use it in any thread."""

    __slots__ = ("_describing", "_layout", "columns", "state")

    def __init__(self, columns: tuple[ColumnSpec, ...], state: Mapping[str, Any]) -> None:
        self.columns = {column.name: index for index, column in enumerate(columns)}
        self.state = state
        size = len(columns) * wire.SLAB_COLUMN.size
        # Of a slab's header magic number, version and column count; and the columns.
        self._describing = struct.Struct(f"<8s{wire.SLAB_HEADER.size - 8}x{size}s")
        self._layout = Layout(0, (), {})

    def place(self, name: str, slab: Slab, rows: int) -> Place:
        """Where a column lies: nearly always where it lay in the last slab."""
        try:
            described = self._describing.unpack_from(slab)
        except struct.error as error:
            raise ProtocolError(f"a slab is shorter than its header says: {error}") from None
        layout = self._layout
        if layout.described != described or layout.rows != rows:
            self._layout = layout = Layout(rows, described, {})
        place = layout.places.get(name)
        if place is None:
            place = layout.places[name] = self._find(name, slab, rows)
        return place

    def _find(self, name: str, slab: Slab, rows: int) -> Place:
        try:
            index = self.columns[name]
        except KeyError:
            raise KeyError(
                f"{name!r}; the batch has the columns {', '.join(self.columns)}"
            ) from None
        column_count = unpack_header(slab)[2]
        if index >= column_count:
            raise ProtocolError(f"a slab of {column_count} columns has no column {index}")
        start = wire.SLAB_HEADER.size + index * wire.SLAB_COLUMN.size
        fields = wire.SLAB_COLUMN.unpack_from(slab, start)
        offset, offsets_offset, type_number, rank = fields[0], fields[2], fields[4], fields[5]
        if offsets_offset != 0 or type_number not in _DTYPES or rank > 4:
            raise ProtocolError(f"column {name!r} has a form that this client does not know")
        shape = (rows, *fields[8 : 8 + rank])
        return Place(offset, shape, _DTYPES[type_number], type_number == _BFLOAT16)


def unpack_header(slab: Slab) -> tuple[int, ...]:
    """The fields of a slab's header. Errors: ProtocolError if it is none that we know."""
    header: tuple[int, ...] = wire.SLAB_HEADER.unpack_from(slab)
    if header[0] != wire.SLAB_MAGIC or header[1] != wire.SLAB_VERSION:
        raise ProtocolError(
            f"a slab has magic number {header[0]:#x} and version {header[1]}, not "
            f"{wire.SLAB_MAGIC:#x} and {wire.SLAB_VERSION}"
        )
    return header


class Batch:
    """Some samples, column by column: batch["image"].

    It lies in memory that the daemon gets back when the batch and all arrays made of it are gone,
    or at release(). sample_ids, row_status and valid are copies: keeping them keeps nothing else.
    """

    __slots__ = ("_memory", "_record", "_run")

    def __init__(self, record: wire.Record, memory: Slab, run: Run) -> None:
        """`memory` is a lease on a slab, or an array of this process."""
        self._record = record
        self._memory: Slab | None = memory
        self._run = run

    @property
    def epoch(self) -> int:
        return self._record.epoch

    @property
    def step(self) -> int:
        return self._record.step

    @property
    def rows(self) -> int:
        """Rows of the batch, on this rank."""
        return self._record.rows

    @property
    def valid_rows(self) -> int:
        """Rows that are neither pad nor skipped."""
        return self._record.valid_rows

    @property
    def state(self) -> dict[str, Any]:
        """The state after this batch, for load_state_dict()."""
        record = self._record
        last = bool(record.flags & wire.LAST_IN_EPOCH)
        return make_state(self._run.state, Position.after(record.epoch, record.step, last))

    @property
    def sample_ids(self) -> npt.NDArray[np.int64]:
        """The ordinal of each row's sample in the dataset."""
        slab = self._bytes()
        offset = unpack_header(slab)[9]
        ids: npt.NDArray[np.int64] = _view(slab, offset, (self.rows,), np.dtype(np.int64)).copy()
        return ids

    @property
    def row_status(self) -> npt.NDArray[np.uint8]:
        """A RowStatus for each row."""
        slab = self._bytes()
        offset = unpack_header(slab)[10]
        status: npt.NDArray[np.uint8] = _view(slab, offset, (self.rows,), np.dtype(np.uint8)).copy()
        return status

    @property
    def row_status_names(self) -> list[str]:
        """ "ok", "pad", "skipped" or "substituted" for each row."""
        return [RowStatus(value).name.lower() for value in self.row_status.tolist()]

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Which rows are real: ok or substituted."""
        status = self.row_status
        valid: npt.NDArray[np.bool_] = (status == RowStatus.OK) | (status == RowStatus.SUBSTITUTED)
        return valid

    def keys(self) -> list[str]:
        return list(self._run.columns)

    def __getitem__(self, name: str) -> Column:
        slab = self._bytes()
        offset, shape, dtype, is_bfloat16 = self._run.place(name, slab, self._record.rows)
        return Column(_view(slab, offset, shape, dtype), is_bfloat16)

    def __contains__(self, name: object) -> bool:
        return name in self._run.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.columns)

    def __len__(self) -> int:
        """Rows of the batch."""
        return self._record.rows

    def release(self) -> None:
        """Gives the memory back now. Arrays made of the batch must not be used any more: the daemon
        fills it again. Does nothing the second time.
        """
        memory, self._memory = self._memory, None
        release = getattr(memory, "release", None)
        if release is not None:
            release()

    def copy(self) -> Batch:
        """The batch in memory of this process, which it may keep as long as it likes."""
        slab = self._bytes()
        size = unpack_header(slab)[11]
        return Batch(self._record, np.asarray(slab)[:size].copy(), self._run)

    def to(self, device: Any, stream: Any = None) -> Batch:
        """The batch on `device`; of devices there is only "cpu" so far."""
        if str(device) != "cpu":
            raise no_device(device)
        return self

    def __repr__(self) -> str:
        return (
            f"Batch(epoch={self.epoch}, step={self.step}, rows={self.rows}, "
            f"valid_rows={self.valid_rows}, columns={self.keys()})"
        )

    def _bytes(self) -> Slab:
        if self._memory is None:
            raise BatchdError("the batch has been released; take a copy() before, or release later")
        return self._memory


def _view(slab: Slab, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        array: Array = np.ndarray(shape, dtype, slab, offset)
        return array
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a slab is shorter than its header says: {error}") from None


def no_device(device: Any) -> BatchdError:
    return BatchdError(
        f"device={device!r} is not supported by this version; the batch is ordinary memory: "
        'batch["name"].torch().to(device) copies it',
        code="UNIMPLEMENTED",
    )
