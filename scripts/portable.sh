#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# Makes build/gpu-portable/portable/{bin,lib,scripts,specs,prompts,traces}: the program, the GPU tests and
# triptych_gpu_bench for a GPU machine that has neither compilers nor our libraries. Copy the folder
# there and run bin/kernels_cuda_test and bin/triptych_gpu_bench.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=build/gpu-portable/portable
max_bytes=$((60 << 20))
# What every Linux with glibc and a C++ runtime has, and, of CUDA, the library beside the driver's.
system_libraries='linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libgcc_s|libcublasLt|libstdc\+\+'

check_libraries() {
  local binary name foreign=0
  for binary in "$folder"/bin/*; do
    while read -r name; do
      echo "$binary needs $name"
      foreign=1
    done < <(ldd "$binary" | grep -v "=> $(realpath "$folder")/" | awk '{print $1}' |
      grep -vE "^(.*/)?($system_libraries)\.so")
  done
  return $foreign
}

CUDACXX=$(find_nvcc) || die "nvcc is not here: the portable folder is for GPU machines"
export CUDACXX
timed "packages" install_packages
timed "build" build gpu-portable -- triptych triptych_gpu_tests
rm -rf "$folder"
timed "install" cmake --install build/gpu-portable --strip
check_libraries || die "$folder is not portable"
bytes=$(du -sb "$folder" | cut -f1)
[ "$bytes" -lt "$max_bytes" ] || die "$folder has $bytes bytes, more than $max_bytes"
"$folder/bin/triptych" --help >/dev/null
print_durations
echo "$folder: $((bytes >> 20)) MiB"
