# SPDX-License-Identifier: Apache-2.0
"""Reference pages that are made from the program and must stay so.

`BATCHD_BINARY=… python tests/integration/test_docs.py` writes them again.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Callable

import pytest
from daemon import Daemon, run
from pictures import make_numbered_folder

import batchd
from batchd import transforms as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
METRICS_HEAD = """\
# Metrics

What `/metrics` shows; made from `server/metrics/metric_table.inc`. Labels come from closed sets.
The series of a job end with its last session; of more than 64 jobs at once the further ones count
as `other`. Histograms are of seconds, from 100 µs to 10 s.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def operations_page() -> str:
    return run("plugins", "--format=markdown").stdout


def string_list(path: str, name: str) -> list[str]:
    """The strings of a C++ array."""
    body = re.search(rf"\b{name}\[\w+\] = \{{(.*?)\}}", (ROOT / path).read_text(), re.DOTALL)[1]
    return re.findall(r'"(\w+)"', body)


def metrics_page() -> str:
    table = (ROOT / "server/metrics/metric_table.inc").read_text()
    stages = string_list("server/metrics/metrics.cc", "kStageNames")
    reasons = string_list("server/base/status.cc", "kReasonNames")
    families = {}
    for family, kind, name, text in re.findall(r'^FAMILY\((\w+), (\w+), "(\w+)", "(.*)"\)$', table,
                                               re.MULTILINE):
        families[family] = (name, kind.lower(), text, {})
    for macro, family, rest in re.findall(r"^(\w*SERIES)\(\w+, (\w+)(.*)\)$", table, re.MULTILINE):
        labels = families[family][3]
        if macro.startswith("JOB_"):
            labels["job"] = []
        if macro == "STAGE_SERIES":
            labels["stage"] = stages
        if macro == "JOB_REASON_SERIES":
            labels["reason"] = reasons
        for label, value in re.findall(r'\{"(\w+)", (\S+?)\}', rest):
            values = labels.setdefault(label, [])
            if value.startswith('"') and value.strip('"') not in values:
                values.append(value.strip('"'))
    rows = ""
    for name, kind, text, labels in families.values():
        cells = [f"`{label}`" + (f": {', '.join(values)}" if values else "")
                 for label, values in labels.items()]
        rows += f"| `{name}` | {kind} | {'; '.join(cells) or '–'} | {text} |\n"
    return METRICS_HEAD + rows


PAGES: dict[str, Callable[[], str]] = {"operations.md": operations_page,
                                       "metrics.md": metrics_page}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_program_says(page):
    assert (REFERENCE / page).read_text() == PAGES[page](), (
        f"docs/reference/{page} is old: run this file as a script")


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


def test_the_page_of_limits_has_the_exit_codes_of_help():
    codes = set(re.findall(r"\b(\d+) [a-z]", run("--help").stdout.split("Exit codes:")[1]))

    page = (REFERENCE / "limits.md").read_text().split("## Exit codes")[1]
    assert set(re.findall(r"(?m)^\| (\d+) \|", page)) == codes


if __name__ == "__main__":
    for page_name, make in PAGES.items():
        (REFERENCE / page_name).write_text(make())
    sys.exit(0)
