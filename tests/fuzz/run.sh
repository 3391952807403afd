#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tests/fuzz/run.sh [SECONDS [TARGET...]]: builds the fuzz targets (clang 14, ASan, UBSan, libFuzzer)
# and runs all of them at once for that long, 30 s if nothing is said, each from its kept corpus.
# What breaks one is left in build/fuzz/<target>/, and the line that replays it is printed. New
# inputs that reach more code are in build/fuzz/<target>/corpus. BATCHD_FUZZ_SEED is libFuzzer's seed:
# 1 if nothing is said, so that a run of the tests tries the same on each day, or 0 for one at random.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
seconds=${1:-30}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(datagrams pipeline index jpeg png pnm bmp gif webp tiff avif jp2)
declare -A dictionary=([datagrams]=json [pipeline]=json [jpeg]=jpeg [png]=png [pnm]=pnm)
bin=$PWD/build/asan/tests/fuzz
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
start=$SECONDS

if [ ! -e build/asan/build.ninja ]; then cmake --preset asan || exit 1; fi
cmake --build build/asan --target fuzz || exit 1

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
declare -A pids
for target in "${targets[@]}"; do
  folder=build/fuzz/$target
  rm -rf "$folder/corpus"
  mkdir -p "$folder/corpus"
  arguments=(-seed="${BATCHD_FUZZ_SEED:-1}" -max_total_time="$seconds" -timeout=60
             -rss_limit_mb=2048 -max_len=4096
             -print_final_stats=1 -artifact_prefix="$folder/")
  if [ -n "${dictionary[$target]:-}" ]; then
    arguments+=(-dict="tests/fuzz/dict/${dictionary[$target]}.dict")
  fi
  TMPDIR=$temporary timeout -k 10 $((seconds + 120)) \
    "$bin/${target}_fuzz" "${arguments[@]}" "$folder/corpus" "tests/fuzz/corpus/$target" \
    > "$folder/log" 2>&1 &
  pids[$target]=$!
done

passed=0
failed=0
for target in "${targets[@]}"; do
  rc=0
  wait "${pids[$target]}" || rc=$?
  log=build/fuzz/$target/log
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  if [ "$rc" -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
    passed=$((passed + 1))
    printf '%-10s %10d executions, coverage %5d\n' "$target" "$runs" "${coverage:-0}"
  else
    failed=$((failed + 1))
    tail -60 "$log"
    printf '%-10s has ended with %d; replay: %s\n' "$target" "$rc" \
      "$(sed -n "s|.*Test unit written to \(.*\)|$bin/${target}_fuzz \1|p" "$log" | tail -1)"
  fi
done
echo "$passed passed, $failed failed in $((SECONDS - start))s"
[ "$failed" -eq 0 ]
