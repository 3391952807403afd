# SPDX-License-Identifier: Apache-2.0
"""Epochs, iterators, steps and states, over both carriers."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_daemon import FakeDaemon

import batchd


@pytest.fixture(params=["shm", "grpc"])
def loader_of(
    request: pytest.FixtureRequest, make_loader: Callable[..., batchd.Loader]
) -> Iterator[Callable[..., batchd.Loader]]:
    if request.param == "shm":
        yield make_loader
        return
    pytest.importorskip("grpc", reason="grpcio is not installed here")
    from grpc_bridge import GrpcBridge

    bridges = []

    def make(daemon: FakeDaemon, **arguments: Any) -> batchd.Loader:
        bridges.append(GrpcBridge(daemon))
        return make_loader(daemon, address=bridges[-1].address, **arguments)

    yield make
    for bridge in bridges:
        bridge.stop()


def ids(batches: Any) -> list[list[int]]:
    return [batch.sample_ids.tolist() for batch in batches]


def test_an_epoch_has_every_sample_once(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=6)

    batches = ids(loader)

    assert len(loader) == len(batches) == 4
    assert sum(batches, []) == list(range(20))
    assert loader.epoch == 1


def test_a_batch_is_what_the_daemon_has_made(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=6, last_batch="pad")

    batch = list(loader)[-1]

    assert (batch.epoch, batch.step, batch.rows, batch.valid_rows, len(batch)) == (0, 3, 6, 2, 6)
    assert batch.keys() == list(batch) == ["image", "label"]
    assert batch["image"].shape == (6, 4, 4, 3)
    assert batch["image"].numpy()[:, 1, 2, 0].tolist() == [18, 19, 0, 1, 2, 3]
    assert batch["label"].numpy().tolist() == [8, 9, 0, 1, 2, 3]
    assert batch.sample_ids.dtype == np.int64
    assert batch.row_status.tolist() == [0, 0, 1, 1, 1, 1]
    assert batch.row_status_names == ["ok"] * 2 + ["pad"] * 4
    assert batch.valid.tolist() == [True] * 2 + [False] * 4
    with pytest.raises(KeyError, match="image, label"):
        batch["mask"]


def test_status_of_bad_rows(loader_of: Any, start_daemon: Any) -> None:
    batch = next(iter(loader_of(start_daemon(row_status=(0, 1, 2, 3)), batch_size=4)))

    assert batch.row_status_names == ["ok", "pad", "skipped", "substituted"]
    assert batch.valid.tolist() == [True, False, False, True]
    assert batch.valid_rows == 2


def test_epochs_follow_each_other(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=10)

    epochs = [ids(loader) for _ in range(3)]

    assert loader.epoch == 3
    assert [epoch[0][0] for epoch in epochs] == [0, 1, 2]
    assert daemon.seeks == []  # the daemon runs on by itself


def test_set_epoch_takes_that_epoch(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=10)
    loader.set_epoch(5)

    first = ids(loader)

    assert first[0][0] == 5
    assert loader.epoch == 6
    loader.set_epoch(5)
    assert ids(loader) == first


def test_break_abandons_the_epoch(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=5)
    for _batch in loader:
        break

    assert loader.epoch == 1
    assert ids(loader)[0] == [1, 2, 3, 4, 5]


def test_two_live_iterators_are_an_error(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon)
    first = iter(loader)
    next(first)

    with pytest.raises(batchd.BatchdError, match="another live iterator"):
        iter(loader)

    next(first)
    first.close()
    assert loader.epoch == 1
    next(iter(loader))


def test_an_iterator_in_a_cycle_is_no_live_one(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    gc.disable()
    try:
        cycle: list[Any] = [iter(loader)]
        cycle.append(cycle)
        next(cycle[0])
        del cycle
        assert next(iter(loader)).epoch == 1
    finally:
        gc.enable()


def test_an_iterator_without_a_batch_changes_nothing(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon)
    iter(loader).close()
    del loader  # the fixture closes it

    loader = loader_of(daemon)
    iter(loader)

    assert loader.epoch == 0
    assert ids(loader)[0] == [0, 1, 2, 3]


def test_steps_run_across_epochs_and_go_on(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=8)

    first = [(b.epoch, b.step) for b in loader.steps(4)]
    second = [(b.epoch, b.step) for b in loader.steps(1)]
    rest = [(b.epoch, b.step) for b in loader]

    assert first == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert second == [(1, 1)]
    assert rest == [(1, 2)]
    assert loader.epoch == 2


def test_a_state_goes_on_where_it_was_saved(loader_of: Any, daemon: FakeDaemon) -> None:
    whole = loader_of(daemon, batch_size=3)
    undisturbed = ids(whole) + ids(whole)
    for taken in (0, 1, 6, 7, 8):
        loader = loader_of(daemon, batch_size=3)
        head = ids(loader.steps(taken))
        state = json.loads(json.dumps(loader.state_dict()))
        other = loader_of(daemon, batch_size=3)
        other.load_state_dict(state)

        tail = ids(other)
        tail += ids(other) if taken < 7 else []

        assert head + tail == undisturbed
        loader.close()
        other.close()


def test_batch_state_is_the_state_after_it(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=8)
    states = []
    for batch in loader:
        states.append(batch.state)
        assert loader.state_dict() == batch.state

    assert [(s["epoch"], s["samples"]) for s in states] == [(0, 8), (0, 16), (1, 0)]
    assert loader.state_dict() == states[-1]
    assert len(json.dumps(states[0])) < 1024


def test_set_epoch_keeps_the_loaded_position_in_its_own_epoch(
    loader_of: Any, daemon: FakeDaemon
) -> None:
    loader = loader_of(daemon, batch_size=4)
    state = [b.state for b in loader.steps(7)][-1]
    for epoch, first in ((1, [9, 10, 11, 12]), (2, [2, 3, 4, 5])):
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        batch = next(iter(loader))
        assert (batch.epoch, batch.sample_ids.tolist()) == (epoch, first)
        del batch


def test_the_loaded_state_wins_and_another_world_goes_on(
    loader_of: Any, daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    loader = loader_of(daemon, batch_size=4, seed=9, world_size=2, rank=0)
    state = [b.state for b in loader.steps(1)][-1]
    parts = []
    for rank in range(4):
        other = loader_of(daemon, batch_size=4, rank=rank, world_size=4)
        with caplog.at_level("INFO", "batchd"):
            other.load_state_dict(state)
        parts.append(next(iter(other)).sample_ids.tolist())
        assert other.state_dict()["seed"] == 9
        other.close()

    assert parts == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert "global_batch_size=8 instead of 16" in caplog.text
    assert "rank 3 of 4" in caplog.text


def test_a_contradicting_global_batch_size_is_refused(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon, batch_size=4)
    state = loader.state_dict()

    other = make_loader(daemon, global_batch_size=5)
    with pytest.raises(batchd.StateMismatch, match=r"global_batch_size=5 contradicts .* 4") as info:
        other.load_state_dict(state)

    assert info.value.field == "global_batch_size"
    assert len(next(iter(other))) == 5  # as it was


@pytest.mark.parametrize("part", ["dataset", "pipeline", "decoder"])
def test_a_state_of_other_data_is_refused(
    loader_of: Any, start_daemon: Any, daemon: FakeDaemon, part: str
) -> None:
    state = loader_of(daemon).state_dict()
    changed = {**daemon.behaviour.fingerprint, part: "e" * 32}
    other = loader_of(start_daemon(fingerprint=changed))

    with pytest.raises(batchd.StateMismatch, match=part) as info:
        other.load_state_dict(state)

    assert "e" * 32 in str(info.value) and state[part] in str(info.value)
    if part == "dataset":
        with pytest.raises(batchd.StateMismatch):
            other.load_state_dict(state, strict=False)
    else:
        other.load_state_dict(state, strict=False)
        assert other.state_dict()[part] == "e" * 32
    assert ids([next(iter(other))]) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2"),
        ({"samples": 5}, "samples=5"),
        ({"samples": -4}, "samples=-4"),
        ({"seed": "7"}, "seed='7'"),
        ({"samples": 400}, "past the epoch's 5 steps"),
        ({"samples": 2**63}, f"samples={2**63}"),
        ({"epoch": 2**32}, f"epoch={2**32}"),
        ({"seed": -1}, "seed=-1"),
        ({"shuffle": "sorted"}, "'none', 'feistel', 'torch'"),
        ({"decoder": "no hash"}, "'no hash'"),
    ],
)
def test_a_broken_state_is_refused(
    make_loader: Any, daemon: FakeDaemon, change: dict[str, Any], words: str
) -> None:
    loader = make_loader(daemon, batch_size=4)

    with pytest.raises(batchd.StateMismatch, match=words):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_a_state_at_the_number_of_steps_is_the_next_epoch(
    make_loader: Any, daemon: FakeDaemon
) -> None:
    loader = make_loader(daemon, batch_size=4)
    loader.load_state_dict({**loader.state_dict(), "samples": 20, "seed": 3})

    assert loader.epoch == 1
    assert next(iter(loader)).sample_ids.tolist() == [1, 2, 3, 4]


def test_an_iterator_whose_loader_has_moved_says_so(make_loader: Any, daemon: FakeDaemon) -> None:
    loader = make_loader(daemon)
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(loader.state_dict())

    with pytest.raises(batchd.BatchdError, match="lost its place"):
        next(iterator)


def test_peek_moves_nothing(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon, batch_size=8)
    iterator = iter(loader)
    next(iterator)
    before = loader.state_dict()

    seen = loader.peek(3)

    assert [(b.epoch, b.step) for b in seen] == [(0, 1), (0, 2), (1, 0)]
    assert loader.state_dict() == before
    assert next(iterator).step == 1


def test_what_the_data_are(loader_of: Any, daemon: FakeDaemon) -> None:
    loader = loader_of(daemon)

    assert loader.num_samples == 20
    assert loader.classes == [f"class{i}" for i in range(10)]
    assert loader.class_to_idx["class3"] == 3
    assert loader.name_of(7) == "sample7.jpg"
    assert loader.name_of(np.array([3, 1])) == ["sample3.jpg", "sample1.jpg"]
    assert len(loader.name_of(range(10_000))) == 10_000
    assert loader.columns["image"].shape == (4, 4, 3)
    assert loader.columns["label"].type_name == "int64"


def test_repr_names_source_transport_and_why(loader_of: Any, daemon: FakeDaemon) -> None:
    text = repr(loader_of(daemon))

    assert "source='fake'" in text
    assert "transport=shm (the daemon is on this machine" in text or (
        "transport=grpc (the daemon is reached over the network" in text
    )


def test_a_closed_loader_says_so(loader_of: Any, daemon: FakeDaemon) -> None:
    with loader_of(daemon) as loader:
        iterator = iter(loader)
        next(iterator)
    daemon.wait_for("closed", 1)

    with pytest.raises(batchd.BatchdError, match="closed"):
        iter(loader)
    with pytest.raises(batchd.BatchdError, match="closed"):
        next(iterator)


def test_a_batch_of_many_chunks_arrives_whole(loader_of: Any, start_daemon: Any) -> None:
    from fake_daemon import Column

    columns = (Column("image", "DATA_TYPE_FLOAT32", (3, 400, 400)),)
    loader = loader_of(start_daemon(columns=columns), batch_size=4)

    for batch in loader.steps(6):
        expected = batch.sample_ids.astype(np.float32)
        assert (batch["image"].numpy() == expected[:, None, None, None]).all()
