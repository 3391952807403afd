# SPDX-License-Identifier: Apache-2.0
"""What iterating over a loader gives. Dropping an iterator ends it, as a `for` with a `break` does;
an exception out of it ends it too, as with a generator.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from batchd.batch import Batch
from batchd.errors import BatchdError

if TYPE_CHECKING:
    from batchd.loader import Loader

_tokens = itertools.count(1)


class BatchIterator:
    """Base of both kinds. Belongs to its loader's thread.

    The loader knows its live iterator by `token` alone: a reference would keep it alive.
    """

    _across_epochs = False

    def __init__(self, loader: Loader) -> None:
        self._loader: Loader | None = loader
        self._returned = 0
        self.token = next(_tokens)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if not loader.is_live(self.token):
            self._loader = None
            raise BatchdError(
                "this iterator has lost its place: its loader was closed or has loaded a state"
            )
        if self._is_exhausted(loader):
            self.close()
            raise StopIteration
        try:
            batch = loader.next_batch(across_epochs=self._across_epochs)
        except Exception:
            self._loader = None
            loader.end_here()  # the next iterator asks for the same batch
            raise
        except BaseException:
            self.close()
            raise
        self._returned += 1
        return batch

    def close(self) -> None:
        """Ends the iterator: what was not read is left out. Does nothing the second time."""
        loader, self._loader = self._loader, None
        if loader is None or not loader.is_live(self.token):
            return
        if self._returned:
            self._end(loader)
        else:
            loader.end_here()  # it might as well never have been

    def __del__(self) -> None:
        self.close()

    def _is_exhausted(self, loader: Loader) -> bool:
        raise NotImplementedError

    def _end(self, loader: Loader) -> None:
        raise NotImplementedError


class EpochIterator(BatchIterator):
    """The rest of one epoch."""

    def __init__(self, loader: Loader, epoch: int) -> None:
        super().__init__(loader)
        self._epoch = epoch

    def _is_exhausted(self, loader: Loader) -> bool:
        return loader.position.epoch != self._epoch

    def _end(self, loader: Loader) -> None:
        loader.end_epoch(self._epoch)


class StepsIterator(BatchIterator):
    """A number of steps, across epochs."""

    _across_epochs = True

    def __init__(self, loader: Loader, count: int) -> None:
        super().__init__(loader)
        self._count = count

    def _is_exhausted(self, loader: Loader) -> bool:
        return self._returned >= self._count

    def _end(self, loader: Loader) -> None:
        loader.end_here()
