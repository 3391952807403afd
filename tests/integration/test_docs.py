# SPDX-License-Identifier: Apache-2.0
"""The reference is what the program says, whoever wrote it."""

from __future__ import annotations

import json
import pathlib
import re
import sys

import pytest
from daemon import Daemon, run
from pictures import make_numbered_folder

import batchd
from batchd import transforms as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
sys.path.insert(0, str(ROOT / "docs"))

from generate_reference import GENERATED  # noqa: E402


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_is_what_the_program_says(path):
    assert (ROOT / path).read_text() == GENERATED[path](), (
        f"{path} is old: run docs/generate_reference.py")


def test_the_page_of_commands_has_every_command_and_flag():
    page = (REFERENCE / "commands.md").read_text()

    commands = re.findall(r"(?m)^  (\w+)  ", run("--help").stdout.split("Subcommands:")[1])
    assert re.findall(r"(?m)^## batchd (\w+)$", page) == commands
    for command in commands:
        flags = set(re.findall(r"(?m)^  (--[\w-]+)", run(command, "--help").stdout))
        if command == "check":
            command = "serve"  # whose flags it takes: generate_reference.py asserts that
        part = page.split(f"## batchd {command}\n")[1].split("\n## ")[0]
        assert set(re.findall(r"(?m)^\| `(--[\w-]+)", part)) == flags


def test_the_page_of_commands_has_every_variable_that_is_read():
    code = [path.read_text() for folder in ("server", "python_client/src")
            for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".py")]
    calls = r"(?:env|getenv|EnvNumber|IsMeant|environ\.get|variable|kName\[\] =)"
    read = {name for text in code for name in re.findall(calls + r'[ (]*"(\w+)"', text)}
    page = (REFERENCE / "commands.md").read_text().split("## Variables")[1].split("\n## ")[0]
    listed = {name for row in re.findall(r"(?m)^\| (`.*?) \|", page)
              for name in re.findall(r"`(\w+)`", row)}

    assert listed >= read - {"BATCHD_LISTEN"}, "BATCHD_LISTEN is one of serve's flags"
    settings = set(re.findall(r"(?m)^\| `--([\w-]+)", (REFERENCE / "commands.md").read_text()))
    known = read | {"BATCHD_" + name.upper().replace("-", "_") for name in settings}
    assert listed <= known | {"RANK", "WORLD_SIZE"}


def test_the_page_of_metrics_has_what_a_daemon_exposes(daemon, tmp_path):
    root = make_numbered_folder(tmp_path / "d", 8)
    with batchd.Loader(batchd.ImageFolder(str(root)), {"label": T.Label()}, batch_size=4,
                       name="job-a", address=daemon.address):
        exposed = dict(re.findall(r"^# TYPE (\w+) (\w+)$", daemon.get("/metrics"), re.MULTILINE))

    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", (REFERENCE / "metrics.md").read_text(),
                             re.MULTILINE))
    assert exposed == listed


def test_the_configuration_of_the_how_to_runs(tmp_path):
    page = (ROOT / "docs/how-to/run-a-shared-daemon.md").read_text()
    config = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    root = make_numbered_folder(tmp_path / "data" / "pets" / "train", 8)
    config |= {"root": [str(tmp_path / "data")], "memory": "1G", "cpus": 1, "log_format": "text"}
    config["datasets"]["pets"]["arguments"]["root"] = str(root)
    del config["state_dir"]  # the flags of Daemon
    del config["listen"]
    (tmp_path / "c.json").write_text(json.dumps(config))

    with Daemon((), "--config", str(tmp_path / "c.json")) as daemon:
        status = json.loads(run("status", daemon.address, "--format", "json").stdout)
        assert status["cpu_threads"] == 1
        with batchd.Loader("pets", {"label": T.Label()}, batch_size=8,
                           address=daemon.address) as loader:
            assert [batch.rows for batch in loader] == [8]
        assert daemon.terminate() == 0


@pytest.mark.parametrize("name", ["sessions", "prefetch"])
def test_the_page_of_limits_names_what_the_headers_say(name):
    header = (ROOT / "server/session/manager.h").read_text()
    limit = re.search(rf"k{name.capitalize()}Max = (\d+);", header)[1]

    assert re.search(rf"\b{limit}\b", (REFERENCE / "limits.md").read_text())
