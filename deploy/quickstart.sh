#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From nothing to batches in a training loop: installs what is missing, builds, makes a small set of
# real JPEGs, starts a daemon, reads an epoch from Python through shared memory and another from a
# stock gRPC client, and prints what it measured. Everything lands in build/; the daemon ends with
# this script. QUICKSTART_IMAGES=N makes N pictures instead of 2000.
set -euo pipefail
cd "$(dirname "$0")/.."
images=${QUICKSTART_IMAGES:-2000}
started=$SECONDS

say() { printf '\n== %s (%d s)\n' "$*" "$((SECONDS - started))"; }

say "packages"
bash deploy/install-deps.sh build python

say "build/release"
mkdir -p build
cmake --preset release > build/quickstart-configure.log 2>&1 || {
  cat build/quickstart-configure.log >&2
  exit 1
}
cmake --build build/release --target batchd
batchd=$PWD/build/release/server/daemon/batchd

say "Python client"
python=build/quickstart-venv/bin/python
[ -x "$python" ] || python3 -m venv --system-site-packages build/quickstart-venv
"$python" -m pip install --quiet --disable-pip-version-check "./python_client[grpc]"

work=$(mktemp -d)
daemon=
cleanup() {
  if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then wait "$daemon" || true; fi
  rm -rf "$work"
}
trap cleanup EXIT

say "$images JPEGs"
"$batchd" demo --make-images "$work/images" --count "$images"

say "daemon"
"$batchd" serve --listen "unix:$work/sock" --root "$work/images" --http 127.0.0.1:0 \
  2> "$work/log" &
daemon=$!
for _ in $(seq 100); do
  http=$(sed -n 's/.* I ready .* http=\([^ ]*\).*/\1/p' "$work/log")
  [ -z "$http" ] || break
  kill -0 "$daemon" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done
[ -n "$http" ] || { cat "$work/log" >&2; exit 1; }
cat "$work/log"
"$batchd" health --http "$http"

say "one epoch each"
"$python" deploy/quickstart.py "$work/sock" "$work/images" "$http" || { cat "$work/log" >&2; exit 1; }
say "done"
