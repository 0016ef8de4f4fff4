#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Runs small GPU tests under compute-sanitizer, one line a tool and suite; ends with 1 if any of them
# found something, failed or ran out of time. Cases are small because a sanitizer slows a kernel
# down by 10 to 1000 times; the numbers themselves are tested without it.
#
#   scripts/gpu_sanitize.sh [BIN_DIR]     folder of the test programs (default: build/gpu/bin)
#   TOOLS="memcheck racecheck initcheck"  tools to run
#   SUITES="sample attention"             suites to run (default: all)
#   LIMIT=60                              seconds a tool and suite
#   LOGS=build/sanitize                   folder for what the tools print
set -uo pipefail

bin=${1:-build/gpu/bin}
tools=${TOOLS:-memcheck racecheck initcheck}
limit=${LIMIT:-60}
logs=${LOGS:-build/sanitize}
export TRIPTYCH_REQUIRE_GPU=1

# name | program | filter
suites='
sample|kernels_cuda_test|SampleCuda/0.SmallCasesOfOneBlockARow
clusters|kernels_cuda_test|SampleCuda/0.SmallCasesOfClusters
attention|kernels_cuda_test|AttentionCuda/*.SmallCasesOfEveryKernel
stream|kernels_cuda_test|StreamLinear/*.SmallShapes*
wide|kernels_cuda_test|StreamWide/*.EveryNumberOfRows
rows|kernels_cuda_test|DecoderOpsCuda/*:-*SwigluOfExtremes*
heads|kernels_cuda_test|HeadOpsCuda/*
rms_norm|kernels_cuda_test|RmsNormCuda/*
step|engine_cuda_test|StepBuffersCuda.*:StepStateCuda.*:DeviceOpsCuda.Tokens*:DeviceOpsCuda.AStep*
'

command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer in PATH" >&2; exit 1; }
mkdir -p "$logs"

# sanitize TOOL NAME PROGRAM FILTER: prints the line; 0 if the tool found nothing.
sanitize() {
  local log="$logs/$1.$2.log" start=$SECONDS code errors tests verdict
  timeout "$limit" compute-sanitizer --tool "$1" --report-api-errors no --error-exitcode 86 \
    "$bin/$3" --gtest_brief=0 --gtest_filter="$4" >"$log" 2>&1
  code=$?
  tests=$(sed -n 's/^\[==========\] \([0-9]*\) tests\{0,1\} from .* ran\..*/\1/p' "$log")
  errors=$(sed -n -e 's/^=* *ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
    -e 's/^=* *RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | tail -1)
  case $code in
    0) verdict=ok ;;
    124) verdict="out of time" ;;
    *) verdict="FAILED ($code)" ;;
  esac
  if [ "$code" = 0 ] && [ "${tests:-0}" = 0 ]; then
    code=1
    verdict="FAILED (no tests)"
  fi
  printf '%-9s %-10s %3s tests  %4s found  %3s s  %s\n' "$1" "$2" "${tests:--}" "${errors:--}" \
    $((SECONDS - start)) "$verdict"
  return "$code"
}

failed=0
for tool in $tools; do
  while IFS='|' read -r name program filter; do
    if [ -z "$name" ]; then continue; fi
    if [ -n "${SUITES:-}" ] && ! grep -qw -- "$name" <<<"$SUITES"; then continue; fi
    sanitize "$tool" "$name" "$program" "$filter" || failed=1
  done <<<"$suites"
done
exit "$failed"
