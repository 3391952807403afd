# SPDX-License-Identifier: Apache-2.0
"""What a session asks of the thing that carries its messages and batches."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from batchd.wire import Record


class Carrier(Protocol):
    """See ShmCarrier for what each call means; all carriers keep to it."""

    @property
    def transport(self) -> str: ...

    @property
    def inbox(self) -> deque[Record | dict[str, Any]]: ...

    @property
    def leases_out(self) -> int: ...

    def send(self, message: dict[str, Any]) -> None: ...

    def receive(self, timeout: float) -> bool: ...

    def take(self, record: Record, waited_ns: int, was_ready: bool) -> Any:
        """Memory of the batch: something that numpy.asarray makes an array of bytes of."""

    def drop(self, record: Record) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...
