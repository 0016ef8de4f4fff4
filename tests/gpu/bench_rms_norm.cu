// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RMS norm of few rows (decode) and many (prefill), with and without the residual sum.
#include <cuda_fp16.h>

#include "base/strings.h"
#include "kernels/rms_norm.h"
#include "tests/gpu/bench.h"

namespace triptych::bench {
namespace {

void row_of(Bench& bench, int64_t rows, int64_t hidden, bool residual, LaunchOrder order) {
  const int64_t elements = rows * hidden;
  const int64_t set = (residual ? 3 : 2) * elements * static_cast<int64_t>(sizeof(__half));
  const int64_t sets = bench.rotation(set + hidden * static_cast<int64_t>(sizeof(__half)));
  auto* weight = reinterpret_cast<__half*>(bench.pool() + sets * set);
  const auto args = [&](int64_t i) {
    auto* x = reinterpret_cast<__half*>(bench.pool() + i * set);
    return RmsNormArgs<__half>{.x = x,
                               .residual = residual ? x + 2 * elements : nullptr,
                               .weight = weight,
                               .y = x + elements,
                               .num_tokens = rows,
                               .hidden_size = hidden,
                               .eps = 1e-5f};
  };
  bench.row(
      str_format("rms_norm f16%s%s", residual ? " + residual" : "",
                 order == LaunchOrder::kOverlapPrevious ? ", overlap" : ""),
      str_format("[%lld, %lld]", static_cast<long long>(rows), static_cast<long long>(hidden)),
      rms_norm_cost(args(0)), sets, [&](int64_t i, cudaStream_t stream) {
        launch_rms_norm(args(i), stream, i == 0 ? LaunchOrder::kAfterPrevious : order);
      });
}

}  // namespace

TRIPTYCH_BENCH(rms_norm) {
  for (const bool residual : {false, true}) {
    for (const int64_t rows : {1, 8, 128}) {
      for (const LaunchOrder order : {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
        row_of(bench, rows, 4096, residual, order);
      }
    }
    for (const int64_t hidden : {2048, 4096, 8192, 16384}) {
      row_of(bench, (int64_t{1} << 26) / hidden, hidden, residual, LaunchOrder::kAfterPrevious);
    }
  }
}

}  // namespace triptych::bench
