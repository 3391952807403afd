# SPDX-License-Identifier: Apache-2.0
"""What every client does, one list for both: against a daemon that misbehaves as it is told.

tests/python has what the Python client has besides: iterators, arrays and their lifetimes.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time

import pytest
from clients import CLIENTS, ClientError
from fake_daemon import Column

ADDRESSES = [(epoch, step) for epoch in range(3) for step in range(5)]
BAD = {"code": 15, "message": "truncated: cat/7.jpg: ends too early", "reason": "truncated",
       "ordinal": "7", "sampleName": "cat/7.jpg"}


def ids(batches):
    return [batch["ids"] for batch in batches]


def places(batches):
    return [(batch["epoch"], batch["step"]) for batch in batches]


# Batches, epochs and states.


def test_an_epoch_has_every_sample_once(client, over, fake):
    daemon = fake()
    loader = over(client, daemon, batch_size=6)

    batches = loader.epoch()

    assert loader.about()["steps"] == len(batches) == 4
    assert sum(ids(batches), []) == list(range(20))
    assert places(loader.epoch()) == [(1, step) for step in range(4)]
    assert loader.about()["epoch"] == 2
    assert daemon.seeks == []  # the daemon runs on by itself


def test_a_batch_is_what_the_daemon_has_made(client, over, fake):
    loader = over(client, fake(row_status=(0, 1, 2, 3)), batch_size=6, last_batch="pad")

    batch = loader.epoch()[-1]

    assert (batch["epoch"], batch["step"], batch["rows"], batch["valid_rows"]) == (0, 3, 6, 3)
    assert batch["ids"] == [18, 19, 0, 1, 2, 3]
    assert batch["row_status"] == [0, 1, 2, 3, 0, 1]
    assert batch["last_in_epoch"]


def test_both_clients_see_the_same_bytes_by_shm_and_grpc(start_client, opened, fake):
    from grpc_bridge import GrpcBridge

    columns = (Column("image", "DATA_TYPE_FLOAT32", (3, 300, 400)),
               Column("half", "DATA_TYPE_BFLOAT16", (7,)), Column("label", "DATA_TYPE_INT64", ()))
    daemon = fake(columns=columns)
    bridge = GrpcBridge(daemon)
    runs = []
    for name in CLIENTS:
        for address in (f"unix:{daemon.path}", bridge.address):
            loader = opened(start_client(name), daemon, address=address, batch_size=7)
            runs.append([batch["digest"] for batch in loader.take(4)])
            assert loader.about()["columns"] == {"image": ["float32", [3, 300, 400]],
                                                 "half": ["bfloat16", [7]], "label": ["int64", []]}
            loader.do("close")
    bridge.stop()

    assert len(set(runs[0])) == 4 and all(run == runs[0] for run in runs)


def test_set_epoch_takes_that_epoch_and_keeps_a_loaded_place_in_it(client, over, fake):
    loader = over(client, fake())
    state = loader.take(7)[-1]["state"]
    for epoch, first in ((1, [9, 10, 11, 12]), (2, [2, 3, 4, 5])):
        loader.do("load_state", state=state)
        loader.do("set_epoch", epoch=epoch)
        assert loader.next()["ids"] == first

    loader.do("set_epoch", epoch=5)
    assert places([loader.next()]) == [(5, 0)]


def test_a_state_goes_on_where_it_was_saved(client, over, fake):
    daemon = fake()
    undisturbed = ids(over(client, daemon, batch_size=3).take(14))
    for taken in (0, 1, 6, 7, 8):
        loader = over(client, daemon, batch_size=3)
        head = loader.take(taken)
        state = loader.state()
        assert len(json.dumps(state)) < 1024
        if head:
            assert state == head[-1]["state"]
        other = over(client, daemon, batch_size=3)
        other.do("load_state", state=state)
        assert ids(head + other.take(14 - taken)) == undisturbed


def test_the_loaded_state_wins_and_another_world_goes_on(client, over, fake):
    daemon = fake()
    state = over(client, daemon, seed=2**64 - 1, world_size=2, rank=0).take(1)[-1]["state"]
    parts = []
    for rank in range(4):
        loader = over(client, daemon, rank=rank, world_size=4)
        loader.do("load_state", state=state)
        parts += ids([loader.next()])
        assert loader.state()["seed"] == 2**64 - 1
        log = "\n".join(loader.about()["log"])
        assert "global_batch_size=8 instead of 16" in log and f"rank {rank} of 4" in log

    assert parts == [[8, 9], [10, 11], [12, 13], [14, 15]]


@pytest.mark.parametrize("part", ["dataset", "pipeline", "decoder"])
def test_a_state_of_other_data_is_refused(client, over, fake, part):
    daemon = fake()
    state = over(client, daemon).state()
    other = over(client, fake(fingerprint={**daemon.behaviour.fingerprint, part: "e" * 32}))

    with pytest.raises(ClientError, match=part) as info:
        other.do("load_state", state=state)

    assert info.value.kind == "StateMismatch"
    assert "e" * 32 in str(info.value) and state[part] in str(info.value)
    if part == "dataset":
        with pytest.raises(ClientError, match=part):
            other.do("load_state", state=state, strict=False)
    else:
        other.do("load_state", state=state, strict=False)
        assert other.state()[part] == "e" * 32
    assert other.next()["ids"] == [0, 1, 2, 3]


@pytest.mark.parametrize(("change", "field", "words"), [
    ({"version": 2}, "version", "version 2"),
    ({"samples": 5}, "samples", "samples=5"),
    ({"samples": -4}, "samples", "samples=-4"),
    ({"seed": "7"}, "seed", "seed="),
    ({"shuffle": 1}, "shuffle", "shuffle=1"),
    ({"samples": 400}, "samples", "past the epoch's 5 steps"),
])
def test_a_broken_state_is_refused(client, opened, fake, change, field, words):
    loader = opened(client, fake())

    with pytest.raises(ClientError, match=words) as info:
        loader.do("load_state", state={**loader.state(), **change})

    assert (info.value.kind, info.value.fields["field"]) == ("StateMismatch", field)
    assert loader.next()["step"] == 0  # as it was


def test_a_contradicting_global_batch_size_is_refused(client, opened, fake):
    daemon = fake()
    state = opened(client, daemon).state()
    other = opened(client, daemon, global_batch_size=5)

    with pytest.raises(ClientError, match=r"global_batch_size=5 contradicts .* 4") as info:
        other.do("load_state", state=state)

    assert info.value.fields["field"] == "global_batch_size"
    assert other.next()["rows"] == 5


def test_a_state_at_the_number_of_steps_is_the_next_epoch(client, opened, fake):
    loader = opened(client, fake())
    loader.do("load_state", state={**loader.state(), "samples": 20, "seed": 3})

    assert loader.about()["epoch"] == 1
    assert loader.next()["ids"] == [1, 2, 3, 4]


@pytest.mark.parametrize("writer", CLIENTS)
def test_a_state_of_one_client_loads_in_the_other(start_client, opened, fake, writer):
    daemon = fake()
    (reader,) = set(CLIENTS) - {writer}
    state = opened(start_client(writer), daemon, shuffle="torch", seed=2**63 + 1).take(6)[-1][
        "state"]

    loader = opened(start_client(reader), daemon)
    loader.do("load_state", state=state)

    assert loader.state() == state
    assert places([loader.next()]) == [(1, 1)]


def test_peek_moves_nothing(client, over, fake):
    loader = over(client, fake(), batch_size=8)
    loader.next()
    before = loader.state()

    seen = loader.do("peek", count=3)["batches"]

    assert places(seen) == [(0, 1), (0, 2), (1, 0)]
    assert loader.state() == before
    assert [batch["digest"] for batch in loader.take(3)] == [batch["digest"] for batch in seen]


def test_what_the_data_are(client, over, fake):
    loader = over(client, fake())
    about = loader.about()

    assert (about["samples"], about["steps"]) == (20, 5)
    assert about["columns"] == {"image": ["uint8", [4, 4, 3]], "label": ["int64", []]}
    assert "source='fake'" in about["text"] or "source=fake" in about["text"]
    assert ("the daemon is on this machine" in about["text"]) == (about["transport"] == "shm")
    assert loader.do("classes")["names"] == [f"class{i}" for i in range(10)]
    assert loader.do("names_of", ids=[3, 1])["names"] == ["sample3.jpg", "sample1.jpg"]
    assert len(loader.do("names_of", ids=list(range(10_000)))["names"]) == 10_000


def test_a_closed_loader_says_so(client, over, fake):
    daemon = fake()
    loader = over(client, daemon)
    loader.next()
    loader.do("close")
    daemon.wait_for("closed")

    with pytest.raises(ClientError, match="closed"):
        loader.next()


# What is asked for.


def test_both_clients_ask_for_the_same(start_client, fake):
    daemon = fake()
    for name in CLIENTS:
        env = {"RANK": "1", "WORLD_SIZE": "2", "BATCHD_ADDRESS": f"unix:{daemon.path}"}
        start_client(name, env).open(
            root="data/../data/", batch_size=3, shuffle="feistel", seed=2**64 - 1,
            last_batch="pad", on_bad_sample="skip", max_bad_share=0.25, prefetch=7, name="job-1",
            columns=[["image", [["DecodeImage", {}],
                                ["RandomResizedCrop", {"size": [32, 48], "n": 2**60}]]],
                     ["label", [["Label", {}]]]])
    python, cpp = daemon.opens

    assert python.pop("clientVersion") == "batchd-python 0.1.0"
    assert cpp.pop("clientVersion") == "batchd-cpp 0.1.0"
    assert cpp == python
    assert cpp["dataset"]["arguments"] == {"root": os.path.abspath("data")}
    assert cpp["pipeline"]["columns"][0]["operations"][1]["arguments"]["n"] == str(2**60)


@pytest.mark.parametrize(("options", "words"), [
    ({}, "give exactly one"),
    ({"batch_size": 4, "global_batch_size": 8}, "give exactly one"),
    ({"batch_size": 0}, "batch_size=0 is out of range"),
    ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank=2 is out of range"),
    ({"batch_size": 4, "max_bad_share": 1.5}, "a share is 0"),
    ({"batch_size": 4, "max_bad_samples": -1}, "max_bad_samples=-1 is out of range"),
    ({"batch_size": 4, "prefetch": 257}, "allowed is 1 to 256"),
    ({"batch_size": 4, "address": "host"}, "none of unix:PATH, HOST:PORT"),
    ({"batch_size": 4, "address": "host:1", "transport": "shm"}, "needs a daemon on this"),
    ({"batch_size": 4, "address": "unix:/tmp/" + "x" * 110}, "107 are the most"),
    ({"batch_size": 4, "reconnect_timeout": -1}, "reconnect_timeout"),
    ({"batch_size": 4, "columns": []}, "columns"),
])
def test_wrong_arguments_name_value_and_limit(client, options, words):
    with pytest.raises(ClientError, match=words) as info:
        client.open(**{"columns": [["label", [["Label", {}]]]], **options})

    assert info.value.kind == "Argument"


# What goes wrong.


def test_a_refused_open_names_the_field(client, over, fake):
    daemon = fake(open_error={"code": 3, "message": "pipeline.image[1].size: -1 is out of range",
                              "field": "pipeline.image[1].size"})

    with pytest.raises(ClientError, match="out of range") as info:
        over(client, daemon)

    assert (info.value.kind, info.value.fields["code"]) == ("OpenError", "INVALID_ARGUMENT")
    assert info.value.fields["field"] == "pipeline.image[1].size"
    daemon.wait_for("closed")


def test_a_busy_daemon_is_unavailable(client, opened, fake):
    daemon = fake(open_error={"code": 14, "message": "the daemon ends"})

    with pytest.raises(ClientError, match="the daemon ends") as info:
        opened(client, daemon)

    assert info.value.kind == "Unavailable"
    assert len(daemon.opens) == 1  # said at once


def test_a_bad_sample_is_an_error_and_the_position_stays(client, over, fake):
    daemon = fake(bad_steps={(0, 1): BAD, (0, 3): BAD})
    loader = over(client, daemon)
    loader.next()
    for _ in range(2):
        with pytest.raises(ClientError, match="ends too early") as info:
            loader.next()
    error = info.value.fields

    assert (error["kind"], error["code"]) == ("SampleError", "DATA_LOSS")
    assert (error["reason"], error["ordinal"], error["sample_name"]) == ("truncated", 7,
                                                                         "cat/7.jpg")
    assert loader.state()["samples"] == 4
    loader.do("load_state", state=error["next_state"])
    assert loader.next()["step"] == 2
    with pytest.raises(ClientError, match="ends too early"):
        loader.next()
    with daemon.lock:
        daemon.behaviour.bad_steps.clear()
    assert places(loader.epoch()) == [(0, 3), (0, 4)]  # a repaired sample is read again


@pytest.mark.parametrize(("code", "kind", "name"), [
    (14, "Unavailable", "UNAVAILABLE"),
    (3, "BatchdError", "INVALID_ARGUMENT"),
    (8, "BatchdError", "RESOURCE_EXHAUSTED"),
])
def test_other_failures_have_their_code(client, opened, fake, code, kind, name):
    failure = {"code": code, "message": "words of the daemon", "ordinal": "-1"}
    loader = opened(client, fake(bad_steps={(0, 0): failure}))

    with pytest.raises(ClientError, match="words of the daemon") as info:
        loader.next()

    assert (info.value.kind, info.value.fields["code"]) == (kind, name)
    assert loader.about()["reconnects"] == 0


def test_no_daemon_is_said_at_once_with_the_way_out(client, opened, fake):
    daemon = fake()
    daemon.stop()

    for address in (f"unix:{daemon.path}", f"unix:{daemon.path}-not"):
        with pytest.raises(ClientError, match=f"batchd serve --listen {address}") as info:
            opened(client, daemon, address=address)
        assert info.value.kind == "Unavailable"


def test_no_daemon_over_grpc_is_unavailable(client, opened, fake):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"

        with pytest.raises(ClientError, match=address) as info:
            opened(client, fake(), address=address)

    assert info.value.kind == "Unavailable"


def test_another_version_of_the_protocol_is_refused(client, opened, fake):
    with pytest.raises(ClientError, match="versions 2 to 5, this client 1 to 1") as info:
        opened(client, fake(hello_versions=(2, 5)))

    assert info.value.kind == "ProtocolError"


@pytest.mark.parametrize("greeting", [b"220 mail.example ESMTP" + bytes(42), b"HTTP/1.1 400"])
def test_a_stranger_behind_the_socket_is_refused(client, opened, folder, greeting):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{folder}/stranger")
    listener.listen()

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(100)
            peer.send(greeting)
            peer.recv(100)

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(ClientError, match="hello") as info:
        client.open(columns=[["label", [["Label", {}]]]], batch_size=1,
                    address=f"unix:{folder}/stranger")
    thread.join()
    listener.close()

    assert info.value.kind == "ProtocolError"


def test_a_batch_of_another_address_is_never_handed_out(client, over, fake):
    loader = over(client, fake(wrong_step_at=1))
    loader.next()

    with pytest.raises(ClientError, match="epoch 0 step 2 .* where epoch 0 step 1") as info:
        loader.next()

    assert info.value.kind == "ProtocolError"
    assert places([loader.next()]) == [(0, 1)]  # by another session


def test_messages_in_fragments_are_understood(client, opened, fake):
    assert places(opened(client, fake(fragment_bytes=50)).epoch()) == ADDRESSES[:5]


# Leases.


def test_a_slab_goes_back_by_release_once_or_with_the_batch(client, opened, fake):
    daemon = fake()
    loader = opened(client, daemon)
    first, second = (loader.next(hold=True)["batch"] for _ in range(2))
    daemon.wait_for("take", 2)
    assert daemon.held() == 2

    loader.do("release", batch=first)
    loader.do("release", batch=first)
    daemon.wait_for("release", 1)
    with pytest.raises(ClientError, match="has been released"):
        loader.do("digest", batch=first)
    with pytest.raises(ClientError, match="has been released"):
        loader.do("copy", batch=first)
    loader.do("drop", batch=first)
    loader.do("drop", batch=second)
    loader.next()  # says so

    daemon.wait_for("release", 2)
    daemon.wait_for("take", 3)
    assert daemon.counts["release"] <= 3


def test_kept_batches_and_copies_are_never_overwritten(client, opened, fake):
    daemon = fake(num_samples=1000, segments_max=100)
    loader = opened(client, daemon, batch_size=10, prefetch=2)
    kept = []
    for number in range(50):
        batch = loader.next(hold=True)
        if number % 2:
            copy = loader.do("copy", batch=batch["batch"])["batch"]
            loader.do("release", batch=batch["batch"])
            batch["batch"] = copy
        kept.append(batch)

    daemon.wait_for("release", 25)
    assert daemon.held() == 25
    for batch in kept:
        assert loader.do("digest", batch=batch["batch"])["digest"] == batch["digest"]
    for batch in kept:
        loader.do("drop", batch=batch["batch"])


def test_batches_outlive_loader_and_daemon(client, opened, fake):
    daemon = fake()
    loader = opened(client, daemon)
    batch = loader.next(hold=True)

    loader.do("close")
    daemon.wait_for("closed")
    daemon.stop()

    assert loader.do("digest", batch=batch["batch"])["digest"] == batch["digest"]
    loader.do("drop", batch=batch["batch"])


def test_a_batch_that_dies_in_another_thread_wakes_next(client, opened, fake, folder):
    os.mkfifo(folder / "when")
    daemon = fake(segments_max=1, slots_extra=0)
    loader = opened(client, daemon, prefetch=2)
    held = [loader.next(hold=True)["batch"] for _ in range(2)]

    client.begin("next", loader=loader.number, drop=held[0], when=str(folder / "when"))
    daemon.wait_for("exhausted")
    started = time.monotonic()
    (folder / "when").write_text("now")

    assert client.end()["step"] == 2
    assert time.monotonic() - started < 4  # the next look would be after five


def test_batches_may_be_read_and_given_back_in_any_thread(client, over, fake):
    daemon = fake(num_samples=1000)
    alone = [batch["digest"] for batch in over(client, daemon).take(200)]
    loader = over(client, daemon)

    assert loader.do("next_in_threads", count=200)["digests"] == alone
    loader.next()
    daemon.wait_for("take", 401)
    assert len(set(alone)) == 200
    assert daemon.held() <= 2  # the last of each loader: the next call says that it is free


def test_slots_exhausted_says_what_is_held_and_is_not_said_of_a_slow_daemon(
    start_client, opened, fake, folder
):
    """Both clients and both cases at once: it takes five seconds."""
    slow, stuck = [], []
    for name in CLIENTS:
        daemon, fifo = fake(segments_max=1, slots_extra=0), folder / name
        os.mkfifo(fifo)
        loader = opened(start_client(name), daemon, prefetch=2)
        held = [loader.next(hold=True)["batch"] for _ in range(2)]
        loader.client.begin("next", loader=loader.number, drop=held[0], when=str(fifo))
        daemon.wait_for("exhausted")
        daemon.lock.acquire()  # a slot comes back, and the daemon does nothing
        fifo.write_text("now")
        slow.append((loader, daemon))
    for name in CLIENTS:
        loader = opened(start_client(name), fake(segments_max=1, slots_extra=1), prefetch=2)
        held = [loader.next(hold=True)["batch"] for _ in range(3)]
        loader.client.begin("next", loader=loader.number)
        stuck.append((loader, held))

    for loader, held in stuck:
        with pytest.raises(ClientError, match=r"holds 3 batches.*[Rr]elease\(\)") as info:
            loader.client.end()
        assert info.value.kind == "SlotsExhausted"
        assert info.value.fields["code"] == "RESOURCE_EXHAUSTED"
        assert info.value.fields["held_slots"] == 3 and info.value.fields["slab_size_bytes"] > 0
        loader.do("drop", batch=held[1])
        assert loader.next()["step"] == 3  # nothing is lost
    for loader, daemon in slow:
        daemon.lock.release()
        assert loader.client.end()["step"] == 2


def test_take_says_whether_next_had_to_wait(client, opened, fake):
    daemon = fake(hold_after=1)
    loader = opened(client, daemon, prefetch=2)
    daemon.wait_for("ready", 1)
    loader.next()
    daemon.wait_for("take", 1)
    client.begin("next", loader=loader.number)
    time.sleep(0.05)  # that much it waits at least
    with daemon.lock:
        daemon.go.set()
        daemon.connections[0]._make()
    client.end()
    daemon.wait_for("take", 2)

    assert [was_ready for _, was_ready, _ in daemon.takes] == [True, False]
    assert daemon.takes[0][2] == 0 and daemon.takes[1][2] > 1_000_000


def test_more_releases_than_a_datagram_holds(client, opened, fake):
    daemon = fake(num_samples=1000, segments_max=100)
    loader = opened(client, daemon, batch_size=1, prefetch=8)
    for batch in [loader.next(hold=True)["batch"] for _ in range(200)]:
        loader.do("drop", batch=batch)
    loader.next()

    daemon.wait_for("release", 200)
    daemon.wait_for("take", 201)


# A daemon that goes and comes back.


@pytest.mark.parametrize("after", [1, 4, 5, 9])
@pytest.mark.parametrize("how", ["die_after", "drain_after"])
def test_nothing_is_lost_and_nothing_comes_twice(client, opened, fake, how, after):
    daemon = fake(**{how: after})
    loader = opened(client, daemon, prefetch=2)

    assert places(loader.take(15)) == ADDRESSES
    assert loader.about()["reconnects"] == 1
    assert daemon.opens[-1]["expected"] == daemon.behaviour.fingerprint


def test_grpc_reconnects_too(client, opened, fake):
    from grpc_bridge import GrpcBridge

    daemon = fake(die_after=3)
    bridge = GrpcBridge(daemon, f"unix:{daemon.path}.grpc")
    loader = opened(client, daemon, transport="grpc", prefetch=2)

    assert places(loader.take(15)) == ADDRESSES
    assert (loader.about()["reconnects"], loader.about()["transport"]) == (1, "grpc")
    loader.do("close")
    bridge.stop()


def test_killed_twenty_times(client, opened, fake):
    daemon = fake(num_samples=400)
    loader = opened(client, daemon, prefetch=2)
    seen = []
    while len(seen) < 400:
        batch = loader.next()
        seen += batch["ids"]
        if batch["step"] % 5 == 2:
            daemon.stop()
            daemon.start()

    assert seen == list(range(400))
    assert 10 <= loader.about()["reconnects"] <= 20


def test_giving_up_keeps_the_position(client, opened, fake):
    daemon = fake()
    loader = opened(client, daemon, prefetch=1, reconnect_timeout=0.2)
    loader.next()
    daemon.stop()

    with pytest.raises(ClientError, match=r"=0\.2.*epoch 0 step") as info:
        while True:
            loader.next()
    assert info.value.kind == "ConnectionLost"

    position = loader.state()["samples"] // 4
    daemon.start()
    assert places(loader.epoch()) == ADDRESSES[position:5]


def test_the_time_limit_comes_from_the_environment(client, start_client, opened, fake):
    daemon = fake()
    own = start_client(client.name, {"BATCHD_RECONNECT_TIMEOUT_SECONDS": "0"})
    loader = own.open(address=f"unix:{daemon.path}", batch_size=4,
                      columns=[["label", [["Label", {}]]]])
    daemon.stop()

    with pytest.raises(ClientError, match="=0") as info:
        while True:
            loader.next()
    assert info.value.kind == "ConnectionLost"


def test_other_data_after_a_restart_are_refused(client, opened, fake):
    daemon = fake()
    loader = opened(client, daemon, prefetch=1)
    loader.next()
    daemon.behaviour.fingerprint = {**daemon.behaviour.fingerprint, "decoder": "f" * 32}
    daemon.stop()
    daemon.start()

    with pytest.raises(ClientError, match="decoder") as info:
        loader.epoch()
    assert info.value.kind == "StateMismatch"


def test_questions_survive_a_restart(client, opened, fake):
    daemon = fake()
    loader = opened(client, daemon)
    daemon.stop()
    daemon.start()

    assert loader.do("names_of", ids=[3])["names"] == ["sample3.jpg"]
    assert loader.about()["reconnects"] == 1


# Processes.


@pytest.mark.parametrize("bare", [False, True])
def test_a_forked_child_cannot_use_the_loader_and_harms_nothing(client, start_client, opened, fake,
                                                                bare):
    daemon = fake()
    own = start_client(client.name)
    loader = opened(own, daemon)
    loader.next(hold=True)
    loader.take(1)
    daemon.wait_for("take", 2)

    assert loader.do("fork", bare=bare)["kinds"] == ["ForkError"] * 3
    assert places(loader.epoch()) == ADDRESSES[2:5]
    daemon.wait_for("release", 3)
    assert 1 in daemon.connections[0].leased  # the first batch is still the parent's
    assert daemon.counts["close"] == 0


def test_a_forked_child_does_not_keep_the_connection(client, start_client, opened, fake, folder):
    os.mkfifo(folder / "stay")
    daemon = fake()
    own = start_client(client.name)
    loader = opened(own, daemon)
    loader.next(hold=True)
    loader.do("fork", stay=str(folder / "stay"))

    try:
        own.kill()
        daemon.wait_for("closed")  # though the child lives
    finally:
        (folder / "stay").write_text("enough")


def test_a_trainer_may_end_with_everything_open(client, over, start_client, fake):
    daemon = fake()
    own = start_client(client.name)
    over(own, daemon).next(hold=True)

    own.close()
    daemon.wait_for("closed")
