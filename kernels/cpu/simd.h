// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Which instruction sets the SIMD files are compiled for. Included before any Highway header.
#pragma once

// On x86 the lowest target is SSE4 (every x86-64-v2 processor, 2008 on) in place of Highway's
// scalar code, whose one-lane vectors cannot hold two halves or four bytes; AVX2 and AVX-512 (AVX3)
// are chosen at run time. Each target multiplies compile time, and AVX3_DL would add nothing that
// the kernels use. SVE is left out because they keep arrays of vectors; Arm uses NEON.
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Full unrolling keeps arrays of vectors in registers; larger than any such array here. Sanitizers
// put them in memory whatever is done, and unrolled checks compile for minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRIPTYCH_UNROLL
#else
#define TRIPTYCH_UNROLL HWY_UNROLL(32)
#endif
