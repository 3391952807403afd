# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions. Every message says value, limit and way out."""

from __future__ import annotations

from typing import Any, Final

# google.rpc.Code by number; the protocol's codes.
CODE_NAMES: Final = {
    0: "OK",
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    15: "DATA_LOSS",
    16: "UNAUTHENTICATED",
}


class BatchdError(Exception):
    """Base of all errors of this package. `code` is a google.rpc.Code's name, or ""."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class OpenError(BatchdError):
    """The daemon refuses the session. `field` is the path of the argument that is wrong, or ""."""

    def __init__(self, message: str, *, code: str = "", field: str = "") -> None:
        super().__init__(message, code=code)
        self.field = field


class StateMismatch(OpenError):
    """A state does not fit: other data, another pipeline or sampling than it was saved with."""


class SampleError(BatchdError):
    """A sample cannot be read or decoded and on_bad_sample="fail".

    The position stays: iterating again asks for the same batch. To go past it, load `next_state`.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        ordinal: int,
        sample_name: str,
        next_state: dict[str, Any],
    ) -> None:
        super().__init__(message, code="DATA_LOSS")
        self.reason = reason
        self.ordinal = ordinal
        self.sample_name = sample_name
        self.next_state = next_state


class SlotsExhausted(BatchdError):
    """The trainer holds every batch that the daemon's memory allows: no other can be made."""

    def __init__(
        self,
        message: str,
        *,
        held_slots: int,
        slab_size_bytes: int,
        budget_bytes: int,
        used_bytes: int,
    ) -> None:
        super().__init__(message, code="RESOURCE_EXHAUSTED")
        self.held_slots = held_slots
        self.slab_size_bytes = slab_size_bytes
        self.budget_bytes = budget_bytes
        self.used_bytes = used_bytes


class Unavailable(BatchdError):
    """The daemon, or the storage behind it, does not answer now; it may later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="UNAVAILABLE")


class ConnectionLost(Unavailable):
    """The connection to the daemon has ended, and no new one could be had in time."""


class ProtocolError(BatchdError):
    """Daemon and client do not understand each other: versions without overlap, or a fault."""


class ForkError(BatchdError):
    """A loader that was made before a fork is used in the child."""
