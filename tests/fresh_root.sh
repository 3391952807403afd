#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that deploy/install-deps.sh forgets nothing: makes an empty Debian 12 in a temporary folder,
# puts a clean clone of the tree into it and runs the README's two commands there. By hand and as
# root, since it takes about 40 minutes and 8 GB. The summary goes to tests/fresh_root.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tests/empty_debian.sh
. tests/empty_debian.sh

summary=$PWD/tests/fresh_root.txt
root=$(mktemp -d "${TMPDIR:-/var/tmp}/batchd-root-XXXXXX")
trap 'remove_root "$root"' EXIT
make_root "$root"

git clone -q . "$root/src/batchd"
if [ -d ../shared ]; then cp -aL ../shared "$root/src/shared"; fi

inside() { in_root "$root" bash -c "cd /src/batchd && $1"; }
{
  system=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")
  echo "$(git rev-parse --short HEAD), $system, $(nproc) cores"
  for command in "bash deploy/quickstart.sh" "bash tests/run.sh"; do
    start=$SECONDS
    rc=0
    inside "$command" > "$root/log" 2>&1 || rc=$?
    echo
    echo "\$ $command    # $((SECONDS - start)) s, exit code $rc"
    tail -n 30 "$root/log"
  done
} | tee "$summary"
! grep -q 'exit code [1-9]' "$summary"
