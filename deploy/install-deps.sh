#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages that batchd needs, on Debian 12 and Ubuntu 24.04. As root or through sudo;
# does nothing where all of them are there already.
#
#   install-deps.sh              all: to build, use and test it
#   install-deps.sh build        to build the daemon
#   install-deps.sh build python and for the Python client
#   install-deps.sh test         what only the tests need
set -euo pipefail

build=(
  ca-certificates ccache cmake g++ git ninja-build pkg-config protobuf-compiler
  protobuf-compiler-grpc libabsl-dev libavif-dev libcivetweb-dev libcli11-dev libcurl4-openssl-dev
  libfmt-dev libgif-dev libgrpc++-dev libhwy-dev libjpeg-dev libopenjp2-7-dev libprotobuf-dev
  libspdlog-dev libspng-dev libtiff-dev libuv1-dev libwebp-dev libxxhash-dev nlohmann-json3-dev
  prometheus-cpp-dev
)
python=(python3 python3-numpy python3-venv)
test=(
  # make builds the C++ client's examples outside the tree; promtool is part of prometheus,
  # systemd-analyze and others of systemd
  clang-14 clang-format-14 clang-tidy-14 g++-aarch64-linux-gnu libclang-rt-14-dev libgmock-dev
  libgtest-dev make prometheus python3-seccomp python3-torch shellcheck systemd valgrind
)

[ "$#" -gt 0 ] || set -- build python test
packages=()
for group in "$@"; do
  case $group in
    build) packages+=("${build[@]}") ;;
    python) packages+=("${python[@]}") ;;
    test) packages+=("${test[@]}") ;;
    *)
      echo "install-deps: $group: there are build, python and test" >&2
      exit 64
      ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  echo "install-deps: all ${#packages[@]} packages are installed"
  exit 0
fi
echo "install-deps: installing ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || {
    echo "install-deps: not root and no sudo; run it as root, or install: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
