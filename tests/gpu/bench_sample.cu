// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Sampling from logits of a vocabulary of 128256. The logits are uniform and close together, so
// that top-p keeps most of them: the hard case.
#include <cuda_fp16.h>

#include "base/strings.h"
#include "kernels/cuda/sample.h"
#include "tests/gpu/bench.h"

namespace triptych::bench {
namespace {

constexpr int64_t kVocab = 128256;

void rows_of(Bench& bench, int64_t rows, const SamplingParams& params) {
  const int64_t set = rows * kVocab * static_cast<int64_t>(sizeof(__half));
  const int64_t sets = bench.rotation(set);
  const auto size = static_cast<size_t>(rows);
  const DeviceBuffer<SampleKey> keys(size);
  const DeviceBuffer<int32_t> out(size);
  const DeviceBuffer<char> workspace(static_cast<size_t>(sample_workspace_bytes(rows, kVocab)));
  TRIPTYCH_CUDA_CHECK(cudaMemset(keys.data(), 0, keys.size_bytes()));
  TRIPTYCH_CUDA_CHECK(cudaMemset(workspace.data(), 0, workspace.size_bytes()));
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());
  const std::string name = params.greedy() ? std::string("sample greedy")
                                           : str_format("sample top_k=%d top_p=%g", params.top_k,
                                                        static_cast<double>(params.top_p));
  bench.row(
      name,
      str_format("[%lld, %lld]", static_cast<long long>(rows), static_cast<long long>(kVocab)),
      sample_cost(rows, kVocab, sizeof(__half)), sets, [&](int64_t i, cudaStream_t stream) {
        launch_sample<__half>(
            {.logits = reinterpret_cast<const __half*>(bench.pool() + i * set),
             .rows = rows,
             .vocab_size = kVocab,
             .params = params,
             .keys = keys.data(),
             .out = out.data(),
             .workspace = workspace.data(),
             .order = i == 0 ? LaunchOrder::kAfterPrevious : LaunchOrder::kOverlapPrevious},
            stream);
      });
}

}  // namespace

TRIPTYCH_BENCH(sample) {
  for (const SamplingParams params : {SamplingParams{},
                                      {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f},
                                      {.temperature = 1.0f, .top_p = 0.95f},
                                      {.temperature = 1.0f}}) {
    for (const int64_t rows : {1, 8, 32, 128}) rows_of(bench, rows, params);
  }
}

}  // namespace triptych::bench
