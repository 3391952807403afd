#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the tests need, builds and runs all of them: the whole suite under ASan and UBSan
# (asan), the fuzz targets for 30 s, what does not need gRPC under TSan with clang 14 and its thread-safety analysis (tsan), a
# real daemon as it is shipped (release) and again under ASan, Python, lint. Goes on after a failure;
# the log of each step is build/logs/<step>.log. The last line says how many tests have passed and
# failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
mkdir -p build/logs
passed=0
failed=0
failed_steps=()

# How many tests a log speaks of: "<passed> <failed>" by ctest or pytest, else one for the step.
count_tests() {
  local log=$1 rc=$2
  if grep -q 'tests passed, .* tests failed out of' "$log"; then
    sed -n 's/.* tests passed, \([0-9]*\) tests failed out of \([0-9]*\).*/\2 \1/p' "$log" |
      tail -1 | { read -r all bad; echo "$((all - bad)) $bad"; }
  elif grep -qE '[0-9]+ (passed|failed|error).* in [0-9.]+s' "$log"; then
    local line
    line=" $(grep -E '[0-9]+ (passed|failed|error).* in [0-9.]+s' "$log" | tail -1)"
    number() { sed -n "s/.*[^0-9]\([0-9][0-9]*\) $1.*/\1/p" <<< "$line"; }
    local good bad errors
    good=$(number passed) bad=$(number failed) errors=$(number error)
    echo "${good:-0} $((${bad:-0} + ${errors:-0}))"
  else
    echo "$((rc == 0)) $((rc != 0))"
  fi
}

# step NAME COMMAND...: runs it into its log and counts.
step() {
  local name=$1 log=build/logs/$1.log start=$SECONDS rc=0 good bad
  shift
  "$@" > "$log" 2>&1 || rc=$?
  read -r good bad < <(count_tests "$log" "$rc")
  # A tool that ends badly without a failed test has failed all the same.
  if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  printf '%-16s %4d passed %4d failed %5d s\n' "$name" "$good" "$bad" "$((SECONDS - start))"
  if [ "$rc" -ne 0 ]; then
    failed_steps+=("$name")
    tail -40 "$log" | sed 's/^/    /'
  fi
  return "$rc"
}

# suite NAME BUILD_FOLDER CMAKE_ARGUMENTS...: configures, builds, runs ctest.
suite() {
  local name=$1 folder=$2
  shift 2
  step "$name-configure" cmake "$@" &&
    step "$name-build" cmake --build "$folder" &&
    step "$name-tests" ctest --test-dir "$folder" --output-on-failure --no-tests=error -j 2
}

lint_format() {
  git ls-files '*.cc' '*.h' | xargs clang-format-14 --dry-run -Werror
}
lint_shell() {
  git ls-files '*.sh' .ci/run | xargs shellcheck
}
make_venv() {
  # The distribution's Python: its NumPy and Torch are what the packages above have installed.
  [ -x build/test-venv/bin/python ] || /usr/bin/python3 -m venv --system-site-packages build/test-venv
  build/test-venv/bin/python -m pip install --quiet --disable-pip-version-check \
    "./python_client[grpc]" -r tests/requirements.txt
}
# A Python of this version that runs (pyenv has shims that do not), or nothing.
find_python() {
  local candidate
  for candidate in "$HOME/.pyenv/versions/$1".*/bin/python "python$1"; do
    if "$candidate" -c '' 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
}
client_venv() {
  "$1" -m venv "$2" && "$2/bin/python" -m pip install --quiet --disable-pip-version-check \
    "./python_client[grpc]" pytest pytest-timeout
}
# The client on the other Pythons that this machine has.
other_pythons() {
  local version python
  for version in 3.10 3.11 3.12 3.13; do
    python=$(find_python "$version")
    [ -n "$python" ] || continue
    step "venv-$version" client_venv "$python" "build/venv-$version" &&
      step "python-$version" "build/venv-$version/bin/python" -m pytest -q tests/python
  done
}

step packages bash deploy/install-deps.sh
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1
export UBSAN_OPTIONS=print_stacktrace=1
suite asan build/asan --preset asan
step fuzz bash tests/fuzz/run.sh 30
suite tsan build/tsan --preset tsan -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14
# The one build by gcc: with its warnings as errors.
step release-build sh -c 'cmake --preset release -DBATCHD_BENCH=ON \
  -DCMAKE_COMPILE_WARNING_AS_ERROR=ON && cmake --build --preset release'

if step python-venv make_venv; then
  bin=$PWD/build/test-venv/bin
  export PATH=$bin:$PATH
  step python-tests python -m pytest -q tests/python
  other_pythons
  # Both clients; the C++ one under ASan with both carriers, and under TSan, which has no gRPC.
  release=$PWD/build/release/server/daemon/batchd
  step behaviour env BATCHD_BINARY="$release" \
    BATCHD_CLIENT_DRIVER="$PWD/build/asan/tests/client_driver" python -m pytest -q tests/behaviour
  step behaviour-tsan env BATCHD_BINARY="$release" TSAN_OPTIONS=halt_on_error=1 \
    BATCHD_CLIENT_DRIVER="$PWD/build/tsan/tests/client_driver" \
    python -m pytest -q tests/behaviour -k "cpp and not grpc"
  step integration env BATCHD_BINARY="$PWD/build/release/server/daemon/batchd" \
    python -m pytest -q tests/integration
  step integration-asan env BATCHD_BINARY="$PWD/build/asan/server/daemon/batchd" \
    python -m pytest -q tests/integration -m "not release_only"
  step lint-buf buf lint proto
  step lint-ruff ruff check python_client tests deploy docs
  step lint-mypy sh -c 'cd python_client && mypy'
fi
step arm64 bash tests/arm64_compile.sh
step lint-layers python3 tests/layers_test.py
step lint-format lint_format
step lint-shell lint_shell

[ "${#failed_steps[@]}" -eq 0 ] || echo "failed: ${failed_steps[*]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
