# SPDX-License-Identifier: Apache-2.0
"""An operation or dataset as it goes over the wire: a name and its arguments."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

Size = int | Sequence[int]
Floats = float | Sequence[float]
Ints = int | Sequence[int]

_EXACT_INTEGER_MAX: Final = 2**53


def plain(value: Any) -> Any:
    """`value` as JSON has it. Integers beyond 2^53 become decimal strings."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Operation):
        return value.to_json()
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
        return _call_text(self._name, self._arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(repr(self))


Operations = Sequence[Operation]


def _call_text(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{k}={_text(v)}' for k, v in arguments.items())})"


def _text(value: Any) -> str:
    """As it was written: operations inside others are kept as they go over the wire."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        items = [_call_text(item["name"], item["arguments"]) for item in value]
        return f"[{', '.join(items)}]"
    return repr(value)
