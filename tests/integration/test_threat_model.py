# SPDX-License-Identifier: Apache-2.0
"""What docs/concepts/threat-model.md says of a running daemon, also what it says against it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from daemon import Daemon, run, wait_until
from pictures import make_numbered_folder

import batchd
from batchd import transforms as T

NOBODY = 65534
LABEL = {"label": T.Label()}

# A client with nothing of batchd's: says hello, opens nothing, prints what it is told.
STRANGER = """
import socket, struct, sys
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.settimeout(30)
try:
    peer.connect(sys.argv[1])
except PermissionError:
    sys.exit("may not connect")
peer.send(bytes.fromhex(sys.argv[2]))
print([peer.recv(70000) for _ in range(int(sys.argv[3]))])
"""


def mode_of(path: str | pathlib.Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def open_folder(root: pathlib.Path | str, daemon: Daemon, **options) -> batchd.Loader:
    dataset = root if isinstance(root, str) else batchd.ImageFolder(root)
    return batchd.Loader(dataset, options.pop("columns", LABEL), batch_size=1,
                         address=daemon.address, **options)


@pytest.mark.parametrize(("flags", "mode"), [((), 0o660), (("--private",), 0o600)])
def test_the_sockets_modes_say_who_may_connect(flags, mode):
    before = os.umask(0)  # nothing may depend on it
    try:
        with Daemon((), *flags) as daemon:
            assert {mode_of(daemon.socket), mode_of(f"{daemon.socket}.grpc")} == {mode}
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("by_mode", [True, False])
def test_another_user_is_not_served_by_a_private_daemon(tmp_path, by_mode):
    from batchd.wire import pack_hello

    with Daemon((), "--private") as daemon:
        daemon.folder.chmod(0o755)
        if not by_mode:  # as if it had come through all the same
            os.chmod(daemon.socket, 0o666)
        done = subprocess.run(["/usr/bin/python3", "-c", STRANGER, str(daemon.socket),
                               pack_hello().hex(), "2"], capture_output=True, text=True, cwd="/",
                              user=NOBODY, group=NOBODY, timeout=60, check=False)

    said = "may not connect" if by_mode else f"this daemon serves uid 0 only, not uid {NOBODY}"
    assert said in done.stdout + done.stderr


def test_links_out_of_a_root_are_not_followed_and_those_of_a_named_dataset_are(tmp_path):
    outside = make_numbered_folder(tmp_path / "outside", 2, classes=1)
    root = tmp_path / "root"
    (root / "cat").mkdir(parents=True)
    shutil.copy(outside / "c000" / "000000.jpg", root / "cat" / "own.jpg")
    (root / "cat" / "link.jpg").symlink_to(outside / "c000" / "000001.jpg")
    config = {"datasets": {"named": {"kind": "ImageFolder", "arguments": {"root": str(root)}}}}
    (tmp_path / "c.json").write_text(json.dumps(config))

    with Daemon((root,), "--config", str(tmp_path / "c.json")) as daemon:
        with open_folder(root, daemon) as confined, open_folder("named", daemon) as named:
            assert confined.name_of(range(confined.num_samples)) == ["cat/own.jpg"]
            assert named.name_of(range(named.num_samples)) == ["cat/link.jpg", "cat/own.jpg"]
        with pytest.raises(batchd.OpenError) as caught:
            open_folder(outside, daemon)
    assert caught.value.code == "PERMISSION_DENIED"


def test_of_a_file_that_is_no_picture_an_error_shows_16_bytes(daemon, tmp_path):
    root = make_numbered_folder(tmp_path / "d", 1)
    (root / "c000" / "secret.jpg").write_bytes(b"0123456789abcdefSECRET")

    with open_folder(root, daemon, columns={"image": [T.DecodeImage(), T.Resize((8, 8))]}) as one:
        with pytest.raises(batchd.SampleError) as caught:
            list(one)
    assert "0123456789abcdef" in str(caught.value) and "SECRET" not in str(caught.value)


def test_http_and_status_tell_everybody_jobs_and_folders(daemon, tmp_path):
    root = make_numbered_folder(tmp_path / "d", 2)

    with open_folder(root, daemon, name="job-a") as one:
        next(iter(one))
        status = run("status", daemon.address).stdout
        wait_until(lambda: "job=job-a" in daemon.get("/"))  # it is made once a second
        page, metrics = daemon.get("/"), daemon.get("/metrics")

    assert "job=job-a" in status and str(root) in status and str(root) in page
    assert 'job="job-a"' in metrics


def test_an_index_is_readable_for_all(tmp_path):
    root = make_numbered_folder(tmp_path / "d", 2)

    assert run("index", str(root)).returncode == 0

    assert mode_of(root / ".batchd-index") == 0o644
