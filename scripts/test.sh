#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test that needs no GPU: the CTest suites, a short
# run of the quickstart experiment, the notebooks on its database and, where nvcc is, the build of
# the CUDA side. The last line counts all of them.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

passed=0
failed=0
skipped=0

# Adds up a CTest run from its JUnit file.
count_junit() {
  local header not_run
  count() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" <<<"$header"; }
  header=$(tr '\n' ' ' <"$1" | grep -o '<testsuite[^>]*>')
  not_run=$(($(count skipped) + $(count disabled)))
  failed=$((failed + $(count failures)))
  skipped=$((skipped + not_run))
  passed=$((passed + $(count tests) - $(count failures) - not_run))
}

# run_ctest PRESET [OPTION...]
run_ctest() {
  local preset=$1 report="$project_root/build/$1/ctest.xml"
  shift
  rm -f "$report"
  ctest --preset "$preset" --output-junit "$report" "$@" || echo "ctest: some tests failed"
  if [ -f "$report" ]; then count_junit "$report"; else failed=$((failed + 1)); fi
}

# check NAME COMMAND...: one more test.
check() {
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "passed: $name"
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
  fi
}

skip() {
  skipped=$((skipped + 1))
  echo "skipped: $1"
}

database=build/cpu/test-results.sqlite
short_quickstart() {
  rm -f "$database" "$database"-*
  "$program" run experiments/specs/quickstart.yaml --db "$database" \
    --set measure.blocks=3 --set workload.output_tokens=16 --set measure.trace_steps=8
}

one_row_a_stack() {
  local rows
  rows=$(sqlite3 "$database" 'select count(distinct stack) = 4 and count(*) = 4 from v_stack_summary')
  [ "$rows" = 1 ]
}

run_notebooks() {
  local notebook
  for notebook in notebooks/*.ipynb; do
    [ -e "$notebook" ] || { echo "no notebooks"; return 1; }
    TRIPTYCH_DB="$project_root/$database" .venv/bin/jupyter-nbconvert --to notebook --execute \
      --log-level WARN --output-dir build/cpu/notebooks "$notebook" || return 1
  done
}

test_gpu_build() {
  local nvcc
  if ! nvcc=$(find_nvcc); then
    skip "CUDA build (no nvcc)"
    return 0
  fi
  export CUDACXX=$nvcc
  check "CUDA build" build gpu "${strict[@]}" -- triptych_gpu_tests
  # A skip is a failure only where a GPU is: the preset sets TRIPTYCH_REQUIRE_GPU=1.
  if [ -e /dev/nvidiactl ]; then
    run_ctest gpu -L gpu
  else
    run_ctest gpu-build -L gpu
  fi
}

strict=()  # a user's newer compiler may know more warnings
if [ -n "${CI:-}" ]; then strict=(-DTRIPTYCH_WERROR=ON); fi
timed "packages" install_packages
timed "build" build cpu "${strict[@]}" --
timed "model" ensure_model
timed "tests" run_ctest cpu -j "$jobs"
timed "short quickstart" check "short quickstart" short_quickstart
check "one row a stack" one_row_a_stack
timed "python packages" check "python packages" ensure_python_packages
timed "notebooks" check "notebooks" run_notebooks
timed "CUDA side" test_gpu_build
print_durations
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
