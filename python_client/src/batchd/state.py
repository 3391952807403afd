# SPDX-License-Identifier: Apache-2.0
"""Positions, and states that can be saved: the same on every rank, JSON of less than 1 KiB."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from batchd import request
from batchd.errors import StateMismatch

STATE_VERSION: Final = 1

_FIELDS: Final[dict[str, type]] = {
    "version": int,
    "seed": int,
    "global_batch_size": int,
    "shuffle": str,
    "last_batch": str,
    "on_bad_sample": str,
    "dataset": str,
    "pipeline": str,
    "decoder": str,
    "epoch": int,
    "samples": int,
}
# A file may hold anything: what passes here can be sent to a daemon.
_RANGES: Final[dict[str, Collection[Any]]] = {
    "seed": range(2**64),
    "global_batch_size": range(1, 2**24 + 1),
    "shuffle": tuple(request.SHUFFLES.values()),
    "last_batch": request.LAST_BATCHES,
    "on_bad_sample": request.POLICIES,
    "epoch": range(2**32),
    "samples": range(2**62),
}
_HASH: Final = re.compile(r"[0-9a-f]{1,64}")


class Position(NamedTuple):
    """A place in a run."""

    epoch: int
    step: int

    @staticmethod
    def after(epoch: int, step: int, last_in_epoch: bool) -> Position:
        return Position(epoch + 1, 0) if last_in_epoch else Position(epoch, step + 1)

    def normalized(self, steps_per_epoch: int) -> Position:
        """The end of an epoch is the start of the next. Errors: StateMismatch past the end."""
        if self.step > steps_per_epoch:
            raise StateMismatch(
                f"step {self.step} of the state is past the epoch's {steps_per_epoch} steps",
                field="samples",
            )
        return Position(self.epoch + 1, 0) if self.step == steps_per_epoch else self

    def to_json(self) -> dict[str, str]:
        """The message Position."""
        return {"epoch": str(self.epoch), "step": str(self.step)}

    def __str__(self) -> str:
        return f"epoch {self.epoch} step {self.step}"


def make_state(run: Mapping[str, Any], position: Position) -> dict[str, Any]:
    """The state at `position` of the run whose unchanging part is `run`."""
    samples = position.step * int(run["global_batch_size"])
    return {"version": STATE_VERSION, **run, "epoch": position.epoch, "samples": samples}


def check_state(state: Mapping[str, Any]) -> Position:
    """The position of a state. Errors: StateMismatch if it is none that this version can read."""
    version = state.get("version") if isinstance(state, Mapping) else None
    if version != STATE_VERSION:
        raise StateMismatch(
            f"a state of version {version!r} cannot be loaded; this client reads {STATE_VERSION}",
            field="version",
        )
    for name, kind in _FIELDS.items():
        value = state.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise StateMismatch(f"{name}={value!r} of the state is no {kind.__name__}", field=name)
    for name, allowed in _RANGES.items():
        if state[name] not in allowed:
            raise StateMismatch(
                f"{name}={state[name]!r} of the state is out of range; allowed is "
                + (
                    f"{allowed[0]} to {allowed[-1]}"
                    if isinstance(allowed, range)
                    else ", ".join(map(repr, allowed))
                ),
                field=name,
            )
    for name in ("dataset", "pipeline", "decoder"):
        if not _HASH.fullmatch(state[name]):
            raise StateMismatch(
                f"{name}={state[name][:80]!r} of the state is no hash in hexadecimal digits",
                field=name,
            )
    epoch, samples, size = state["epoch"], state["samples"], state["global_batch_size"]
    if samples % size != 0:
        raise StateMismatch(
            f"epoch={epoch} and samples={samples} of the state are no place in a run with "
            f"global_batch_size={size}",
            field="samples",
        )
    return Position(epoch, samples // size)


def log_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Says what a loaded state has changed of a run."""
    for name, old in before.items():
        if old != after[name]:
            logging.getLogger("batchd").info(
                "loaded state: %s=%s instead of %s", name, after[name], old
            )
