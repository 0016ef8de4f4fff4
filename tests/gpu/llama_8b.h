// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sizes of a decoder layer of Llama-3.1-8B, for benchmarks.
#pragma once

#include <cstdint>

namespace triptych::bench::llama_8b {

inline constexpr int64_t kHidden = 4096;
inline constexpr int64_t kIntermediate = 14336;
inline constexpr int64_t kQueryHeads = 32;
inline constexpr int64_t kKvHeads = 8;
inline constexpr int64_t kHeadDim = 128;
inline constexpr int64_t kQkv = (kQueryHeads + 2 * kKvHeads) * kHeadDim;
inline constexpr int64_t kVocab = 128256;
inline constexpr int64_t kLayers = 32;
inline constexpr int64_t kPageSize = 16;
inline constexpr float kEps = 1e-5f;
/// Of the norm: small, so that the residual stays far from the largest f16 over all repeats.
inline constexpr float kGain = 0.02f;

}  // namespace triptych::bench::llama_8b
