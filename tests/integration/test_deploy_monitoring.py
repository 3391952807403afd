# SPDX-License-Identifier: Apache-2.0
"""deploy/prometheus and deploy/grafana, against Debian's Prometheus and a real daemon."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import urllib.parse
import urllib.request

import pytest
import yaml
from daemon import Daemon, wait_until
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from pictures import make_numbered_folder

import batchd
from batchd import transforms as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "batchd.rules.yml"
RULE_TESTS = FOLDER / "batchd.rules.test.yml"
PAGE = ROOT / "docs" / "how-to" / "monitor-with-prometheus.md"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "batchd.json").read_text())
SECONDS = 60
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "10s", "$instance": ".*", "$job": ".*"}


def alerts() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"]
            for rule in group["rules"]]


def panels() -> list[tuple[str, str]]:
    """Title and query of each target."""
    return [(f"{panel['title']} {target['refId']}", target["expr"])
            for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=FOLDER,
                          timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


# Rules and dashboard as they lie there.


@pytest.mark.release_only
def test_the_configuration_is_valid():
    promtool("check", "config", "prometheus.yml")


@pytest.mark.release_only
def test_alerts_fire_when_they_should():
    promtool("test", "rules", RULE_TESTS.name)


def test_each_alert_is_seen_to_fire_and_not_to_fire():
    cases: dict[str, set[bool]] = {}
    for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]:
        for case in test["alert_rule_test"]:
            cases.setdefault(case["alertname"], set()).add(bool(case.get("exp_alerts")))

    assert cases == {rule["alert"]: {True, False} for rule in alerts()}


def test_the_page_says_what_to_do_about_each_alert():
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in alerts()]


def test_queries_use_metrics_that_exist():
    table = (ROOT / "docs/reference/metrics.md").read_text()
    kinds = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE))
    known = set(kinds) | {f"{name}_{part}" for name, kind in kinds.items() if kind == "histogram"
                          for part in ("bucket", "sum", "count")}
    variables = " ".join(entry.get("query", {}).get("query", "") for entry
                         in DASHBOARD["templating"]["list"] if entry["type"] == "query")
    text = " ".join([*(rule["expr"] for rule in alerts()), *(query for _, query in panels()),
                     variables, *re.findall(r"`(batchd_\w+)`", PAGE.read_text())])
    used = set(re.findall(r"\bbatchd_\w+", text))
    assert len(used) > 10
    assert used <= known


@pytest.mark.release_only
def test_the_dashboard_is_made_of_what_grafana_knows():
    """Grafana's own library reads it and writes the same: it drops keys that it does not know."""
    register_default_plugins()

    def again(document: dict) -> dict:
        return json.loads(JSONEncoder().encode(Dashboard.from_json(document)))

    assert covers(again(DASHBOARD), DASHBOARD)
    assert not covers(again({**DASHBOARD, "panells": []}), {**DASHBOARD, "panells": []})


def covers(whole, part) -> bool:
    """Whether all of `part` is in `whole`."""
    if isinstance(part, dict):
        return all(key in whole and covers(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(covers, whole, part))
    return whole == part


# Against a Prometheus.


class Prometheus:
    """Debian's, with the shipped configuration, watching one daemon."""

    def __init__(self, folder: pathlib.Path, target: str):
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
        config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
        (job,) = config["scrape_configs"]
        assert job["static_configs"][0]["targets"] == ["127.0.0.1:9475"]  # the daemon's default
        job["static_configs"][0]["targets"] = [target]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml",
                 f"--storage.tsdb.path={folder}/tsdb", "--web.listen-address=127.0.0.1:0"],
                stdout=log, stderr=log)
        wait_until(lambda: self._find("Listening on") and self._find("ready to receive"), SECONDS,
                   "Prometheus is ready")
        self._address = re.search(r'msg="Listening on" address=(\S+)', self._log.read_text())[1]

    def _find(self, text: str) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return text in self._log.read_text()

    def get(self, path: str, **arguments: str):
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=SECONDS) as reply:
            return json.load(reply)["data"]

    def numbers(self, query: str) -> list[float]:
        """The query's values at this moment, less those that are none."""
        result = self.get("query", query=query)["result"]
        values = [float(series["value"][1]) for series in result]
        return [value for value in values if value == value]

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)


@pytest.mark.release_only
def test_every_panel_has_data_while_a_daemon_works(tmp_path):
    root = make_numbered_folder(tmp_path / "d", 200)
    (root / "c000" / "000000.jpg").write_bytes(b"no picture")
    # Too large to be read in passing, so that the readers have something to do.
    with open(root / "c000" / "000001.jpg", "ab") as large:
        large.truncate(5 << 20)
    with (Daemon((root,)) as daemon, Prometheus(tmp_path, daemon.http) as prometheus,
          batchd.Loader(batchd.ImageFolder(str(root)),
                        {"image": [T.DecodeImage(), T.Resize([8, 8])], "label": T.Label()},
                        batch_size=20, on_bad_sample="skip", name="job-a",
                        address=daemon.address) as loader):
        without_data = {title: expand(query) for title, query in panels()}

        def work() -> bool:
            for batch in loader.steps(20):
                batch.release()
            for title, query in list(without_data.items()):
                if prometheus.numbers(query):
                    del without_data[title]
            return not without_data

        wait_until(work, SECONDS, f"data for {without_data}")
        (group,) = prometheus.get("rules")["groups"]
        assert {rule["name"]: rule["health"] for rule in group["rules"]} == {
            rule["alert"]: "ok" for rule in alerts()}
        assert set(prometheus.get("label/exported_job/values")) == {"job-a"}


def expand(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query
