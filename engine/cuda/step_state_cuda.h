// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// StepState: the current step on the device, and what its kernels need to know of the cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cuda/kv_cache_cuda.h"
#include "engine/cuda/step_buffers_cuda.h"
#include "engine/engine_options.h"
#include "engine/step.h"

namespace triptych {

class StepState {
 public:
  /// Throws DeviceError.
  StepState(const EngineOptions& options, int64_t num_layers);

  /// The cache of every step; exactly one of the two is set. Lives longer than the steps.
  void set_cache(CudaPagedCache* paged, CudaConcatCache* concat) {
    paged_ = paged;
    concat_ = concat;
  }
  /// Copies the step to the device; its tokens go to place `tokens_at` of those that were chosen.
  /// Throws DeviceError.
  void begin(const Step& step, int64_t tokens_at, cudaStream_t stream);

  /// Lets go of the cache's memory.
  void forget() {
    group_.reset();
    outgrown_.clear();
  }

  [[nodiscard]] const StepBuffers::View& device() const { return buffers_.device(); }
  [[nodiscard]] StepBuffers& buffers() { return buffers_; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] bool padded() const { return padded_; }
  /// Sequences, padding included.
  [[nodiscard]] int64_t sequences() const { return sequences_; }
  /// Sampled rows, padding included and without it.
  [[nodiscard]] int64_t sampled() const { return sampled_; }
  [[nodiscard]] int64_t real_sampled() const { return real_sampled_; }
  /// Sequences before this one have several rows (prefill); from it on each has one.
  [[nodiscard]] int64_t first_decode() const { return first_decode_; }
  [[nodiscard]] int64_t first_decode_row() const { return first_decode_row_; }
  [[nodiscard]] int64_t max_kv_length() const { return max_kv_length_; }
  [[nodiscard]] int64_t total_tokens() const { return total_tokens_; }
  /// Keys that are read, once a sequence, and keys that queries see, within a window (0 = all).
  [[nodiscard]] int64_t keys(int64_t window) const;
  [[nodiscard]] int64_t attended(int64_t window) const;

  [[nodiscard]] bool paged() const { return paged_ != nullptr; }
  [[nodiscard]] CudaPagedCache& paged_cache() const { return *paged_; }
  /// The step's own buffers of a contiguous cache.
  [[nodiscard]] CudaConcatCache::Group& group() const { return *group_; }
  /// Buffers of earlier steps whose sequences are all in this one: each part may be freed once it
  /// is copied.
  [[nodiscard]] const std::vector<std::shared_ptr<CudaConcatCache::Group>>& outgrown() const {
    return outgrown_;
  }

 private:
  struct Sequence {
    int64_t first_position, num_tokens;
  };
  void fill_rows(const Step& step, const StepBuffers::View& host);
  void fill_sampled(const Step& step, const StepBuffers::View& host);
  void fill_pages(const Step& step, const StepBuffers::View& host);
  void fill_concat(const Step& step, const StepBuffers::View& host);

  int64_t num_layers_;
  int64_t pages_per_sequence_;
  StepBuffers buffers_;
  CudaPagedCache* paged_ = nullptr;
  CudaConcatCache* concat_ = nullptr;

  int64_t rows_ = 0;
  bool padded_ = false;
  int64_t sequences_ = 0;
  int64_t sampled_ = 0;
  int64_t real_sampled_ = 0;
  int64_t first_decode_ = 0;
  int64_t first_decode_row_ = 0;
  int64_t max_kv_length_ = 0;
  int64_t total_tokens_ = 0;
  std::vector<Sequence> lengths_;
  std::shared_ptr<CudaConcatCache::Group> group_;
  std::vector<std::shared_ptr<CudaConcatCache::Group>> outgrown_;
};

}  // namespace triptych
