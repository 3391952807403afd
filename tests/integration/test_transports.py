# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of transports: what every way of handing batches over must do."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from daemon import TRANSPORTS, Daemon, wait_until
from raw_client import (
    HELLO,
    MAGIC,
    RELEASE,
    answer_to,
    connect,
    fragment,
    hello,
    next_ready,
    opened,
    receive_all,
)
from rows import batch_digest

import batchd
from batchd import transforms as T

COLUMNS = {"image": [T.DecodeImage(), T.RandomResizedCrop(20), T.ToTensor(), T.Normalize(),
                     T.Cast("bfloat16")],
           "label": T.Label()}


def loader(daemon, root, transport, **options):
    options.setdefault("batch_size", 32)
    return batchd.Loader(batchd.ImageFolder(str(root)), options.pop("columns", COLUMNS),
                         shuffle=True, seed=3, address=daemon.address, transport=transport,
                         **options)


def test_all_transports_deliver_equal_bytes(daemon, photos_256):
    runs = []
    for transport in TRANSPORTS:
        with loader(daemon, photos_256, transport, last_batch="pad", batch_size=48) as one:
            runs.append([batch_digest(b) for _ in range(2) for b in one])
    assert len(runs[0]) == 12
    assert all(run == runs[0] for run in runs)


def test_the_epoch_ends_where_its_length_says(daemon, photos_256, transport):
    with loader(daemon, photos_256, transport) as one:
        for epoch in range(3):
            batches = [(b.epoch, b.step) for b in one]
            assert batches == [(epoch, step) for step in range(len(one))]


def test_a_seek_goes_there_and_nowhere_else(daemon, photos_256, transport):
    with loader(daemon, photos_256, transport, prefetch=8) as one:
        for epoch in (5, 2, 9):
            one.set_epoch(epoch)
            for batch in one:
                assert batch.epoch == epoch
                if batch.step == 2:
                    break


def test_a_dead_client_leaves_nothing(daemon, photos_256, transport):
    code = ("import sys, time, batchd, test_transports as t\n"
            "class D: address = sys.argv[1]\n"
            "one = iter(t.loader(D, sys.argv[2], sys.argv[3]))\n"
            "next(one); print(flush=True); sys.stdin.read()")
    env = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    with subprocess.Popen([sys.executable, "-c", code, daemon.address, str(photos_256), transport],
                          stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=env) as client:
        assert client.stdout.readline()
        assert daemon.metric("batchd_sessions") == 1
        client.kill()
        client.wait()
        wait_until(lambda: daemon.metric("batchd_sessions") == 0, 5, "the session is gone")


def test_a_slow_client_stops_its_own_stages_and_nobody_elses(daemon, photos_256, transport):
    with loader(daemon, photos_256, transport, prefetch=2) as slow:
        batches = iter(slow)
        held = next(batches)
        made = daemon.metric("batchd_samples_decoded_total")
        with loader(daemon, photos_256, transport) as fast:
            assert len([1 for _ in fast]) == len(fast)
        assert daemon.metric("batchd_sessions") >= 1
        decoded = daemon.metric("batchd_samples_decoded_total") - made
        # The fast one's epoch and what it had ahead; of the slow one at most its prefetch.
        assert decoded <= 32 * (len(fast) + 4 + 1 + 2 + 2)
        assert held.rows == 32
        assert [b.step for b in batches] == list(range(1, len(slow)))


@pytest.mark.parametrize("change,code,parts", [
    (dict(columns={"image": [T.DecodeImage(), T.Normalize()]}), "INVALID_ARGUMENT",
     ["pipeline.image[1]", "ToTensor"]),
    (dict(batch_size=1000), "FAILED_PRECONDITION", ["256", "1000"]),
    (dict(batch_size=2**12, columns={"image": [T.DecodeImage(), T.Resize((2000, 2000))]},
          last_batch="pad"), "RESOURCE_EXHAUSTED", ["bytes", "--memory"]),
])
def test_a_refused_open_says_what_is_wrong(daemon, photos_256, transport, change, code, parts):
    with pytest.raises(batchd.OpenError) as raised:
        loader(daemon, photos_256, transport, **change)
    assert raised.value.code == code
    for part in parts:
        assert part in str(raised.value)
    wait_until(lambda: daemon.metric("batchd_sessions") == 0, 5)


def test_a_folder_that_is_not_there_is_named(daemon, tmp_path, transport):
    with pytest.raises(batchd.OpenError, match="nowhere"):
        loader(daemon, tmp_path / "nowhere", transport)


def test_a_drained_daemon_hands_over(photos_256, transport):
    # The trainer takes nothing while it waits for the daemon's end, so that it is the time limit
    # that ends the drain.
    with Daemon(("/",), "--drain-timeout=1") as daemon:
        with loader(daemon, photos_256, transport) as one:
            whole = [batch_digest(b) for b in one]
        with loader(daemon, photos_256, transport) as one:
            seen = []
            for batch in one:
                seen.append(batch_digest(batch))
                if len(seen) == 3:
                    del batch
                    assert daemon.terminate() == 0
                    daemon.start()
        assert seen == whole


def test_a_state_of_other_data_is_refused(daemon, photos_256, numbered_103, transport):
    with loader(daemon, photos_256, transport) as one:
        next(iter(one))
        state = one.state_dict()
    assert len(json.dumps(state)) < 1024
    with loader(daemon, numbered_103, transport) as other:
        with pytest.raises(batchd.StateMismatch) as raised:
            other.load_state_dict(state)
        assert state["dataset"] in str(raised.value)
        assert other.state_dict()["dataset"] in str(raised.value)
    changed = {**COLUMNS, "image": [T.DecodeImage(), T.RandomResizedCrop(24)]}
    with loader(daemon, photos_256, transport, columns=changed) as other:
        with pytest.raises(batchd.StateMismatch, match="pipeline"):
            other.load_state_dict(state)
        other.load_state_dict(state, strict=False)
        assert next(iter(other)).step == 1


def test_names_and_classes(daemon, photos_256, transport):
    with loader(daemon, photos_256, transport) as one:
        assert one.classes == ["c000", "c001", "c002", "c003"]
        batch = next(iter(one))
        names = one.name_of(batch.sample_ids)
        assert [one.class_to_idx[name.split("/")[0]] for name in names] == \
            batch["label"].numpy().tolist()


# The socket door alone: what a peer that is no batchd client may send.


def test_another_version_is_told_which_there_are(daemon):
    peer = connect(daemon.socket)
    peer.send(HELLO.pack(MAGIC, 7, 9, 0, 0))
    (answer,) = receive_all(peer)
    _, low, high, _, _ = HELLO.unpack(answer)
    assert (low, high) == (1, 1)


def test_an_unknown_field_of_a_later_client_is_no_fault(daemon, numbered_103):
    peer = connect(daemon.socket)
    peer.send(HELLO.pack(MAGIC, 1, 3, 0, 1 << 40))
    peer.recv(64)
    peer.send(fragment(b'{"open": {"laterField": {"x": [1]}, "dataset": {"name": "nothing"}}}'))
    assert b"pipeline.columns" in b"".join(receive_all(peer))


@pytest.mark.parametrize("datagrams", [
    [b"\x00" * 64],
    [b"GET / HTTP/1.1\r\n\r\n"],
    [hello()[:63]],
    [hello(), b"\x07" + b"\x00" * 63],
    [hello(), b"\x03" + b"\xff" * 63],
    [hello(), b"\x02" * 65],
    [hello(), fragment(b"{" * 1000)],
    [hello(), fragment(b"x", 0, 2**31)],
    [hello(), fragment(b"x" * 60000, 0, 1 << 20)] +
    [fragment(b"x" * 60000, 0, 1 << 20)] * 20,
    [hello(), fragment(b"xx", 1, 1)],
])
def test_nonsense_ends_the_connection_and_nothing_else(daemon, numbered_103, datagrams):
    peer = connect(daemon.socket)
    try:
        for datagram in datagrams:
            peer.send(datagram)
    except (BrokenPipeError, ConnectionResetError):
        pass
    receive_all(peer)
    with loader(daemon, numbered_103, "shm", columns={"label": T.Label()}) as one:
        assert next(iter(one)).rows == 32


def test_a_release_that_fits_nothing_ends_the_session(daemon, numbered_103):
    peer = opened(daemon.socket, numbered_103)
    peer.send(answer_to(next_ready(peer), RELEASE, sequence=999))
    assert b"999" in b"".join(receive_all(peer))
    wait_until(lambda: daemon.metric("batchd_sessions") == 0, 5)


def test_descriptors_that_a_client_sends_are_closed(daemon):
    before = daemon.open_files()
    peer = connect(daemon.socket)
    with open("/dev/null") as null:
        socket.send_fds(peer, [hello()], [null.fileno()] * 50)
    peer.recv(64)
    wait_until(lambda: daemon.open_files() <= before + 3, 5)
    peer.close()
    wait_until(lambda: daemon.open_files() <= before, 5)


def test_two_daemons_at_one_socket(daemon):
    with pytest.raises(RuntimeError, match=f"(?s)ended with 75.*{daemon.pid}"):
        Daemon(folder=daemon.folder)
    assert daemon.metric("batchd_sessions") == 0


def test_many_clients_at_once(daemon, numbered_103):
    loaders = [loader(daemon, numbered_103, "shm", columns={"label": T.Label()}, name=f"j{i}")
               for i in range(40)]
    assert daemon.metric("batchd_sessions") == 40
    digests = {tuple(batch_digest(b) for b in one) for one in loaders}
    assert len(digests) == 1
    for one in loaders:
        one.close()
    wait_until(lambda: daemon.metric("batchd_sessions") == 0, 5)


def test_the_daemon_survives_a_client_that_never_reads(daemon, numbered_103):
    stopped = opened(daemon.socket, numbered_103)
    with loader(daemon, numbered_103, "shm", columns={"label": T.Label()}) as one:
        assert sum(b.rows for b in one) == 96
    os.kill(daemon.pid, signal.SIGCONT)
    stopped.close()
