#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the readers of foreign files: scripts/fuzz.sh [SECONDS [TARGET...]], 60 s of each by default,
# as many targets at a time as there are cores. Builds the preset fuzz first (needs clang) where the
# programs are not there. New inputs go to build/fuzz/corpus/TARGET, inputs that fail, with the log, to
# build/fuzz/crashes. One line a target; exit 1 if an input failed.
#
# The programs need only glibc. For another machine: tar cJf fuzz.tar.xz scripts/fuzz.sh tests/fuzz
# build/fuzz/bin; there: tar xf fuzz.tar.xz && scripts/fuzz.sh 600
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/build/fuzz
bin=$out/bin
seconds=${1:-60}
shift || true

if [ ! -d "$bin" ]; then
  (cd "$root" && cmake --preset fuzz && cmake --build --preset fuzz -j "$(nproc)") || exit 2
fi
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for program in "$bin"/*_fuzz; do targets+=("$(basename "$program" _fuzz)"); done
fi

# Longer than any seed; a large input mostly repeats a small one and costs executions.
max_len() {
  case $1 in
    gguf | gguf_tokenizer | tokenizer_json) echo 16384 ;;
    *) echo 4096 ;;
  esac
}

# fuzz_one TARGET: one line with executions, coverage and what failed.
fuzz_one() {
  local name=$1 status log="$out/crashes/$1.log" options=()
  mkdir -p "$out/corpus/$name" "$out/crashes"
  [ -f "$root/tests/fuzz/dict/$name.dict" ] && options+=("-dict=$root/tests/fuzz/dict/$name.dict")
  local seeds=("$out/corpus/$name")
  for folder in corpus regressions; do
    [ -d "$root/tests/fuzz/$folder/$name" ] && seeds+=("$root/tests/fuzz/$folder/$name")
  done
  "$bin/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len="$(max_len "$name")" -print_final_stats=1 -artifact_prefix="$out/crashes/$name-" \
    "${options[@]}" "${seeds[@]}" >"$log" 2>&1
  status=$?
  local executions slowest coverage
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  slowest=$(sed -n 's/^stat::slowest_unit_time_sec: *//p' "$log")
  coverage=$(grep -ao 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)
  printf '%-16s %10s runs  %-22s slowest %s s  %s\n' "$name" "${executions:-?}" "${coverage:-?}" \
    "${slowest:-?}" "$([ $status = 0 ] && echo ok || echo "FAILED ($status): $log")"
  return $status
}

failed=0
running=0
for name in "${targets[@]}"; do
  if [ $running -ge "$(nproc)" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  fuzz_one "$name" &
  running=$((running + 1))
done
while [ $running -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit $failed
