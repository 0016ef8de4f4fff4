#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Decode and prefill beside llama.cpp on the same files, prompts and threads, and the speed of the
# tool itself. Needs a quiet machine for some minutes. Stores what it measured in
# experiments/results/<machine>-<date>/bench_cpu.json.
#   --quick          two rounds instead of five, nothing is stored
#   PEER_PYTHON=...  a Python that has llama-cpp-python and gguf; otherwise .venv, where the first
#                    run compiles llama.cpp for this processor
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

rounds=5
store=true
for option in "$@"; do
  case $option in
    --quick) rounds=2 store=false ;;
    *) die "unknown option $option, expected --quick" ;;
  esac
done

f16_model=${model%.Q4_1.gguf}.F16.gguf

ensure_peer() {
  if [ -n "${PEER_PYTHON:-}" ]; then
    "$PEER_PYTHON" -c 'import llama_cpp, gguf' ||
      die "PEER_PYTHON=$PEER_PYTHON cannot import llama_cpp and gguf"
    return 0
  fi
  ensure_venv || die "no virtual environment for llama-cpp-python"
  PEER_PYTHON=.venv/bin/python
  "$PEER_PYTHON" -c 'import llama_cpp, gguf' 2>/dev/null && return 0
  pip install -r scripts/bench-requirements.txt ||
    die "llama-cpp-python could not be installed: without it there is nothing to compare with"
}

ensure_f16() {
  [ -f "$model" ] || die "$model could not be had: the comparison needs the real model"
  [ -f "$f16_model" ] || "$PEER_PYTHON" scripts/make_f16_gguf.py "$model" "$f16_model"
  echo "models: $model and $f16_model"
}

# e.g. epyc-2core-2026-01-31
results_folder() {
  local name
  name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 |
    grep -oiE 'epyc|xeon|ryzen|threadripper|core|neoverse' | head -n 1 | tr '[:upper:]' '[:lower:]') || true
  echo "experiments/results/${name:-$(uname -m)}-$(nproc)core-$(date -u +%F)"
}

timed "packages" install_packages
timed "build" build cpu -- triptych triptych_tool_speed
timed "model" ensure_model
timed "llama.cpp" ensure_peer
timed "f16 model" ensure_f16
say "measurement"
arguments=(--program "$program" --tool-speed build/cpu/bin/triptych_tool_speed --f16 "$f16_model"
  --rounds "$rounds")
if $store; then arguments+=(--output "$(results_folder)"); fi
"$PEER_PYTHON" scripts/bench_cpu.py "${arguments[@]}"
