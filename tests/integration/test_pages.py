# SPDX-License-Identifier: Apache-2.0
"""What the documentation shows is what happens: pages.py says how."""

from __future__ import annotations

import pathlib
import re
import tempfile

import pytest
from daemon import BINARY
from pages import KINDS, ROOT, Block, Reader, blocks_of, pages

# Blocks that somebody types and no test here runs: page → first line of the block → why.
NOT_RUN = {
    "README.md": {
        "bash deploy/quickstart.sh    # installs what is missing, builds, reads an epoch both "
        "ways, says how fast": "tests/fresh_root.sh runs both in an empty Debian; minutes",
        "python3 -m venv --system-site-packages ~/batchd-venv": "this test's own environment was "
        "made so, by tests/run.sh",
    },
    "CONTRIBUTING.md": {
        "bash deploy/install-deps.sh          # once: Debian 12 or Ubuntu 24.04": "tests/run.sh "
        "is what runs this test, and does the others",
    },
    "docs/how-to/monitor-with-prometheus.md": {
        "sum by (exported_job, instance) (rate(batchd_requests_ready_total[5m]))":
        "for Prometheus: test_deploy_monitoring.py runs the dashboard's query, which is the same",
    },
    "docs/how-to/run-as-a-kubernetes-sidecar.md": {
        "docker build -f docker/Dockerfile -t batchd:0.1.0 .":
        "no engine here: tests/docker_root.sh runs the image's steps",
        "kubectl apply -f deploy/kubernetes/trainer-with-sidecar.yaml":
        "no cluster here: test_deploy_containers.py starts a daemon with the manifest's flags",
        "DATA=/path/of/data docker compose -f docker/compose.yaml up --build":
        "no engine here: test_deploy_containers.py checks the file against its schema",
        "docker run --read-only --cap-drop ALL -m 8g -v /path/of/data:/data:ro -v "
        "batchd:/run/batchd batchd:0.1.0":
        "no engine here: test_deploy_containers.py starts a daemon with the image's flags",
    },
    "docs/how-to/run-as-a-systemd-service.md": {
        "cmake --preset release && cmake --build build/release --target batchd":
        "test_deploy_systemd.py runs it, into a folder of its own",
        "{": "test_deploy_systemd.py compares it with the file that is installed",
        "sudo usermod -aG batchd alice     # who trains; counts from the next login on":
        "needs root and the user",
        "systemctl status batchd                            # says ready, draining, why it ended":
        "no systemd runs here: test_deploy_systemd.py is the service manager",
    },
    "docs/how-to/run-a-shared-daemon.md": {
        "batchd check --config /etc/batchd.json     # whether host and configuration are fit; exit "
        "code 0": "needs /etc and /run: test_docs.py runs the configuration elsewhere",
        "{": "test_docs.py runs it, with folders of its own",
        "batchd status unix:/run/batchd/sock        # its sessions; --format json for scripts":
        "needs /run: test_cli.py runs both commands",
    },
    "docs/how-to/use-the-cpp-client.md": {
        "cmake --preset release && cmake --build --preset release --target batchd_client":
        "tests/run.sh builds; the client of that build is installed before the page is read",
    },
    "docs/tutorial/folder-to-torch.md": {
        "bash deploy/install-deps.sh": "tests/fresh_root.sh does the same in an empty Debian",
    },
    "python_client/README.md": {
        "pip install ./python_client            # needs NumPy alone": "tests/run.sh does so",
    },
}

# What the reader of a page has before: its pictures.
PICTURES = "batchd demo --make-images data/train --count 64"
CLIENT = (f"cmake --install {pathlib.Path(BINARY).resolve().parents[2]} --component client "
          "--prefix prefix")
GIVEN = {"README.md": PICTURES, "python_client/README.md": PICTURES,
         "docs/how-to/decode-faster.md": PICTURES,
         "docs/how-to/mix-images-and-labels.md": PICTURES,
         "docs/how-to/several-views-of-one-picture.md": PICTURES,
         "docs/how-to/use-the-cpp-client.md": f"{PICTURES}; {CLIENT}"}

PAGES = [page for page in pages() if any(block.kind for block in blocks_of(page))]


@pytest.mark.release_only
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_and_print_what_it_says(page):
    with tempfile.TemporaryDirectory(prefix="bd") as folder:  # short: it holds sockets
        with Reader(pathlib.Path(folder)) as reader:
            if page in GIVEN:
                reader.follow(Block("run", "", "sh", GIVEN[page]))
            for block in blocks_of(page):
                reader.follow(block)


@pytest.mark.parametrize("page", pages())
def test_every_block_is_run_or_is_listed_with_its_reason(page):
    blocks = blocks_of(page)
    typed = {block.first_line for block in blocks if block.language and not block.kind}

    assert typed == set(NOT_RUN.get(page, {}))
    assert {block.kind for block in blocks} <= {"", *KINDS}
    text = (ROOT / page).read_text()
    assert text.count("<!-- test:") == sum(bool(block.kind) for block in blocks), \
        "a mark that has no block after it"
    assert text.count("```") == 2 * len(blocks), "a fence that is indented"
    outside = re.sub(r"(?ms)^```.*?^```$", "", text)
    assert not re.search(r"\n\n(?:    |\t)(?![*+-] )\S", outside), \
        "an indented block, which no test sees: fence it"


def test_the_list_of_blocks_that_are_not_run_has_pages_that_exist():
    assert set(NOT_RUN) <= set(pages())


def test_the_python_of_the_readme_is_five_lines():
    (block,) = [block for block in blocks_of("README.md") if block.kind == "python"]

    assert len(block.text.splitlines()) == 5


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", (ROOT / page).read_text()):
        if "://" in target:
            continue
        path = ROOT / page if not target else (ROOT / page).parent / target
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", path.read_text())
            assert anchor in {slug(heading) for heading in headings}, f"{target}#{anchor}"


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
