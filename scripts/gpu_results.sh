#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Measures what docs/RESULTS_H200.md is made from, on this machine's first GPU:
#   gpu_results.sh FOLDER [PART...]
# Works in a source tree (after `cmake --workflow --preset gpu`) and in the portable folder. Every part adds
# to FOLDER/results.sqlite or FOLDER/gpu_bench.txt, and one that is done measures nothing again, so
# that parts can be run one by one where a session has a limit. Without PART all of them:
#   bench          every kernel beside what the device reads and multiplies
#   fast           decode steps against the floor, and how fast prompts are read
#   device_bound   the baseline beside Hugging Face Transformers where the device bounds both
#   decompose      Transformers, the baseline and the runtime's features; concurrency 1, 8, 32
#   decompose_128  the same at concurrency 128
#   qwen, mistral  baseline and fast runtime in the shapes of other families
#   slim           makes the database small (slim_results.py); comes last
# Parts with Transformers need PyTorch and transformers in python3, or in the one that TRIPTYCH_PYTHON
# names, and 16 GB for the model in TRIPTYCH_CACHE: /dev/shm/triptych is a fast place for it.
# GPU_RESULTS_SET holds values to replace, e.g. "model.layers=4 measure.blocks=1" for a quick trial.
set -euo pipefail

parts=(bench fast device_bound decompose decompose_128 qwen mistral slim)
die() { printf 'gpu_results.sh: %s\n' "$*" >&2; exit 2; }
[ $# -ge 1 ] || die "expected FOLDER [PART...], parts are: ${parts[*]}"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[ $# = 0 ] || parts=("$@")

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$scripts/.."  # specs are named relative to here, whatever the machine calls it
if [ -x bin/triptych ]; then
  bin=bin specs=specs
else
  bin=build/gpu/bin specs=experiments/specs
fi
[ -x "$bin/triptych" ] || die "$bin/triptych is not there; build it with cmake --workflow --preset gpu"

# spec NAME [KEY=VALUE...]: into the database; cells that could not run (exit code 1) are rows with a reason.
spec() {
  local name=$1 value sets=() code=0
  shift
  for value in "$@" ${GPU_RESULTS_SET:-}; do sets+=(--set "$value"); done
  "$bin/triptych" run "$specs/$name.yaml" --db "$folder/results.sqlite" "${sets[@]}" || code=$?
  [ "$code" -le 1 ] || return "$code"
}

bench() {
  { date -u +%Y-%m-%dT%H:%M:%SZ && "$bin/triptych" --version &&
    "$bin/triptych_gpu_bench"; } >"$folder/gpu_bench.txt"
}

run_part() {
  case $1 in
    bench) bench ;;
    fast) spec fast_8b_fp16 ;;
    device_bound) spec device_bound_8b_fp16 ;;
    decompose) spec decompose_8b_fp16 'workload.concurrency=[1, 8, 32]' ;;
    decompose_128) spec decompose_8b_fp16 workload.concurrency=128 ;;
    qwen) spec decode_qwen2_5_7b_fp16 ;;
    mistral) spec decode_mistral_7b_fp16 ;;
    # The traces that show what prompts are read with stay whole: they have one decode step.
    slim) python3 "$scripts/slim_results.py" "$folder/results.sqlite" --records device_bound_8b_fp16 ;;
    *) die "no part '$1', expected some of: bench fast device_bound decompose decompose_128 qwen" \
      "mistral slim" ;;
  esac
}

for part in "${parts[@]}"; do
  start=$SECONDS
  run_part "$part"
  printf '== %s: %d s\n' "$part" $((SECONDS - start)) >&2
done
