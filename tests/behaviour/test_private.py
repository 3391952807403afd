# SPDX-License-Identifier: Apache-2.0
"""The private daemon, which both clients start alike and share. The fake is its program."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import stat
import sys

import pytest
from clients import CLIENTS, ClientError
from conftest import COLUMNS, TESTS


@pytest.fixture
def private(folder, monkeypatch):
    """XDG_RUNTIME_DIR of the drivers that are started now."""
    binary = folder / "program"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} {TESTS / "python/fake_daemon.py"} "$@"\n')
    binary.chmod(0o755)
    (folder / "starts").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("BATCHD_BINARY", str(binary))
    monkeypatch.setenv("FAKE_DAEMON_STARTS", str(folder / "starts"))
    yield folder
    for pid in starts(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(params=CLIENTS)
def name(request) -> str:
    return request.param


def starts(folder) -> list[int]:
    return [int(pid) for pid in (folder / "starts").read_text().split()]


def read(client, **options):
    return client.open(columns=COLUMNS, batch_size=4, **options)


def test_it_is_started_where_both_clients_look(name, private, start_client):
    ends = os.pipe()
    loader = read(start_client(name, pass_fds=ends))
    for end in ends:
        os.close(end)
    assert [batch["step"] for batch in loader.epoch()] == [0, 1, 2, 3, 4]
    assert "private daemon" in loader.about()["text"]

    folder = private / "batchd" / "1" / "local"
    assert stat.S_ISSOCK((folder / "sock").stat().st_mode)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (pid,) = starts(private)
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    parent, session = fields[1], fields[3]
    assert int(session) != os.getsid(loader.client.pid)
    assert int(parent) != loader.client.pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    files = [os.readlink(file) for file in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    assert not [file for file in files if file.startswith("pipe:")]  # nothing of its starter's


def test_many_processes_of_both_clients_at_once_get_one_daemon(private, start_client):
    clients = [start_client(name) for name in CLIENTS * 4]
    for client in clients:
        client.begin("open", options={"columns": COLUMNS, "batch_size": 4})
    for client in clients:
        assert client.end()["loader"] == 1

    assert len(starts(private)) == 1


def test_one_that_dies_is_started_again(name, private, start_client):
    loader = read(start_client(name), prefetch=1)
    loader.next()
    os.kill(starts(private)[0], signal.SIGKILL)

    assert [batch["step"] for batch in loader.epoch()] == [1, 2, 3, 4]
    assert loader.about()["reconnects"] == 1
    assert len(starts(private)) == 2


def test_one_that_is_about_to_end_gets_another_chance(name, private, start_client):
    read(start_client(name, {"FAKE_DAEMON_REFUSES": "1"}))


def test_a_job_has_its_own(name, private, start_client):
    read(start_client(name, {"SLURM_JOB_ID": "12/../3"}))

    assert (private / "batchd" / "1" / "12_.._3" / "sock").exists()


def test_one_that_fails_shows_its_log(name, private, start_client):
    with pytest.raises(ClientError, match="has ended; .*\n.*no cores left") as info:
        read(start_client(name, {"FAKE_DAEMON_FAILS": "1"}))
    assert info.value.kind == "Unavailable"


def test_a_missing_program_says_how_to_name_it(name, private, start_client, monkeypatch):
    with pytest.raises(ClientError, match="BATCHD_BINARY=/nowhere/batchd") as info:
        read(start_client(name, {"BATCHD_BINARY": "/nowhere/batchd"}))
    assert info.value.fields["code"] == "NOT_FOUND"

    with pytest.raises(ClientError, match=r"on PATH.*BATCHD_BINARY.*BATCHD_ADDRESS"):
        read(start_client(name, {"BATCHD_BINARY": "", "PATH": "/nowhere"}))


def test_a_folder_that_others_can_enter_is_refused(name, private, start_client):
    client = start_client(name)
    (private / "batchd").mkdir(mode=0o755)
    with pytest.raises(ClientError, match=r"is not a folder of user \d+ alone"):
        read(client)

    (private / "batchd").rmdir()
    (private / "elsewhere").mkdir(mode=0o700)
    (private / "batchd").symlink_to(private / "elsewhere")
    with pytest.raises(ClientError, match="alone"):
        read(client)
