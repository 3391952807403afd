# SPDX-License-Identifier: Apache-2.0
"""Both clients against the real daemon: the same bytes, through everything that ends."""

from __future__ import annotations

import pathlib

import pytest
from clients import CLIENTS, ClientError
from daemon import Daemon, wait_until
from pictures import make_photo_folder

COLUMNS = [["image", [["DecodeImage", {}], ["RandomResizedCrop", {"size": 20}],
                      ["RandomHorizontalFlip", {}], ["ToTensor", {}], ["Normalize", {}],
                      ["Cast", {"dtype": "bfloat16"}]]],
           ["label", [["Label", {}]]]]
STEPS = 32  # 256 pictures in batches of 8


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> pathlib.Path:
    return make_photo_folder(tmp_path_factory.mktemp("p256"), 256)


@pytest.fixture
def daemon():
    with Daemon() as running:
        yield running


def read(client, daemon, photos, **options):
    options.setdefault("columns", COLUMNS)
    return client.open(address=daemon.address, root=str(photos), batch_size=8, shuffle="feistel",
                       seed=3, **options)


def digests(batches):
    return [batch["digest"] for batch in batches]


@pytest.fixture(scope="module")
def undisturbed(photos) -> list[int]:
    """Two epochs, as the Python client sees them."""
    from clients import Client

    with Daemon() as daemon:
        client = Client("python")
        seen = digests(read(client, daemon, photos).take(2 * STEPS))
        client.close()
    return seen


@pytest.mark.parametrize("transport", ["shm", "grpc"])
def test_every_client_and_carrier_sees_the_same_bytes(client, daemon, photos, undisturbed,
                                                      transport):
    loader = read(client, daemon, photos, transport=transport)

    assert loader.about()["steps"] == STEPS
    assert digests(loader.take(2 * STEPS)) == undisturbed
    loader.do("close")
    wait_until(lambda: daemon.metric("batchd_sessions") == 0, 5)


def test_a_seek_goes_there_and_nowhere_else(client, daemon, photos, undisturbed):
    loader = read(client, daemon, photos, prefetch=8)
    for epoch in (1, 0, 1):
        loader.do("set_epoch", epoch=epoch)
        assert digests(loader.take(3)) == undisturbed[epoch * STEPS : epoch * STEPS + 3]
    loader.do("close")


def test_daemon_and_trainers_killed_in_turn_lose_nothing(start_client, photos, undisturbed):
    """Each trainer is killed and followed by one of the other client, with its state; the daemon is
    killed under each.
    """
    seen, state = [], None
    with Daemon() as daemon:
        for number in range(6):
            client = start_client(CLIENTS[number % 2])
            loader = read(client, daemon, photos, prefetch=2 + number % 3)
            if state is not None:
                loader.do("load_state", state=state)
            for half in range(2):
                batches = loader.take(5)
                seen += digests(batches)
                state = batches[-1]["state"]
                if half == 0:
                    daemon.kill()
                    daemon.start()
            assert loader.about()["reconnects"] == 1
            client.kill()
        wait_until(lambda: daemon.metric("batchd_sessions") == 0, 10, "no session is left")
    assert seen == undisturbed[: len(seen)] and len(seen) == 60


def test_a_drained_daemon_hands_over(client, photos, undisturbed):
    with Daemon(("/",), "--drain-timeout=1") as daemon:
        loader = read(client, daemon, photos)
        seen = digests(loader.take(3))
        assert daemon.terminate() == 0
        daemon.start()
        seen += digests(loader.take(7))
        loader.do("close")
    assert seen == undisturbed[:10]


def test_names_and_classes(client, daemon, photos):
    loader = read(client, daemon, photos)
    batch = loader.next()

    assert loader.do("classes")["names"] == ["c000", "c001", "c002", "c003"]
    names = loader.do("names_of", ids=batch["ids"])["names"]
    assert all((photos / name).is_file() for name in names) and len(names) == 8
    loader.do("close")


@pytest.mark.parametrize(("options", "code", "parts"), [
    ({"columns": [["image", [["DecodeImage", {}], ["Normalize", {}]]]]}, "INVALID_ARGUMENT",
     ["pipeline.image[1]", "ToTensor"]),
    ({"columns": [["image", [["DecodeImage", {}], ["Resize", {"size": [1, 0]}]]]]},
     "INVALID_ARGUMENT", ["pipeline.image[1].size"]),
])
def test_a_refused_open_says_what_is_wrong(client, daemon, photos, options, code, parts):
    with pytest.raises(ClientError) as info:
        read(client, daemon, photos, **options)

    assert (info.value.kind, info.value.fields["code"]) == ("OpenError", code)
    assert all(part in str(info.value) for part in parts)


def test_a_bad_picture_can_be_passed(client, daemon, tmp_path):
    make_photo_folder(tmp_path / "d", 16)
    bad = sorted((tmp_path / "d").rglob("*.jpg"))[9]
    bad.write_bytes(bad.read_bytes()[:100])
    loader = client.open(address=daemon.address, root=str(tmp_path / "d"), batch_size=4,
                         columns=COLUMNS)
    batches = loader.take(2)
    with pytest.raises(ClientError, match=bad.name) as info:
        loader.next()
    assert info.value.kind == "SampleError"
    assert (info.value.fields["ordinal"], info.value.fields["reason"]) == (9, "truncated")
    loader.do("load_state", state=info.value.fields["next_state"])

    batches += loader.epoch()
    assert [batch["step"] for batch in batches] == [0, 1, 3]
    loader.do("close")


def test_a_private_daemon_of_the_real_program(client, start_client, folder, photos, undisturbed):
    from daemon import BINARY

    env = {"XDG_RUNTIME_DIR": str(folder), "BATCHD_BINARY": BINARY,
           "BATCHD_PRIVATE_LINGER_SECONDS": "2"}
    own = start_client(client.name, env)
    loader = own.open(root=str(photos), batch_size=8, shuffle="feistel", seed=3, columns=COLUMNS)
    assert digests(loader.take(2)) == undisturbed[:2]
    own.close()
    socket = folder / "batchd" / "1" / "local" / "sock"
    wait_until(lambda: not socket.exists(), 20, "the daemon has ended")
