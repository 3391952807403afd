# SPDX-License-Identifier: Apache-2.0
"""The C++ client as a user has it: installed, found, built against from outside the tree, run."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest
from daemon import BINARY, Daemon
from pictures import make_photo_folder

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The build that the tested daemon is of.
BUILD = pathlib.Path(BINARY).resolve().parents[2]

pytestmark = pytest.mark.release_only  # a sanitizer's library needs a sanitizer's program


def run(*command: object, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=150, check=False, **options)
    assert done.returncode == options.get("code", 0), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--component", "client", "--prefix", place)
    return place


@pytest.fixture(scope="module")
def examples(prefix, tmp_path_factory) -> pathlib.Path:
    """client/examples as a project of its own, by find_package."""
    build = tmp_path_factory.mktemp("examples")
    run("cmake", "-S", ROOT / "client/examples", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    run("cmake", "--build", build)
    return build


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> pathlib.Path:
    return make_photo_folder(tmp_path_factory.mktemp("p256"), 256)


def library_in(prefix) -> pathlib.Path:
    (library,) = prefix.rglob("libbatchd_client.so")
    return library


def test_the_library_shows_its_api_and_nothing_else(prefix):
    names = run("nm", "-D", "-C", "--defined-only", library_in(prefix)).splitlines()
    shown = [line.split(maxsplit=2)[2] for line in names]

    assert any(name.startswith("batchd::Loader::Next(") for name in shown)
    strangers = [name for name in shown if not re.match(
        r"batchd::((Loader|Batch|Column|Status)::)?[~\w]+(=)?(\[abi:cxx11\])?\(|"
        r"batchd::internal::DieForMissingValue\(", name)]
    assert strangers == []


def test_the_headers_name_no_library(prefix):
    headers = list((prefix / "include/batchd").glob("*.h"))
    assert {header.name for header in headers} == {"batch.h", "loader.h", "options.h", "status.h"}
    for header in headers:
        text = header.read_text()
        includes = re.findall(r'#include [<"](.+?)[>"]', text)
        assert all(re.fullmatch(r"batchd/\w+\.h|\w+", name) for name in includes), includes
        assert not re.search(r"absl|grpcpp|protobuf|nlohmann", text)


def test_print_batches_reads_an_epoch(examples, photos):
    with Daemon() as daemon:
        lines = run(examples / "print_batches", photos,
                    env={**os.environ, "BATCHD_ADDRESS": daemon.address}).splitlines()

    assert "samples=256" in lines[0] and "transport=shm" in lines[0]
    assert [line.split(",")[0] for line in lines[1:]] == [
        f"epoch 0 step {step}: 32 rows" for step in range(8)]


def test_resume_epoch_reads_every_sample_once_in_three_runs(examples, photos, tmp_path):
    with Daemon() as daemon:
        seen, codes = [], []
        for _ in range(3):
            done = subprocess.run(
                [examples / "resume_epoch", photos, tmp_path / "checkpoint", "3"], check=False,
                env={**os.environ, "BATCHD_ADDRESS": f"{daemon.address}.grpc"}, text=True,
                stdout=subprocess.PIPE, timeout=60)
            codes.append(done.returncode)
            seen += [int(line) for line in done.stdout.split()]

    assert codes == [3, 3, 0]
    assert sorted(seen) == list(range(256))


def test_pkg_config_builds_and_a_ready_batch_costs_no_allocation(prefix, photos, tmp_path):
    (folder,) = {path.parent for path in prefix.rglob("batchd.pc")}
    flags = run("pkg-config", "--cflags", "--libs", "batchd",
                env={**os.environ, "PKG_CONFIG_PATH": str(folder)}).split()
    program = tmp_path / "client_handoff"
    run("c++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror",
        ROOT / "tests/bench/client_handoff.cc", "-o", program, *flags,
        f"-Wl,-rpath,{library_in(prefix).parent}")

    with Daemon() as daemon:
        printed = run(program, photos, daemon.pid, 3,
                      env={**os.environ, "BATCHD_ADDRESS": daemon.address})

    print(printed)
    assert re.match(r"72 batches .*, 0 allocations$", printed)
