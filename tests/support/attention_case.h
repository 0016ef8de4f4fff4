// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// AttentionCase: AttentionInputs on a device, and what a kernel makes of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/common/cuda_handles.h"
#include "kernels/cuda/attention.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/device_numbers.h"

namespace triptych {

template <class T>
class AttentionCase {
 public:
  using Expected = typename AttentionInputs<T>::Expected;

  /// See AttentionInputs.
  AttentionCase(AttentionSizes sizes, uint64_t seed, const std::vector<int>& identity = {})
      : inputs_(std::move(sizes), seed, identity),
        q_(to_device(inputs_.q)),
        k_(to_device(inputs_.k)),
        v_(to_device(inputs_.v)),
        out_(static_cast<size_t>(inputs_.row_starts.back() * inputs_.width())),
        lengths_(to_device(inputs_.sizes.kv_lengths)),
        row_starts_(to_device(inputs_.row_starts)),
        starts_(to_device(inputs_.starts)),
        table_(to_device(inputs_.table)),
        workspace_(static_cast<size_t>(
            attention_workspace_bytes(inputs_.num_sequences(), inputs_.sizes.num_q_heads,
                                      inputs_.sizes.num_kv_heads, inputs_.sizes.head_dim))) {
    TRIPTYCH_CUDA_CHECK(cudaMemset(workspace_.data(), 0, workspace_.size_bytes()));
    spoil_result();
  }

  [[nodiscard]] AttentionArgs<T> args() const {
    const AttentionSizes& sizes = inputs_.sizes;
    AttentionArgs<T> args;
    args.q = q_.data();
    args.q_stride = inputs_.q_stride();
    args.out = out_.data();
    args.kv.k = k_.data();
    args.kv.v = v_.data();
    if (sizes.page_size > 0) {
      args.kv.page_table = table_.data();
      args.kv.page_table_stride = inputs_.table_stride;
      args.kv.page_size = sizes.page_size;
    } else {
      args.kv.starts = starts_.data();
    }
    args.kv.num_kv_heads = sizes.num_kv_heads;
    args.kv.head_dim = sizes.head_dim;
    args.num_q_heads = sizes.num_q_heads;
    args.num_sequences = inputs_.num_sequences();
    args.kv_lengths = lengths_.data();
    args.row_starts = row_starts_.data();
    args.rows = inputs_.row_starts.back();
    args.max_kv_length = *std::max_element(sizes.kv_lengths.begin(), sizes.kv_lengths.end());
    args.scale = inputs_.scale();
    args.window = sizes.window;
    args.workspace = workspace_.data();
    return args;
  }

  [[nodiscard]] const AttentionInputs<T>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Expected>& expected() {
    if (expected_.empty()) expected_ = inputs_.expected();
    return expected_;
  }
  [[nodiscard]] std::vector<T> result() const { return to_host(out_); }
  /// The output rows of sequence s.
  [[nodiscard]] std::vector<T> result_of(int64_t s) const {
    const auto all = result();
    return {all.begin() + inputs_.row_starts[s] * inputs_.width(),
            all.begin() + inputs_.row_starts[s + 1] * inputs_.width()};
  }
  /// So that a result that is not written shows.
  void spoil_result() { TRIPTYCH_CUDA_CHECK(cudaMemset(out_.data(), 0xFF, out_.size_bytes())); }

 private:
  AttentionInputs<T> inputs_;
  std::vector<Expected> expected_;
  DeviceBuffer<T> q_, k_, v_, out_;
  DeviceBuffer<int32_t> lengths_, row_starts_, starts_, table_;
  DeviceBuffer<std::byte> workspace_;
};

}  // namespace triptych
