# SPDX-License-Identifier: Apache-2.0
"""A batch and its columns, as views of the memory that the daemon has filled."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from batchd import wire
from batchd.errors import BatchdError, ProtocolError
from batchd.state import Position, make_state

if TYPE_CHECKING:
    from batchd.session import ColumnSpec

Array = npt.NDArray[Any]

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


class Run:
    """What all batches of a session have in common."""

    __slots__ = ("columns", "state")

    def __init__(self, columns: tuple[ColumnSpec, ...], state: Mapping[str, Any]) -> None:
        self.columns = {column.name: index for index, column in enumerate(columns)}
        self.state = state


class Batch:
    """Some samples, column by column: batch["image"].

    It lies in memory that the daemon gets back when the batch and all arrays made of it are gone,
    or at release(). sample_ids, row_status and valid are copies: keeping them keeps nothing else.
    """

    __slots__ = ("_fields", "_memory", "_record", "_released", "_run", "_slab")

    def __init__(self, record: wire.Record, memory: Any, run: Run) -> None:
        """`memory` is a lease on a slab, or an array of this process."""
        self._record = record
        self._memory = memory
        self._run = run
        self._released = False
        self._slab: Any = None
        self._fields: tuple[int, ...] = ()  # of the slab's header, once somebody asked

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
        offset = self._header()[9]
        ids: npt.NDArray[np.int64] = self._view(offset, (self.rows,), np.dtype(np.int64)).copy()
        return ids

    @property
    def row_status(self) -> npt.NDArray[np.uint8]:
        """A RowStatus for each row."""
        offset = self._header()[10]
        status: npt.NDArray[np.uint8] = self._view(offset, (self.rows,), np.dtype(np.uint8)).copy()
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
        try:
            index = self._run.columns[name]
        except KeyError:
            raise KeyError(
                f"{name!r}; the batch has the columns {', '.join(self._run.columns)}"
            ) from None
        slab = self._bytes()
        header = self._header()
        if index >= header[2]:
            raise ProtocolError(f"a slab of {header[2]} columns has no column {index}")
        place = wire.SLAB_HEADER.size + index * wire.SLAB_COLUMN.size
        fields = wire.SLAB_COLUMN.unpack_from(slab, place)
        if fields[2] != 0 or fields[4] not in _DTYPES or fields[5] > 4:
            raise ProtocolError(f"column {name!r} has a form that this client does not know")
        shape = (self.rows, *fields[8 : 8 + fields[5]])
        return Column(self._view(fields[0], shape, _DTYPES[fields[4]]), fields[4] == _BFLOAT16)

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
        memory, self._memory, self._slab, self._released = self._memory, None, None, True
        if hasattr(memory, "release"):
            memory.release()

    def copy(self) -> Batch:
        """The batch in memory of this process, which it may keep as long as it likes."""
        size = self._header()[11]
        return Batch(self._record, self._bytes()[:size].copy(), self._run)

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

    def _bytes(self) -> Any:
        if self._slab is None:
            if self._released:
                raise BatchdError(
                    "the batch has been released; take a copy() before, or release later"
                )
            self._slab = np.asarray(self._memory)
        return self._slab

    def _header(self) -> tuple[int, ...]:
        if self._fields and self._slab is not None:
            return self._fields
        header = wire.SLAB_HEADER.unpack_from(self._bytes())
        if header[0] != wire.SLAB_MAGIC or header[1] != wire.SLAB_VERSION:
            raise ProtocolError(
                f"a slab has magic number {header[0]:#x} and version {header[1]}, not "
                f"{wire.SLAB_MAGIC:#x} and {wire.SLAB_VERSION}"
            )
        self._fields = header
        return header

    def _view(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        try:
            array: Array = np.ndarray(shape, dtype, self._bytes(), offset)
            return array
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"a slab is shorter than its header says: {error}") from None


def no_device(device: Any) -> BatchdError:
    return BatchdError(
        f"device={device!r} is not supported by this version; the batch is ordinary memory: "
        'batch["name"].torch().to(device) copies it',
        code="UNIMPLEMENTED",
    )
