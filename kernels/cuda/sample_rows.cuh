// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// What the kernels of kernels/cuda/sample.h share: reading a row of logits, writing the token.
#pragma once

#include <cstdint>

#include "kernels/common/order_key.cuh"
#include "kernels/common/vector8.cuh"
#include "kernels/cuda/sample.h"

namespace triptych {

/// One row in vectors of eight; what lies beyond its end is NaN, which never wins. Rows that do not
/// start at 16 bytes (vocab_size is no multiple of 8) are read number by number.
template <class T>
class LogitRow {
 public:
  __device__ LogitRow(const T* logits, int64_t vocab_size)
      : logits_(logits),
        vocab_size_(vocab_size),
        aligned_(reinterpret_cast<uintptr_t>(logits) % sizeof(uint4) == 0) {}

  __device__ Vector8<T> load(int64_t vector) const {
    const int64_t first = vector * kVectorWidth;
    if (aligned_ && first + kVectorWidth <= vocab_size_) return load_once(logits_, vector);
    constexpr uint32_t kTwoNans = 0xFFFFFFFF;
    Vector8<T> result = {{kTwoNans, kTwoNans, kTwoNans, kTwoNans}};
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      if (first + i >= vocab_size_) continue;
      const uint32_t bits = reinterpret_cast<const uint16_t*>(logits_)[first + i];
      const int shift = 16 * (i % 2);
      result.words[i / 2] = (result.words[i / 2] & ~(0xFFFFu << shift)) | bits << shift;
    }
    return result;
  }

 private:
  const T* logits_;
  int64_t vocab_size_;
  bool aligned_;
};

template <class T>
__device__ void write_token(const SampleArgs<T>& args, int64_t row, int32_t token) {
  const int64_t first = args.out_at != nullptr ? *args.out_at : 0;
  const int32_t slot = args.slots != nullptr ? args.slots[row] : -1;
  args.out[first + row] = token;
  if (slot >= 0) args.last_tokens[slot] = token;
}

/// The halves of launch_sample, with checked arguments.
template <class T>
void launch_argmax(const SampleArgs<T>& args, cudaStream_t stream);
template <class T>
void launch_sample_random(const SampleArgs<T>& args, cudaStream_t stream);
/// Random sampling where sample_histogram_fits(); has_clusters: the device has them (sm_90).
template <class T>
void launch_sample_histogram(const SampleArgs<T>& args, bool has_clusters, cudaStream_t stream);
/// Whether a block that may have so much shared memory has room for it.
[[nodiscard]] bool sample_histogram_fits(int shared_bytes_per_block);

}  // namespace triptych
