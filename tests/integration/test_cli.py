# SPDX-License-Identifier: Apache-2.0
"""The program as its user types it: what commands do, what they say when they cannot, their exit
codes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import pytest
from daemon import BINARY, Daemon, run, wait_until
from pictures import make_numbered_folder

import batchd
from batchd import private
from batchd import transforms as T

FAILED, USAGE, DATA, UNAVAILABLE, OTHER_DAEMON, CONFIG = 1, 64, 65, 69, 75, 78
NUMBERS = re.compile(r"\b(0|1|64|65|69|70|75|78) ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """12 pictures in 4 classes."""
    return make_numbered_folder(tmp_path_factory.mktemp("cli") / "images", 12)


@pytest.fixture
def short():
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="bd") as path:
        yield pathlib.Path(path)


def refused(code: int, *arguments: str, **options) -> str:
    """What the program says on refusing: on stderr, with this exit code and nothing on stdout."""
    done = run(*arguments, **options)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    return done.stderr


# What is typed wrong.


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "--help"),
    (("nonsense",), "nonsense"),
    (("serve",), "--listen"),
    (("serve", "--lissten", "unix:s"), "--lissten"),
    (("serve", "--listen", "nowhere"), "unix:PATH"),
    (("serve", "--listen", "unix:s", "--cpus", "0"),
     "--cpus=0: must be a whole number from 1 to 1024"),
    (("serve", "--listen", "unix:s", "--cpus", "1.5"), "--cpus=1.5"),
    (("serve", "--listen", "unix:s", "--memory", "1M"), "--memory=1M: must be"),
    (("serve", "--listen", "unix:s", "--root", "/no/such/folder"), "--root=/no/such/folder"),
    (("serve", "--listen", "unix:s", "--log-format", "xml"), "--log-format=xml"),
    (("serve", "--listen", "unix:s", "--drain-timeout", "-1"), "--drain-timeout=-1"),
    (("plan", "FOLDER"), "--batch-size"),
    (("plan", "FOLDER", "--batch-size", "2", "--global-batch-size", "2"), "one of"),
    (("plan", "FOLDER", "--batch-size", "2", "--rank", "3"), "--rank=3"),
    (("plan", "FOLDER", "--batch-size", "2", "--kind", "Imagefolder"), "--kind=Imagefolder"),
    (("plan", "FOLDER", "--batch-size", "2", "--pipeline", "{"), "--pipeline"),
    (("plan", "FOLDER", "--batch-size", "2", "--pipeline",
      '{"image": [{"name": "DecodeImage"}, {"name": "Resize", "arguments": {"size": -1}}]}'),
     "pipeline.image[1].size: -1 is out of range"),
    (("demo", "--count", "0"), "--count"),
    (("plugins", "--format", "yaml"), "--format"),
])
def test_a_wrong_flag_is_named_with_its_value(folder, arguments, said):
    stderr = refused(USAGE, *(str(folder) if a == "FOLDER" else a for a in arguments))

    assert said in stderr
    assert stderr.splitlines()[-1].startswith("batchd: ")  # `plan` may log before it


def test_a_wrong_variable_is_named(short):
    stderr = refused(USAGE, "serve", "--listen", f"unix:{short}/s",
                     env={**os.environ, "BATCHD_CPUS": "many"})

    assert "BATCHD_CPUS=many: must be a whole number from 1 to 1024" in stderr


def test_tcp_wants_a_word_that_the_network_is_trusted(short):
    stderr = refused(USAGE, "serve", "--listen", "127.0.0.1:0")
    assert "--listen=127.0.0.1:0" in stderr and "no TLS" in stderr
    assert "--i-trust-this-network" in stderr and "unix:PATH" in stderr

    with Daemon(("/",), "--listen", "127.0.0.1:0", "--i-trust-this-network",
                folder=short) as daemon:
        port = re.search(r"127\.0\.0\.1:(\d+),", daemon.log.read_text().split("grpc=")[1])[1]
        assert run("status", f"127.0.0.1:{port}").returncode == 0


@pytest.mark.parametrize(("content", "key"), [
    ({"lissten": []}, '"lissten"'),
    ({"cpus": "many"}, '"cpus": many'),
    ({"cpus": [1, 2]}, '"cpus"'),
    ({"drain_timeout": -1}, '"drain_timeout": -1'),
    ({"root": ["/no/such/folder"]}, '"root": /no/such/folder'),
    ({"datasets": []}, '"datasets"'),
    ({"datasets": {"pets": {"kind": "ImageFoldr"}}}, '"pets": there is no kind "ImageFoldr"'),
    ({"datasets": {"pets": {"kind": "ImageFolder"}}}, '"pets": arguments.root'),
    ({"datasets": {"pets": {"kind": "ImageFolder", "argument": {}}}}, '"argument"'),
])
def test_a_wrong_configuration_is_named_by_file_and_key(short, content, key):
    file = short / "batchd.json"
    file.write_text(json.dumps({"listen": f"unix:{short}/s"} | content))

    stderr = refused(CONFIG, "serve", "--config", str(file))
    checked = run("check", "--config", str(file))

    assert stderr.startswith(f"batchd: {file}: ")
    assert key in stderr
    assert checked.returncode == CONFIG
    assert f"{file}: " in checked.stdout.splitlines()[-1]


def test_a_configuration_that_is_no_json_says_where(short):
    (short / "c.json").write_text('{\n  "cpus": 2,\n}')

    assert "line 3" in refused(CONFIG, "serve", "--config", f"{short}/c.json")
    assert "No such file" in refused(CONFIG, "serve", "--config", f"{short}/none.json")


# What cannot be had.


def make_bad_folder(root: pathlib.Path, kind: str) -> pathlib.Path:
    path = root / "data"
    if kind == "a file":
        path.write_bytes(b"")
    elif kind != "missing":
        path.mkdir()
    if kind == "flat":
        (path / "a.jpg").write_bytes(b"")
    if kind == "classes without pictures":
        (path / "cat").mkdir()
    return path


@pytest.mark.parametrize(("kind", "said"), [
    ("missing", "No such file"),
    ("a file", "is a file"),
    ("empty", "no class folders"),
    ("flat", "for example a.jpg"),
    ("classes without pictures", "cat"),
])
@pytest.mark.parametrize("command", ["index", "plan", "Loader"])
def test_a_folder_that_is_no_dataset_is_refused_by_its_name(daemon, tmp_path, command, kind, said):
    path = make_bad_folder(tmp_path, kind)

    if command == "Loader":
        with pytest.raises(batchd.OpenError) as caught:
            batchd.Loader(batchd.ImageFolder(str(path)), {"label": T.Label()}, batch_size=1,
                          address=daemon.address)
        stderr = str(caught.value)
    else:
        more = ["--batch-size", "1"] if command == "plan" else []
        stderr = refused(DATA, command, str(path), *more)

    assert str(path) in stderr
    assert said in stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_folder_that_may_not_be_read_is_refused_by_its_name(short):
    short.chmod(0o755)
    binary = shutil.copy(BINARY, short / "batchd")  # where that user can reach it
    (short / "closed").mkdir(mode=0o700)

    for command in (["index"], ["plan", "--batch-size", "1"]):
        done = subprocess.run([binary, *command, f"{short}/closed"], capture_output=True, text=True,
                              user=65534, group=65534, timeout=60, cwd="/", check=False)

        assert done.returncode == DATA, done.stderr
        assert f"{short}/closed" in done.stderr and "Permission denied" in done.stderr


def test_fewer_samples_than_a_batch_are_refused_with_both_numbers(folder):
    stderr = refused(DATA, "plan", str(folder), "--batch-size", "13", "--last-batch", "drop")

    assert "12 samples" in stderr and "global_batch_size=13" in stderr


def test_a_folder_outside_the_roots_is_refused(folder, tmp_path):
    with Daemon((tmp_path,)) as daemon, pytest.raises(batchd.OpenError) as caught:
        batchd.Loader(batchd.ImageFolder(str(folder)), {"label": T.Label()}, batch_size=1,
                      address=daemon.address)

    assert str(folder) in str(caught.value) and "--root" in str(caught.value)


def test_a_second_daemon_at_the_socket_is_refused(daemon):
    done = run("serve", "--listen", daemon.address, "--http", "127.0.0.1:0")

    assert done.returncode == OTHER_DAEMON
    assert str(daemon.pid) in done.stderr
    assert daemon.get("/readyz") == "ok\n"


@pytest.mark.parametrize("arguments", [("status", "unix:/no/such/socket"),
                                       ("status", "127.0.0.1:1")])
def test_nobody_at_an_address_is_said(arguments):
    assert arguments[1] in refused(UNAVAILABLE, *arguments)


def test_status_without_an_address_asks_where_the_client_starts_its_daemon(short, monkeypatch):
    for job in ("", "a b/c"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
        monkeypatch.setenv("SLURM_JOB_ID", job)
        monkeypatch.delenv("BATCHD_ADDRESS", raising=False)

        assert f"unix:{private.socket_path()}" in refused(UNAVAILABLE, "status")


# What the commands do.


@pytest.mark.parametrize("command", ["serve", "demo", "index", "plan", "status", "check", "health",
                                     "plugins"])
def test_help_of_each_command_says_what_it_does_and_the_exit_codes(command):
    sentence = next(line for line in run("--help").stdout.splitlines()
                    if line.split()[:1] == [command]).split(None, 1)[1]

    done = run(command, "--help")

    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(sentence)
    assert {int(n) for n in NUMBERS.findall(done.stdout[done.stdout.index("Exit codes"):])} >= {
        0, 1, 64, 65, 69, 75, 78}


def test_index_travels_with_the_data(tmp_path):
    root = make_numbered_folder(tmp_path / "d", 12)

    done = run("index", str(root))

    assert done.stdout == f"12 samples in {root}/.batchd-index\n"
    moved = root.rename(tmp_path / "e")
    assert json.loads(run("plan", str(moved), "--batch-size", "4", "--format",
                          "json").stdout)["samples"] == 12


def test_plan_is_what_a_loader_gets(daemon, folder):
    flags = ["--batch-size", "2", "--world-size", "2", "--rank", "1", "--epoch", "3", "--seed", "9",
             "--shuffle", "feistel"]

    plan = json.loads(run("plan", str(folder), *flags, "--format", "json").stdout)
    text = run("plan", str(folder), *flags).stdout

    columns = {"image": [T.DecodeImage(), T.RandomResizedCrop(224)], "label": T.Label()}
    with batchd.Loader(batchd.ImageFolder(str(folder)), columns, batch_size=2, world_size=2, rank=1,
                       shuffle=True, seed=9, address=daemon.address) as loader:
        loader.set_epoch(3)
        first = next(iter(loader))
        assert plan["first_ordinals"] == first.sample_ids.tolist()
        assert plan["steps"] == len(loader) == 3
        assert plan["dataset_fingerprint"] == loader.state_dict()["dataset"]
        assert plan["pipeline_fingerprint"] == loader.state_dict()["pipeline"]
    for key, value in plan.items():
        if isinstance(value, (int, str)):
            assert re.search(rf"(?m)^{key} +{value}\b", text), key


def test_status_shows_the_sessions(daemon, folder):
    with batchd.Loader(batchd.ImageFolder(str(folder)), {"label": T.Label()}, batch_size=4,
                       name="job-a", address=daemon.address):
        text = run("status", daemon.address).stdout
        answer = json.loads(run("status", daemon.address, "--format", "json").stdout)
    assert re.search(rf"(?m)^batchd .* pid {daemon.pid} ", text)
    assert "job=job-a" in text and str(folder) in text
    assert [s["job"] for s in answer["sessions"]] == ["job-a"]


def test_check_says_what_the_daemon_would_use(short):
    done = run("check", "--listen", f"unix:{short}/s", "--cpus", "3", "--memory", "2G")

    assert done.returncode == 0, done.stdout
    assert re.search(r"(?m)^ok +socket ", done.stdout)
    assert re.search(r"(?m)^ok +budget +2\.0 GiB = .*; 3 CPU threads$", done.stdout)
    assert list(short.iterdir()) == []


def test_health_follows_the_daemon(daemon):
    done = run("health", "--http", daemon.http)
    assert (done.returncode, done.stdout) == (0, "ok\n")
    assert run("health", env={**os.environ, "BATCHD_HTTP": daemon.http}).returncode == 0

    daemon.kill()

    assert daemon.http in refused(FAILED, "health", "--http", daemon.http)


def test_plugins_lists_the_operations_of_the_python_client():
    listed = json.loads(run("plugins", "--format", "json").stdout)

    names = {entry["name"] for entry in listed["operations"]}
    assert names == {name for name in T.__all__}
    assert all(re.search(rf"(?m)^  {name} ", run("plugins").stdout) for name in sorted(names)[:1])


def test_demo_makes_pictures_that_can_be_loaded(daemon, tmp_path):
    assert run("demo", "--make-images", str(tmp_path / "d"), "--count", "20").returncode == 0

    with batchd.Loader(batchd.ImageFolder(str(tmp_path / "d")), {"label": T.Label()}, batch_size=8,
                       address=daemon.address) as loader:
        assert loader.num_samples == 20 and len(loader.classes) == 4


def test_demo_says_how_fast_it_was(tmp_path):
    done = run("demo", "--count", "40", env={**os.environ, "TMPDIR": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert re.search(r"40 images in 2 batches, .* images/s", done.stdout)
    assert list(tmp_path.iterdir()) == []


# The HTTP door.


def test_probes_answer(daemon):
    assert daemon.get("/livez") == daemon.get("/readyz") == "ok\n"
    assert "also: /metrics /livez /readyz" in daemon.get("/")
    with pytest.raises(urllib.error.HTTPError) as caught:
        daemon.get("/nothing")
    assert caught.value.code == 404


def test_metrics_pass_promtool_and_count_an_epoch(daemon, folder):
    columns = {"image": [T.DecodeImage(), T.Resize((8, 8))], "label": T.Label()}
    with batchd.Loader(batchd.ImageFolder(str(folder)), columns, batch_size=4, name="job-a",
                       address=daemon.address) as loader:
        assert sum(batch.rows for batch in loader) == 12
        wait_until(lambda: daemon.metric("batchd_requests_total", job="job-a") == 3)
        text = daemon.get("/metrics")
        assert daemon.metric("batchd_samples_decoded_total") >= 12
        assert daemon.metric("batchd_sessions") == 1

    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                             text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_a_daemon_that_drains_is_alive_and_not_ready(daemon, folder):
    with batchd.Loader(batchd.ImageFolder(str(folder)), {"label": T.Label()}, batch_size=4,
                       address=daemon.address) as loader:
        batches = iter(loader)
        next(batches).release()
        # A drain waits for what lies ready.
        wait_until(lambda: daemon.metric("batchd_slabs", state="ready") > 0)
        daemon.process.terminate()
        wait_until(lambda: run("health", "--http", daemon.http).returncode == FAILED)
        assert daemon.get("/livez") == "ok\n"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://{daemon.http}/readyz", timeout=10)
        assert caught.value.code == 503
    assert daemon.process.wait(30) == 0


# The private daemon.

CLIENT = """
import sys, batchd
from batchd import transforms as T
loader = batchd.Loader(batchd.ImageFolder(sys.argv[1]), {"label": T.Label()}, batch_size=4)
print(sum(batch.rows for batch in loader), loader.transport, flush=True)
sys.stdin.read()
"""


def daemons_at(socket: pathlib.Path) -> set[int]:
    pids = set()
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--private" in words and f"unix:{socket}".encode() in words:
            pids.add(int(entry.parent.name))
    return pids


def test_ten_processes_at_once_get_one_private_daemon_that_ends_after_them(short, folder):
    socket = short / "batchd" / "1" / "local" / "sock"
    env = {k: v for k, v in os.environ.items()
           if k not in ("BATCHD_ADDRESS", "SLURM_JOB_ID", "BATCHD_LISTEN")}
    env |= {"XDG_RUNTIME_DIR": str(short), "BATCHD_BINARY": BINARY,
            "BATCHD_PRIVATE_LINGER_SECONDS": "1"}
    clients = [subprocess.Popen([sys.executable, "-c", CLIENT, str(folder)], env=env, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(10)]
    try:
        assert [client.stdout.readline() for client in clients] == ["12 shm\n"] * 10
        found = daemons_at(socket)
        assert len(found) == 1
        status = json.loads(run("status", f"unix:{socket}", "--format", "json").stdout)
        assert int(status["pid"]) in found and len(status["sessions"]) == 10
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        ended = os.pidfd_open(found.pop())
        assert not select.select([ended], [], [], 0)[0]  # it lives while they do
    finally:
        for client in clients:
            client.communicate("")

    assert [client.returncode for client in clients] == [0] * 10
    assert select.select([ended], [], [], 30)[0]
    os.close(ended)
    assert daemons_at(socket) == set()
    left = {path.name for path in socket.parent.iterdir()}
    assert left <= {"log", "start.lock", "sock.lock"}
    assert "the last client is gone" in (socket.parent / "log").read_text()
