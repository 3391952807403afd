#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pages of docs/reference that the program can tell, and what the client is made from.

Usage: BATCHD_BINARY=PATH generate_reference.py; then python_client/generate_transforms.py where
plugins.json has changed. tests/integration/test_docs.py fails while a file is not what this makes.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("BATCHD_BINARY", "batchd")
MARK = "<!-- From here on made by docs/generate_reference.py. -->\n"
METRICS_TABLE = "| metric | type | labels | meaning |\n|---|---|---|---|\n"


def run(*arguments: str) -> str:
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60,
                          check=True).stdout


def operations_page() -> str:
    return run("plugins", "--format=markdown")


def plugins_json() -> str:
    """What python_client is made from: all but the decoders' builds, which are this machine's."""
    plugins = json.loads(run("plugins", "--format=json"))
    for decoder in plugins["decoders"]:
        del decoder["build"]
    return json.dumps(plugins, indent=1) + "\n"


def section(help_text: str, title: str) -> list[tuple[str, str]]:
    """The rows of one part of a help text: what is typed, and what it means."""
    found = re.search(rf"(?m)^{title}:\n((?:  .*\n)+)", help_text)
    if found is None:
        return []
    rows: list[tuple[str, str]] = []
    for line in found[1].splitlines():
        typed, _, meaning = line[2:].partition("  ")
        if typed:
            rows.append((typed, meaning.strip()))
        else:  # what is typed has left no room in its line
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}".strip())
    return rows


TYPED = re.compile(r"(?P<name>\S+)(?: (?P<many>\.\.\.))?(?: (?P<type>INT|UINT|TEXT))?"
                   r"(?::(?:INT in \[(?P<low>\S+) - (?P<high>\S+)\]|\{(?P<choices>\S+?)\}))?"
                   r"(?:=(?P<default>\S+))?(?P<required> REQUIRED)?(?: \(Env:(?P<env>\w+)\))?")


def flag_row(typed: str, meaning: str) -> str:
    found = TYPED.fullmatch(typed)
    assert found is not None, f"{typed!r} is no flag as CLI11 writes them"
    values = ""
    if found["low"]:
        values = f"{found['low']} to {found['high']}"
    elif found["choices"]:
        values = found["choices"].replace(",", " or ")
    elif found["type"] == "UINT":
        values = "0 or more"
    default = "must be given" if found["required"] else found["default"] or ""
    if found["env"]:
        meaning += f"; from `{found['env']}` where not given"
    cells = [f"`{found['name']}`", meaning, values, default]
    return "| " + " | ".join(cell.replace("|", "\\|") or "–" for cell in cells) + " |\n"


def flags_of(command: str) -> str:
    text = run(command, "--help")
    rows = [flag_row(*row) for row in section(text, "Positionals") + section(text, "Options")
            if not row[0].startswith("-h,")]
    return "| typed | meaning | values | default |\n|---|---|---|---|\n" + "".join(rows)


def commands_page() -> str:
    help_text = run("--help")
    footer = " ".join(help_text.split("Exit codes:")[1].split()).rstrip(".")
    codes = "".join("| {} | {} |\n".format(*code.split(" ", 1)) for code in footer.split("; "))
    page = f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}"
    for command, meaning in section(help_text, "Subcommands"):
        page += f"\n## batchd {command}\n\n{meaning}."
        if command == "check":
            assert flags_of(command) == flags_of("serve")
            page += " It takes the flags of [batchd serve](#batchd-serve).\n"
        else:
            page += f"\n\n{flags_of(command)}"
    return page


def string_list(path: str, name: str) -> list[str]:
    """The strings of a C++ array."""
    found = re.search(rf"\b{name}\[\w+\] = \{{(.*?)\}}", (ROOT / path).read_text(), re.DOTALL)
    assert found is not None, f"{path} has no {name}"
    return re.findall(r'"(\w+)"', found[1])


def metrics_page() -> str:
    table = (ROOT / "server/metrics/metric_table.inc").read_text()
    families: dict[str, tuple[str, str, str, dict[str, list[str]]]] = {}
    for family, kind, name, text in re.findall(r'^FAMILY\((\w+), (\w+), "(\w+)", "(.*)"\)$', table,
                                               re.MULTILINE):
        families[family] = (name, kind.lower(), text, {})
    for macro, family, rest in re.findall(r"^(\w*SERIES)\(\w+, (\w+)(.*)\)$", table, re.MULTILINE):
        labels = families[family][3]
        if macro.startswith("JOB_"):
            labels["job"] = []
        if macro == "STAGE_SERIES":
            labels["stage"] = string_list("server/metrics/metrics.cc", "kStageNames")
        if macro == "JOB_REASON_SERIES":
            labels["reason"] = string_list("server/base/status.cc", "kReasonNames")
        for label, value in re.findall(r'\{"(\w+)", (\S+?)\}', rest):
            values = labels.setdefault(label, [])
            if value.startswith('"') and value.strip('"') not in values:
                values.append(value.strip('"'))
    rows = ""
    for name, kind, text, labels in families.values():
        cells = [f"`{label}`" + (f": {', '.join(values)}" if values else "")
                 for label, values in labels.items()]
        rows += f"| `{name}` | {kind} | {'; '.join(cells) or '–'} | {text} |\n"
    return METRICS_TABLE + rows


def with_head(path: str, make: Callable[[], str]) -> Callable[[], str]:
    """A page whose beginning a person has written."""
    return lambda: (ROOT / path).read_text().split(MARK)[0] + MARK + "\n" + make()


PAGES = {"docs/reference/commands.md": commands_page, "docs/reference/metrics.md": metrics_page,
         "docs/reference/operations.md": operations_page}
GENERATED: dict[str, Callable[[], str]] = {
    **{path: with_head(path, make) for path, make in PAGES.items()},
    "python_client/plugins.json": plugins_json,
}


if __name__ == "__main__":
    for path, make in GENERATED.items():
        (ROOT / path).write_text(make())
