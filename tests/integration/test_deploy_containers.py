# SPDX-License-Identifier: Apache-2.0
"""docker/ and deploy/kubernetes: files that their tools take, and flags that a daemon takes.

What needs an empty system is in tests/docker_root.sh.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml
from daemon import BINARY, Daemon, run

import batchd

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
COMPOSE = ROOT / "docker" / "compose.yaml"
MANIFEST = ROOT / "deploy" / "kubernetes" / "trainer-with-sidecar.yaml"
PAGE = (ROOT / "docs" / "how-to" / "run-as-a-kubernetes-sidecar.md").read_text()
VERSION = batchd.__version__
SECONDS = 60
# In every Debian: dpkg and apt are linked with them.
IN_EVERY_DEBIAN = {"libc6", "libgcc-s1", "libstdc++6"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip())
            for line in text.splitlines() if line.strip()]


def last(instruction: str) -> str:
    return [rest for name, rest in instructions() if name == instruction][-1]


def manifest() -> dict:
    return yaml.safe_load(MANIFEST.read_text())


def pod() -> dict:
    return manifest()["spec"]["template"]


def sidecar() -> dict:
    (container,) = pod()["spec"]["initContainers"]
    return container


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True,
                          timeout=SECONDS).stdout


# The files are what their tools want.


@pytest.mark.release_only
@pytest.mark.parametrize("command", [
    ("hadolint", str(DOCKERFILE)),
    ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)),
], ids=["hadolint", "compose"])
def test_a_linter_finds_nothing(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release_only
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_manifest_is_valid(version):
    kubernetes_validate.validate(manifest(), version, strict=True)


@pytest.mark.release_only
def test_a_misspelt_field_of_the_manifest_is_found():
    wrong = manifest()
    container = wrong["spec"]["template"]["spec"]["initContainers"][0]
    container["restartpolicy"] = container.pop("restartPolicy")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def packages_of(libraries: list[str]) -> set[str]:
    """The packages that these files are from. /lib is /usr/lib, but packages say either."""
    paths = [str(pathlib.Path(library).resolve()) for library in libraries]
    said = subprocess.run(["dpkg-query", "-S", *paths, *(p.removeprefix("/usr") for p in paths)],
                          capture_output=True, text=True, timeout=SECONDS).stdout
    owners = {line.rsplit(": ", 1)[1].removeprefix("/usr"): line.split(":")[0]
              for line in said.splitlines()}
    return {owners[path.removeprefix("/usr")] for path in paths}


@pytest.mark.release_only
@pytest.mark.skipif("bookworm" not in pathlib.Path("/etc/os-release").read_text(),
                    reason="the image is of Debian 12, whose packages this system does not have")
def test_the_image_has_the_packages_of_the_libraries_that_the_program_is_linked_with():
    needed = re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", BINARY))
    found = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", BINARY)))
    owners = packages_of([found[name] for name in needed if not name.startswith("ld-linux")])

    install = re.search(r"--no-install-recommends(.*?)&&", last("RUN"))[1]
    assert set(install.split()) == owners - IN_EVERY_DEBIAN


@pytest.mark.release_only
def test_the_build_stage_has_all_folders_that_cmake_asks_for(tmp_path):
    """Configures, which finds a folder or source that no COPY brings; docker_root.sh compiles."""
    build_stage = [rest for name, rest in instructions() if name in ("COPY", "FROM")]
    for rest in build_stage[1:build_stage.index("debian:12-slim")]:
        *sources, target = rest.split()
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                shutil.copytree(path, tmp_path / target)
            else:
                (tmp_path / target).mkdir(exist_ok=True, parents=True)
                shutil.copy(path, tmp_path / target)
    done = subprocess.run(["cmake", "--preset", "release"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


# They agree with each other.


def test_all_speak_of_the_same_user_port_version_and_socket():
    user, _, group = last("USER").partition(":")
    assert sidecar()["securityContext"]["runAsUser"] == int(user)
    assert sidecar()["securityContext"]["runAsGroup"] == int(group)
    assert pod()["spec"]["securityContext"]["supplementalGroups"] == [int(group)]
    compose = yaml.safe_load(COMPOSE.read_text())["services"]
    assert compose["trainer"]["group_add"] == [group]

    port = last("EXPOSE")
    annotations = pod()["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == port
    assert [entry["containerPort"] for entry in sidecar()["ports"]] == [int(port)]
    assert compose["batchd"]["ports"] == [f"127.0.0.1:{port}:{port}"]

    image = f"batchd:{VERSION}"
    assert sidecar()["image"] == compose["batchd"]["image"] == image
    for text in (DOCKERFILE.read_text(), PAGE):
        assert f"docker build -f docker/Dockerfile -t {image} ." in text
        assert set(re.findall(r"\bbatchd:\d\S*", text)) == {image}
    (trainer,) = pod()["spec"]["containers"]
    addresses = {entry["value"] for entry in trainer["env"]}
    assert addresses == {"unix:/run/batchd/sock"}
    assert set(compose["trainer"]["environment"].values()) == addresses


def test_nothing_may_be_written_or_gained():
    compose = yaml.safe_load(COMPOSE.read_text())["services"]["batchd"]
    assert compose["read_only"] is True
    assert compose["cap_drop"] == ["ALL"]
    assert compose["security_opt"] == ["no-new-privileges:true"]

    assert pod()["spec"]["securityContext"]["runAsNonRoot"] is True
    for container in (sidecar(), *pod()["spec"]["containers"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert sidecar()["securityContext"]["readOnlyRootFilesystem"] is True
    assert sidecar()["restartPolicy"] == "Always"


# The program takes their flags, and answers where they ask.


def test_the_page_names_files_that_are_there():
    assert set(re.findall(r" -f (\S+)", PAGE)) == {
        str(path.relative_to(ROOT)) for path in (DOCKERFILE, COMPOSE, MANIFEST)}


@pytest.mark.parametrize("flags", [
    json.loads(last("CMD")),
    sidecar()["args"],
    re.search(r"batchd:\S+ (--listen .*?)`", PAGE)[1].split(),
], ids=["docker", "kubernetes", "page"])
def test_a_daemon_serves_with_the_flags_of_a_container(flags, tmp_path):
    assert json.loads(last("ENTRYPOINT")) == ["batchd", "serve"]
    (tmp_path / "data").mkdir()
    with Daemon((), *flags_here(flags, tmp_path)) as daemon:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            request = sidecar()[probe]["httpGet"]
            assert request["port"] == sidecar()["ports"][0]["name"]
            assert daemon.get(request["path"]) == "ok\n"
        metrics = pod()["metadata"]["annotations"]["prometheus.io/path"]
        assert "batchd_ready 1" in daemon.get(metrics)
        assert daemon.terminate() == 0


def flags_here(flags: list[str], folder: pathlib.Path) -> list[str]:
    """A container's flags with this test's paths; Daemon has its own --listen and --http."""
    words = [word for flag in flags for word in flag.split("=")]
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert pairs.pop("--listen") == "unix:/run/batchd/sock"
    assert pairs.pop("--http").startswith("0.0.0.0:")
    assert pairs["--root"] == "/data"
    pairs["--root"] = str(folder / "data")
    return [word for pair in pairs.items() for word in pair if word != "--log-format"
            and word != "json"]


def test_the_health_check_asks_where_the_daemon_listens():
    command = json.loads(re.search(r"CMD (\[.*\])", last("HEALTHCHECK"))[1])
    assert command[0] == "batchd"
    with Daemon() as daemon:
        assert run(*command[1:], env={"BATCHD_HTTP": daemon.http}).returncode == 0
    port = last("EXPOSE")
    assert f"127.0.0.1:{port}" in run(*command[1:], "--help").stdout
