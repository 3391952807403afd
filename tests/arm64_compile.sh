#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles for arm64 what differs there: the kernels on Highway, and what confines decode workers by
# numbers of system calls. Nothing is linked or run: it shows that they are there and that vectors
# come out of them. Headers of this machine's libraries serve, since they are the same on both.
set -euo pipefail
cd "$(dirname "$0")/.."
object=$(mktemp)
trap 'rm -f "$object"' EXIT
sources=(server/image/*.cc server/decoder/confinement.cc server/decoder/worker_process.cc)
for source in "${sources[@]}"; do
  aarch64-linux-gnu-g++ -std=c++20 -O2 -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers \
    -Wno-psabi -I. -idirafter /usr/include -DHWY_SHARED_DEFINE -DFMT_SHARED -DSPDLOG_FMT_EXTERNAL \
    -c "$source" -o "$object"
  case $source in
    */row_kernels.cc | */colour_rows.cc)
      count=$(aarch64-linux-gnu-objdump -d "$object" | grep -cE 'v[0-9]+\.(16b|8h|4s)' || true)
      echo "$source: $count vector instructions"
      [ "$count" -gt 100 ] || exit 1
      ;;
  esac
done
echo "${#sources[@]} files compiled"
