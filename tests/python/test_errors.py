# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, and what the user then sees."""

from __future__ import annotations

import math
import os
import socket
from typing import Any

import pytest
from fake_daemon import FakeDaemon

import batchd
from batchd import transforms as T

COLUMNS = {"image": [T.DecodeImage()], "label": T.Label()}


def test_a_refused_open_names_the_field(make_loader: Any, start_daemon: Any) -> None:
    daemon = start_daemon(
        open_error={
            "code": 3,
            "message": "pipeline.image[1].size: -1 is out of range",
            "field": "pipeline.image[1].size",
        }
    )

    with pytest.raises(batchd.OpenError, match="out of range") as info:
        make_loader(daemon)

    assert info.value.field == "pipeline.image[1].size"
    assert info.value.code == "INVALID_ARGUMENT"
    daemon.wait_for("closed")


def test_a_busy_daemon_is_unavailable(make_loader: Any, start_daemon: Any) -> None:
    daemon = start_daemon(open_error={"code": 14, "message": "the daemon ends"})

    with pytest.raises(batchd.Unavailable, match="the daemon ends"):
        make_loader(daemon)

    assert len(daemon.opens) == 1  # said at once


BAD = {
    "code": 15,
    "message": "truncated: cat/7.jpg: ends too early",
    "reason": "truncated",
    "ordinal": "7",
    "sampleName": "cat/7.jpg",
}


def test_a_bad_sample_is_an_error_and_the_position_stays(
    make_loader: Any, start_daemon: Any
) -> None:
    daemon = start_daemon(bad_steps={(0, 1): BAD})
    loader = make_loader(daemon)
    seen = []

    for _ in range(2):
        with pytest.raises(batchd.SampleError, match="ends too early") as info:
            for batch in loader:
                seen.append(batch.step)
        assert loader.epoch == 0

    error = info.value
    assert (error.reason, error.ordinal, error.sample_name) == ("truncated", 7, "cat/7.jpg")
    assert seen == [0]
    assert loader.state_dict()["samples"] == 4
    loader.load_state_dict(error.next_state)
    assert [batch.step for batch in loader] == [2, 3, 4]
    assert loader.epoch == 1


def test_an_iterator_ends_with_its_error(make_loader: Any, start_daemon: Any) -> None:
    iterator = iter(make_loader(start_daemon(bad_steps={(0, 0): BAD})))
    with pytest.raises(batchd.SampleError):
        next(iterator)

    assert list(iterator) == []


def test_a_repaired_sample_is_read_again(make_loader: Any, start_daemon: Any) -> None:
    daemon = start_daemon(bad_steps={(0, 1): BAD})
    loader = make_loader(daemon)
    with pytest.raises(batchd.SampleError):
        list(loader)

    daemon.behaviour.bad_steps.clear()

    assert [batch.step for batch in loader] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (14, batchd.Unavailable, "UNAVAILABLE"),
        (3, batchd.BatchdError, "INVALID_ARGUMENT"),
        (8, batchd.BatchdError, "RESOURCE_EXHAUSTED"),
    ],
)
def test_other_failures_have_their_code(
    make_loader: Any, start_daemon: Any, code: int, kind: type, name: str
) -> None:
    failure = {"code": code, "message": "words of the daemon", "ordinal": "-1"}
    loader = make_loader(start_daemon(bad_steps={(0, 0): failure}))

    with pytest.raises(kind, match="words of the daemon") as info:
        next(iter(loader))

    assert type(info.value) is kind
    assert info.value.code == name
    assert loader.reconnects == 0


def test_no_daemon_is_said_at_once_with_the_way_out(folder: Any) -> None:
    address = f"unix:{folder}/none"

    with pytest.raises(batchd.Unavailable, match="batchd serve --listen unix:"):
        batchd.Loader("x", COLUMNS, batch_size=1, address=address)


def test_a_dead_socket_file_is_no_daemon(daemon: FakeDaemon, make_loader: Any) -> None:
    daemon.stop()

    with pytest.raises(batchd.Unavailable, match="Connection refused"):
        make_loader(daemon)


def test_a_path_that_is_too_long_names_the_limit() -> None:
    with pytest.raises(ValueError, match="107 are the most"):
        batchd.Loader("x", COLUMNS, batch_size=1, address="unix:/tmp/" + "x" * 110)


def test_another_version_of_the_protocol_is_refused(make_loader: Any, start_daemon: Any) -> None:
    daemon = start_daemon(hello_versions=(2, 5))

    with pytest.raises(batchd.ProtocolError, match="versions 2 to 5, this client 1 to 1"):
        make_loader(daemon)


def test_a_stranger_behind_the_socket_is_refused(folder: Any) -> None:
    import threading

    path = f"{folder}/stranger"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(100)
            peer.send(b"220 mail.example ESMTP" + bytes(42))
            peer.recv(100)

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(batchd.ProtocolError, match="no batchd daemon"):
        batchd.Loader("x", COLUMNS, batch_size=1, address=f"unix:{path}")
    thread.join()
    listener.close()


def test_a_batch_of_another_address_is_never_handed_out(
    make_loader: Any, start_daemon: Any
) -> None:
    loader = make_loader(start_daemon(wrong_step_at=1))
    iterator = iter(loader)
    next(iterator)

    with pytest.raises(batchd.ProtocolError, match="epoch 0 step 2 .* where epoch 0 step 1"):
        next(iterator)


def test_messages_in_fragments_are_understood(make_loader: Any, start_daemon: Any) -> None:
    loader = make_loader(start_daemon(fragment_bytes=50))

    assert [batch.step for batch in loader] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give exactly one"),
        ({"batch_size": 4, "global_batch_size": 8}, "give exactly one"),
        ({"batch_size": 0}, "batch_size=0 is out of range"),
        ({"batch_size": 2.5}, "batch_size=2.5 is no integer"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank=2 is out of range"),
        ({"batch_size": 4, "shuffle": "yes"}, "shuffle='yes' is unknown"),
        ({"batch_size": 4, "last_batch": "keep"}, "there are 'drop', 'pad', 'partial'"),
        ({"batch_size": 4, "on_bad_sample": "ignore"}, "there are 'fail', 'skip', 'substitute'"),
        ({"batch_size": 4, "max_bad_samples": 1.5}, "a share is 0.0 to 1.0"),
        ({"batch_size": 4, "max_bad_samples": -1}, "max_bad_samples=-1 is out of range"),
        ({"batch_size": 4, "seed": -1}, "seed=-1 is out of range"),
        ({"batch_size": 4, "prefetch": 257}, "allowed is 1 to 256"),
        ({"batch_size": 4, "transport": "tcp"}, "there are 'shm' and 'grpc'"),
        ({"batch_size": 4, "address": "host"}, "none of unix:PATH, HOST:PORT"),
        ({"batch_size": 4, "address": "host:1", "transport": "shm"}, "needs a daemon on this"),
        ({"batch_size": 4, "reconnect_timeout": -1}, "reconnect_timeout=-1"),
    ],
)
def test_wrong_arguments_name_value_and_limit(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        batchd.Loader("x", COLUMNS, **arguments)


@pytest.mark.parametrize(
    ("dataset", "columns", "words"),
    [
        (7, COLUMNS, "dataset=7 is no dataset"),
        ("x", {}, "no mapping"),
        ("x", {"image": ["DecodeImage"]}, r"columns\['image'\]\[0\]='DecodeImage' is no operation"),
        ("x", {"image": [T.DecodeImage(), T.Normalize(mean=(0, math.nan, 0))]},
         r"columns\['image'\]\[1\].mean\[1\]=nan is no finite number"),
        ("x", {"image": [T.RandomApply([T.ColorJitter(hue=math.inf)])]},
         r"columns\['image'\]\[0\].transforms\[0\].arguments.hue=inf is no finite number"),
    ],
)
def test_wrong_pipelines_name_their_place(dataset: Any, columns: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        batchd.Loader(dataset, columns, batch_size=4)


def test_the_open_message_says_what_was_asked(
    make_loader: Any, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("BATCHD_ADDRESS", f"unix:{daemon.path}")
    make_loader(
        daemon,
        address=None,
        batch_size=3,
        shuffle=True,
        seed=2**64 - 1,
        last_batch="pad",
        on_bad_sample="skip",
        max_bad_samples=0.25,
        prefetch=7,
        name="job-1",
        columns={
            "image": [
                T.DecodeImage(),
                T.RandomResizedCrop((32, 48), scale=(0.5, 1.0)),
                T.Normalize(),
            ],
            "label": T.Label(),
        },
    )

    message = daemon.opens[0]

    assert message.pop("clientVersion").startswith("batchd-python 0.1")
    assert message == {
        "dataset": {"name": "ImageFolder", "arguments": {"root": os.path.abspath("data")}},
        "pipeline": {
            "columns": [
                {
                    "name": "image",
                    "operations": [
                        {"name": "DecodeImage", "arguments": {}},
                        {
                            "name": "RandomResizedCrop",
                            "arguments": {"size": [32, 48], "scale": [0.5, 1.0]},
                        },
                        {"name": "Normalize", "arguments": {}},
                    ],
                },
                {"name": "label", "operations": [{"name": "Label", "arguments": {}}]},
            ]
        },
        "sampling": {
            "seed": "18446744073709551615",
            "shuffle": "SHUFFLE_FEISTEL",
            "globalBatchSize": "6",
            "lastBatch": "LAST_BATCH_PAD",
            "onBadSample": "ON_BAD_SAMPLE_SKIP",
            "maxBadShare": 0.25,
        },
        "rank": 1,
        "worldSize": 2,
        "start": {"epoch": "0", "step": "0"},
        "prefetch": 7,
        "transport": "TRANSPORT_SHM",
        "job": "job-1",
        "expected": {},
    }


def test_shuffle_words(make_loader: Any, daemon: FakeDaemon) -> None:
    for shuffle in (False, True, "torch"):
        make_loader(daemon, shuffle=shuffle)

    words = [message["sampling"]["shuffle"] for message in daemon.opens]
    assert words == ["SHUFFLE_NONE", "SHUFFLE_FEISTEL", "SHUFFLE_TORCH"]
