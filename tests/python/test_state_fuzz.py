# SPDX-License-Identifier: Apache-2.0
"""States with damage: refused as such, or the place that they name; never anything else."""

from __future__ import annotations

import contextlib
import json
import os
import random
from typing import Any

import pytest

import batchd
from batchd.state import Position, check_state, make_state

SEED = int(os.environ.get("BATCHD_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
STATE = make_state(
    {
        "seed": 2**64 - 1,
        "global_batch_size": 4,
        "shuffle": "feistel",
        "last_batch": "drop",
        "on_bad_sample": "skip",
        "dataset": "d" * 32,
        "pipeline": "0" * 32,
        "decoder": "f" * 32,
    },
    Position(3, 2),
)
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 4, 12, 2**24, 2**24 + 1, 2**32, 2**63, 2**64, -(2**70),
    10**4000, 0.0, 1.0, 1.5, -0.0, float("nan"), float("inf"), "", "1", "none", "torch", "pad",
    "FEISTEL", "\ud800", "\0", "x" * 10000, "e" * 32, [], [1], {}, {"a": 1}, b"d", object(),
]  # fmt: skip


def damaged(state: dict[str, Any], dice: random.Random) -> Any:
    out = dict(state)
    for _ in range(dice.randrange(1, 4)):
        name = dice.choice([*state, "later"])
        if dice.random() < 0.2:
            out.pop(name, None)
        else:
            out[name] = dice.choice(VALUES)
    return out if dice.random() < 0.95 else dice.choice(VALUES)


def damaged_text(text: str, dice: random.Random) -> str:
    at = dice.randrange(len(text))
    cut = dice.randrange(4)
    return text[:at] + dice.choice(["", "9", "-", '"', "e9", "null", "\\u0000"]) + text[at + cut :]


@pytest.fixture
def dice() -> random.Random:
    print(f"BATCHD_FUZZ_SEED={SEED}")
    return random.Random(SEED)


def test_any_state_is_a_place_or_refused(dice: random.Random) -> None:
    accepted = 0
    for _ in range(20_000):
        state = damaged(STATE, dice)
        try:
            position = check_state(state)
        except batchd.StateMismatch as error:
            assert error.field
            continue
        accepted += 1
        assert 0 <= position.epoch < 2**32 and 0 <= position.step <= 2**62
    assert 100 < accepted < 10_000


def test_any_text_is_no_json_or_a_place_or_refused(dice: random.Random) -> None:
    text = json.dumps(STATE)
    for _ in range(20_000):
        try:
            state = json.loads(damaged_text(text, dice))
        except ValueError:
            continue
        with contextlib.suppress(batchd.StateMismatch):
            check_state(state)


def test_a_loader_stays_as_it_was_after_a_state_that_it_refuses(
    make_loader: Any, daemon: Any, dice: random.Random
) -> None:
    loader = make_loader(daemon, batch_size=4)
    state = next(iter(loader)).state
    before = loader.state_dict()
    refused = 0
    for _ in range(2000):
        broken = damaged(state, dice)
        if isinstance(broken, dict) and broken.get("global_batch_size") == 2**24:
            continue  # the fake daemon makes its rows one by one
        try:
            loader.load_state_dict(broken)
        except batchd.StateMismatch:
            refused += 1
            assert loader.state_dict() == before
        else:
            loader.load_state_dict(before)
    assert refused > 500
    assert next(loader.steps(1)).step == 1
