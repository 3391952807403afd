# SPDX-License-Identifier: Apache-2.0
"""What a session asks of the thing that carries its messages and batches."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from batchd.wire import Record


class Carrier(Protocol):
    """See ShmCarrier for what each call means; all carriers keep to it."""

    @property
    def transport(self) -> str: ...

    @property
    def ready(self) -> deque[Record]:
        """Batches that have come and have not been taken, in order."""

    @property
    def messages(self) -> deque[dict[str, Any]]:
        """Other messages that have come; the session handles them after every receive()."""

    @property
    def leases_out(self) -> int: ...

    def send(self, message: dict[str, Any]) -> None: ...

    def receive_now(self) -> bool:
        """Takes in what has come next: some batches, or one message. False if nothing has."""

    def receive(self, timeout: float) -> bool:
        """The same, but waits for it a while."""

    def take(self, record: Record, waited_ns: int, was_ready: bool) -> npt.NDArray[np.uint8]:
        """Memory of the batch. If it can be given back early it has a method release()."""

    def drop(self, record: Record) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...
