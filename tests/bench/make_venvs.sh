#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the rivals' virtual environments below a folder, for run.py --venvs: rivals (PyTorch, SPDL,
# DALI), tf (TensorFlow) and ffcv, which asks for versions that the others do not. One that cannot
# be installed here is said to be missing, and run.py leaves it out. Needs some 12 GB of disk.
set -uo pipefail
venvs=${1:?usage: make_venvs.sh FOLDER [PYTHON]}
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)

make_venv() {
  local name=$1
  shift
  [ -x "$venvs/$name/bin/python" ] || "$python" -m venv "$venvs/$name" || return
  if ! "$venvs/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; then
    echo "$name cannot be installed here" >&2
    mv "$venvs/$name" "$venvs/$name.failed"
  fi
}

mkdir -p "$venvs"
make_venv rivals -r "$here/requirements.txt"
make_venv tf tensorflow-cpu==2.21.0 pillow==13.0.0
# Compiled when it is installed: needs a C++ compiler, libopencv-dev and libturbojpeg0-dev.
make_venv ffcv ffcv==1.0.2 torch==2.14.1 torchvision==0.29.1 pillow==13.0.0 setuptools
