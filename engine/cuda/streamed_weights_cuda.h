// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// StreamedWeights: which matrices the streaming kernels take, described to them once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "kernels/common/dtype.h"
#include "kernels/cuda/stream_linear.h"

namespace triptych {

/// Matrices that lie back to back in memory, as one.
[[nodiscard]] inline WeightView joined(std::span<const WeightView> parts) {
  WeightView all = parts.front();
  all.rows = 0;
  for (const WeightView& part : parts) {
    TRIPTYCH_CHECK(part.data == all.data + all.bytes(), "these weights lie back to back");
    all.rows += part.rows;
  }
  return all;
}

/// T is __half or __nv_bfloat16. Keeps no memory of the matrices, which must outlive it.
template <class T>
class StreamedWeights {
 public:
  struct Streamed {
    std::optional<StreamWeight<T>> weight;
    int64_t max_rows =
        0;  ///< Of x that the streaming kernels take; 0: they do not take this matrix.
    int64_t max_norm_rows = 0;  ///< Of x whose norm they take, too.
  };

  /// Of a matrix of T in device memory.
  const Streamed& operator()(const WeightView& w) {
    const auto [place, is_new] = all_.try_emplace({w.data, w.rows});
    Streamed& streamed = place->second;
    if (!is_new) return streamed;
    T* const data = const_cast<T*>(reinterpret_cast<const T*>(w.data));
    auto made = make_stream_weight<T>(data, w.rows, w.columns);
    if (!made) return streamed;
    streamed.weight = *std::move(made);
    // What is required of the other operands is alignment, and that of any matrix will do.
    for (const int64_t rows : {kMaxNarrowStreamRows, kMaxStreamRows, kMaxWideStreamRows}) {
      StreamLinearArgs<T> args{
          .input = {data, rows, nullptr, 0.0f}, .w = &*streamed.weight, .y = data};
      if (stream_linear_supports(args)) streamed.max_rows = rows;
      args.input.norm = data;
      if (stream_linear_supports(args)) streamed.max_norm_rows = rows;
    }
    return streamed;
  }

 private:
  std::map<std::pair<const std::byte*, int64_t>, Streamed> all_;  // by place and rows
};

}  // namespace triptych
