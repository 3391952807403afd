# SPDX-License-Identifier: Apache-2.0
"""An operation or dataset as it goes over the wire: a name and its arguments."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

Size = int | Sequence[int]
Floats = float | Sequence[float]

_EXACT_INTEGER_MAX: Final = 2**53


def plain(value: Any) -> Any:
    """`value` as JSON has it. Integers beyond 2^53 become decimal strings."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if hasattr(value, "tolist"):  # a NumPy scalar or array, a tensor
        return plain(value.tolist())
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    try:
        number = operator.index(value)
    except TypeError:
        return float(value)
    return number if abs(number) <= _EXACT_INTEGER_MAX else str(number)


class Operation:
    """A name that the daemon knows, with arguments. Those at their default are left out."""

    def __init__(
        self, name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._name = name
        kept: dict[str, Any] = {}
        for key, value in arguments.items():
            try:
                item = plain(value)
            except (TypeError, ValueError):
                raise TypeError(f"{name}: {key}={value!r} is no number, text or list") from None
            if defaults is None or key not in defaults or item != plain(defaults[key]):
                kept[key] = item
        self._arguments = kept

    @property
    def name(self) -> str:
        return self._name

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self._arguments)

    def to_json(self) -> dict[str, Any]:
        """The message Operation."""
        return {"name": self._name, "arguments": self._arguments}

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{k}={v!r}' for k, v in self._arguments.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(repr(self))
