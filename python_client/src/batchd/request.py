# SPDX-License-Identifier: Apache-2.0
"""What a loader's arguments say, as the message Open."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from batchd.operation import Operation

ColumnOperations = Operation | Sequence[Operation]

SHUFFLES: Final = {False: "none", True: "feistel", "torch": "torch"}
LAST_BATCHES: Final = ("drop", "pad", "partial")
POLICIES: Final = ("fail", "skip", "substitute")
RECONNECT_SECONDS: Final = 300.0
TRANSPORTS: Final = {"shm": "TRANSPORT_SHM", "grpc": "TRANSPORT_GRPC"}


def dataset_to_json(dataset: Operation | str) -> dict[str, Any]:
    if isinstance(dataset, str):
        return {"name": dataset, "arguments": {}}
    if isinstance(dataset, Operation):
        return dataset.to_json()
    raise TypeError(
        f"dataset={dataset!r} is no dataset; give batchd.ImageFolder(PATH), or the name that the "
        "daemon's configuration gives it"
    )


def pipeline_to_json(columns: Mapping[str, ColumnOperations]) -> dict[str, Any]:
    if not isinstance(columns, Mapping) or not columns:
        raise TypeError(f"columns={columns!r} is no mapping of column names to operations")
    result = []
    for name, operations in columns.items():
        items = [operations] if isinstance(operations, Operation) else list(operations)
        for index, item in enumerate(items):
            if not isinstance(item, Operation):
                raise TypeError(
                    f"columns[{name!r}][{index}]={item!r} is no operation; "
                    "batchd.transforms has them"
                )
            check_finite(f"columns[{name!r}][{index}]", item.arguments)
        result.append({"name": name, "operations": [item.to_json() for item in items]})
    return {"columns": result}


def check_finite(path: str, value: Any) -> None:
    """JSON has no other numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}={value!r} is no finite number")
    if isinstance(value, Mapping):
        for name, inside in value.items():
            check_finite(f"{path}.{name}", inside)
    elif isinstance(value, (list, tuple)):
        for index, inside in enumerate(value):
            check_finite(f"{path}[{index}]", inside)


def check_choice(name: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; there are {', '.join(map(repr, choices))}")


def shuffle_word(shuffle: bool | str) -> str:
    if not isinstance(shuffle, (bool, str)) or shuffle not in SHUFFLES:
        raise ValueError(f"shuffle={shuffle!r} is unknown; there are True, False and 'torch'")
    return SHUFFLES[shuffle]


def check_int(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} is no integer") from None
    if isinstance(value, bool) or not low <= number <= high:
        raise ValueError(f"{name}={value!r} is out of range; allowed is {low} to {high}")
    return number


def rank_and_world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """As given, else from RANK and WORLD_SIZE as launchers set them, else a world of one."""
    world = check_int("world_size", _given_or_env(world_size, "WORLD_SIZE", 1), 1, 2**20)
    return check_int("rank", _given_or_env(rank, "RANK", 0), 0, world - 1), world


def _given_or_env(value: int | None, variable: str, default: int) -> int:
    if value is not None:
        return value
    text = os.environ.get(variable, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{variable}={text!r} of the environment is no integer") from None


def bad_samples_to_json(limit: int | float | None) -> dict[str, Any]:
    """The bound on bad samples: an int is a count, a float a share."""
    if limit is None:
        return {}
    if isinstance(limit, float):
        if not 0 <= limit <= 1:
            raise ValueError(
                f"max_bad_samples={limit!r} is out of range; a share is 0.0 to 1.0, a count an int"
            )
        return {"maxBadShare": limit}
    return {"maxBadCount": str(check_int("max_bad_samples", limit, 0, 2**63 - 1))}


def sampling_to_json(run: Mapping[str, Any], limit: int | float | None) -> dict[str, Any]:
    """The message Sampling. `run` has seed, shuffle, global_batch_size, last_batch (or None) and
    on_bad_sample, as a state has them.
    """
    message = {
        "seed": str(run["seed"]),
        "shuffle": f"SHUFFLE_{run['shuffle'].upper()}",
        "globalBatchSize": str(run["global_batch_size"]),
        "onBadSample": f"ON_BAD_SAMPLE_{run['on_bad_sample'].upper()}",
        **bad_samples_to_json(limit),
    }
    if run["last_batch"] is not None:
        message["lastBatch"] = f"LAST_BATCH_{run['last_batch'].upper()}"
    return message


def reconnect_seconds(given: float | None) -> float:
    """As given, else from the environment, else five minutes."""
    text = os.environ.get("BATCHD_RECONNECT_TIMEOUT_SECONDS", "")
    value = given if given is not None else (text or RECONNECT_SECONDS)
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise ValueError(f"reconnect_timeout={value!r} is no number of seconds, 0 or more")
    return seconds
