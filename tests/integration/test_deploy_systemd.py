# SPDX-License-Identifier: Apache-2.0
"""deploy/systemd and the page about it: units that systemd takes, a daemon that does its part.

There is no systemd here that would start a service. service_manager.py does what it does, with the
unit's own command and system calls; systemd-socket-activate is systemd's own.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import threading

import pytest
from daemon import BINARY, run, wait_until
from pictures import make_numbered_folder
from service_manager import SECONDS, ServiceManager, confinement

import batchd
from batchd import transforms as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
PAGE = ROOT / "docs" / "how-to" / "run-as-a-systemd-service.md"
BUILD = pathlib.Path(BINARY).resolve().parents[2]


@pytest.fixture
def short():
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="bd") as path:
        yield pathlib.Path(path)


@pytest.fixture
def manager(short):
    with ServiceManager(short) as running:
        yield running


def parse_unit(path: pathlib.Path) -> dict[str, list[str]]:
    """key → its values in order, of all sections."""
    unit: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            unit.setdefault(key, []).append(value)
    return unit


def loader_of(root: pathlib.Path, address: str, **more) -> batchd.Loader:
    columns = {"image": T.DecodeImage(), "label": T.Label()}
    return batchd.Loader(batchd.ImageFolder(str(root)), columns, address=address,
                         **{"batch_size": 10, "prefetch": 2, **more})


# The units.


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True,
                          timeout=SECONDS)


@pytest.mark.release_only
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path):
    for name in ("batchd.service", "batchd.socket"):
        text = (UNITS / name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/bin/batchd", BINARY))

    done = systemd_analyze("verify", "--recursive-errors=yes",
                           *(str(tmp_path / name) for name in ("batchd.service", "batchd.socket")))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.release_only
def test_the_service_s_exposure_is_3_at_most():
    done = systemd_analyze("security", "--offline=true", "--threshold=30",
                           str(UNITS / "batchd.service"))
    assert done.returncode == 0, done.stdout


def test_units_and_configuration_speak_of_one_socket():
    service, socket_unit = parse_unit(UNITS / "batchd.service"), parse_unit(UNITS / "batchd.socket")
    config = json.loads((UNITS / "config.json").read_text())

    path = socket_unit["ListenSequentialPacket"][0]
    assert config["listen"] == [f"unix:{path}"]
    assert path.startswith(f"/run/{service['RuntimeDirectory'][0]}/")
    assert config["state_dir"] == f"/var/cache/{service['CacheDirectory'][0]}"
    assert socket_unit["SocketUser"] == service["User"]
    assert f"u {service['User'][0]} " in (UNITS / "batchd.sysusers").read_text()


# The daemon's part.


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_the_service_runs_confined_and_a_restart_loses_nothing(manager, short, isolation):
    """A trainer comes before the daemon and stays through a restart; its socket is systemd's."""
    service = parse_unit(UNITS / "batchd.service")
    config = json.loads((UNITS / "config.json").read_text())
    root = make_numbered_folder(short / "data", 400)
    config |= {"listen": [f"unix:{manager.path}"], "root": [str(root)],
               "state_dir": str(short / "cache"), "http": "127.0.0.1:0",
               "decode_isolation": isolation}
    (short / "config.json").write_text(json.dumps(config))
    command = service["ExecStart"][0].replace("/usr/bin/batchd", BINARY)
    command = command.replace("/etc/batchd/config.json", str(short / "config.json"))
    # A sanitizer makes system calls of its own.
    confine = None if "asan" in BINARY else confinement(service)

    def start() -> subprocess.Popen[bytes]:
        return manager.start(*shlex.split(command), confine=confine)

    first = start()
    ids = []
    with loader_of(root, f"unix:{manager.path}") as loader:
        manager.hear_until("READY=1")
        http = re.search(r" ready .*http=(\S+)", manager.log.read_text())[1]
        assert run("health", "--http", http).returncode == 0
        assert run("status", f"unix:{manager.path}").returncode == 0  # by gRPC
        restart = threading.Thread(target=lambda: first.wait(SECONDS) == 0 and start())
        restart.start()
        for batch in loader:
            ids += batch.sample_ids.tolist()
            if len(ids) == 100:
                first.send_signal(signal.SIGTERM)
                manager.hear_until("STOPPING=1")
        restart.join()
        manager.hear_until("READY=1")
        assert ids == list(range(400)), manager.log.read_text()
        assert loader.reconnects >= 1
    second = manager.children[-1]
    assert second is not first
    second.send_signal(signal.SIGTERM)
    assert (first.returncode, second.wait(SECONDS)) == (0, 0), manager.log.read_text()
    assert manager.path.is_socket()
    assert not pathlib.Path(f"{manager.path}.lock").exists()


@pytest.mark.release_only
def test_what_the_unit_forbids_would_kill():
    """Else the test above could not fail."""
    confine = confinement(parse_unit(UNITS / "batchd.service"))
    for script in ("import os; os.chroot('/')",
                   "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
                   "import mmap; mmap.mmap(-1, 4096, prot=7)"):
        done = subprocess.run(["/usr/bin/python3", "-c", script], preexec_fn=confine,
                              capture_output=True, timeout=SECONDS)
        assert done.returncode == -signal.SIGSYS, script


def test_a_trainer_starts_the_daemon_by_its_connection(short):
    root = make_numbered_folder(short / "data", 20)
    path = short / "sock"
    with open(short / "log", "wb") as log:
        activator = subprocess.Popen(
            ["systemd-socket-activate", "--seqpacket", f"--listen={path}", BINARY, "serve",
             "--listen", f"unix:{path}", "--http", "127.0.0.1:0", "--root", str(root)], stderr=log)
    try:
        wait_until(lambda: b"Listening on" in (short / "log").read_bytes(), what="listening")
        assert b"ready" not in (short / "log").read_bytes()
        with loader_of(root, f"unix:{path}") as loader:
            assert sum(batch.rows for batch in loader) == 20
        activator.terminate()  # it has become the daemon
        assert activator.wait(SECONDS) == 0
    finally:
        if activator.poll() is None:
            activator.kill()
            activator.wait()


def test_a_second_signal_leaves_systemd_s_socket_there(manager, short):
    root = make_numbered_folder(short / "data", 40)
    daemon = manager.serve("--listen", f"unix:{manager.path}", "--root", str(root))
    manager.hear_until("READY=1")
    with loader_of(root, f"unix:{manager.path}") as loader:
        next(iter(loader))  # what lies ready besides is not taken, so the drain goes on
        daemon.send_signal(signal.SIGTERM)
        manager.hear_until("STOPPING=1")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(SECONDS) == 128 + signal.SIGTERM
    assert manager.path.is_socket()
    assert not pathlib.Path(f"{manager.path}.grpc").exists()


def test_the_watchdog_hears_that_the_loop_runs(manager):
    daemon = manager.serve("--listen", f"unix:{manager.path}", WATCHDOG_USEC="200000")
    manager.hear_until("READY=1")
    assert [manager.hear() for _ in range(3)] == ["WATCHDOG=1"] * 3
    daemon.terminate()
    manager.hear_until("STOPPING=1")
    assert daemon.wait(SECONDS) == 0


def test_another_process_s_watchdog_hears_nothing(manager):
    daemon = manager.serve("--listen", f"unix:{manager.path}", WATCHDOG_USEC="200000",
                           WATCHDOG_PID="1")
    assert manager.hear() == "READY=1"
    daemon.terminate()
    assert manager.hear() == "STOPPING=1"


def test_a_passed_socket_that_nothing_is_to_listen_at_is_refused(manager, short):
    daemon = manager.serve("--listen", f"unix:{short}/other")
    assert daemon.wait(SECONDS) == 64
    assert f"--listen unix:{manager.path}" in manager.log.read_text()
    assert not (short / "other").exists()


def test_a_passed_socket_of_another_kind_is_refused(short):
    with ServiceManager(short, socket.SOCK_STREAM) as manager:
        daemon = manager.serve("--listen", f"unix:{manager.path}")
        assert daemon.wait(SECONDS) == 64
        assert "ListenSequentialPacket=" in manager.log.read_text()


def test_sockets_that_were_passed_to_another_process_are_not_taken(manager, short):
    path = short / "own"
    daemon = manager.start("env", "LISTEN_PID=1", BINARY, "serve", "--http", "127.0.0.1:0",
                           "--listen", f"unix:{path}")
    manager.hear_until("READY=1")
    assert path.is_socket()
    daemon.terminate()
    assert daemon.wait(SECONDS) == 0
    assert not path.exists()


# The page.


@pytest.mark.release_only
def test_the_page_s_commands_install_what_systemd_enables(tmp_path):
    """In a root of its own; what needs a running systemd is left out."""
    block = re.search(r"## Install it\n.*?```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    lines = [line.split("#")[0].strip() for line in block.splitlines()]
    kept = [line for line in lines if line and not line.startswith("cmake")
            and "daemon-reload" not in line]
    assert len(kept) == len(lines) - 2, lines
    script = "set -e\n" + "\n".join(kept)
    for ours, here in (("sudo ", ""), ("build/release", str(BUILD)), ("enable --now", "enable"),
                       ("systemctl ", f"systemctl --root={tmp_path} "),
                       ("systemd-sysusers", f"systemd-sysusers --root={tmp_path}"),
                       (" /etc/", f" {tmp_path}/etc/")):
        assert ours in script
        script = script.replace(ours, here)
    (tmp_path / "etc").mkdir()
    subprocess.run(["bash", "-c", script], check=True, cwd=ROOT, timeout=SECONDS,
                   env={**os.environ, "DESTDIR": str(tmp_path)})

    assert run("--version", executable=str(tmp_path / "usr/bin/batchd")).returncode == 0
    wants = tmp_path / "etc/systemd/system"
    for wanted_by in ("multi-user.target.wants/batchd.service",
                      "sockets.target.wants/batchd.socket"):
        target = os.readlink(wants / wanted_by)
        assert (tmp_path / target.lstrip("/")).read_text() == (
            UNITS / pathlib.Path(wanted_by).name).read_text()
    assert "batchd:" in (tmp_path / "etc/passwd").read_text()
    assert (tmp_path / "etc/batchd/config.json").is_file()


def test_the_page_shows_the_configuration_that_is_installed():
    shown = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])

    assert shown == json.loads((UNITS / "config.json").read_text())
