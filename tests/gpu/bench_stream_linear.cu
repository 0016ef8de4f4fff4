// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Streaming linear layers of Llama-3.1-8B, cuBLASLt beside them, and all of a decode step's in a
// row.
#include <cuda_fp16.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/decoder_ops.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/stream_linear.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/llama_8b.h"

namespace triptych::bench {
namespace {

using namespace llama_8b;  // NOLINT: sizes only

enum class Kind { kQkv, kLinear, kResidual, kGateUp };
struct Shape {
  const char* name;
  int64_t n, k;
  Kind kind;
};
constexpr Shape kShapes[] = {{"qkv", kQkv, kHidden, Kind::kQkv},
                             {"o", kHidden, kHidden, Kind::kResidual},
                             {"gate_up", 2 * kIntermediate, kHidden, Kind::kGateUp},
                             {"down", kHidden, kIntermediate, Kind::kResidual},
                             {"lm_head", kVocab, kHidden, Kind::kLinear}};

/// Everything but the weights.
struct Operands {
  DeviceBuffer<__half> hidden, normed, q, act, wide, norm, keys, values;
  DeviceBuffer<int32_t> positions, sequences, pages;
  DeviceBuffer<float> inv_freq;

  explicit Operands(const Bench& bench)
      : hidden(kMaxWideStreamRows * kHidden),
        normed(kMaxWideStreamRows * kHidden),
        q(kMaxWideStreamRows * kHidden),
        act(kMaxWideStreamRows * kIntermediate),
        wide(kMaxWideStreamRows * kVocab),
        norm(upload(std::vector<__half>(kHidden, __float2half(kGain)))),
        keys(kMaxWideStreamRows * kPageSize * kKvHeads * kHeadDim),
        values(kMaxWideStreamRows * kPageSize * kKvHeads * kHeadDim),
        inv_freq(upload(rope_inverse_frequencies(500000.0, kHeadDim, {}))) {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < kMaxWideStreamRows; ++i) rows.push_back(i);
    positions = upload(rows);
    sequences = upload(rows);
    pages = upload(rows);
    for (const DeviceBuffer<__half>* x : {&hidden, &normed, &q, &act}) {
      TRIPTYCH_CUDA_CHECK(
          cudaMemcpy(x->data(), bench.pool(), x->size_bytes(), cudaMemcpyDeviceToDevice));
    }
  }

  /// norm_inside: whether the product takes the norm of its input itself, where there is one.
  void run(const Shape& shape, const StreamWeight<__half>& w, int64_t m, bool norm_inside,
           LaunchOrder order, cudaStream_t stream) const {
    const StreamInput<__half> input = norm_inside
                                          ? StreamInput<__half>{hidden.data(), m, norm.data(), kEps}
                                          : StreamInput<__half>{normed.data(), m};
    switch (shape.kind) {
      case Kind::kQkv:
        launch_stream_qkv(qkv_args(input, w, order), stream);
        return;
      case Kind::kGateUp:
        launch_stream_gate_up(StreamGateUpArgs<__half>{input, &w, act.data(), order}, stream);
        return;
      case Kind::kLinear:
        launch_stream_linear(StreamLinearArgs<__half>{input, &w, wide.data(), false, order},
                             stream);
        return;
      case Kind::kResidual: {
        const StreamInput<__half> plain = {shape.k == kHidden ? q.data() : act.data(), m};
        launch_stream_linear(StreamLinearArgs<__half>{plain, &w, hidden.data(), true, order},
                             stream);
      }
    }
  }
  void take_norm(int64_t m, LaunchOrder order, cudaStream_t stream) const {
    RmsNormArgs<__half> args;
    args.x = hidden.data();
    args.weight = norm.data();
    args.y = normed.data();
    args.num_tokens = m;
    args.hidden_size = kHidden;
    args.eps = kEps;
    launch_rms_norm(args, stream, order);
  }
  /// The product alone, or with `in_layer` what follows it but for the rotation and the cache.
  void run_cublaslt(Gemm& gemm, const Shape& shape, const StreamWeight<__half>& w, int64_t m,
                    bool in_layer, cudaStream_t stream) const {
    const bool residual = in_layer && shape.kind == Kind::kResidual;
    const __half* x = shape.kind != Kind::kResidual ? normed.data()
                      : shape.k == kHidden          ? q.data()
                                                    : act.data();
    gemm.run(GemmArgs<__half>{.x = x,
                              .x_stride = shape.k,
                              .w = w.data,
                              .y = residual ? hidden.data() : wide.data(),
                              .y_stride = shape.n,
                              .m = m,
                              .n = shape.n,
                              .k = shape.k,
                              .beta = residual ? 1.0f : 0.0f},
             stream);
    if (!in_layer || shape.kind != Kind::kGateUp) return;
    launch_swiglu(SwigluArgs<__half>{.gate = wide.data(),
                                     .up = wide.data() + kIntermediate,
                                     .stride = shape.n,
                                     .y = act.data(),
                                     .rows = m,
                                     .columns = kIntermediate},
                  stream);
  }

 private:
  [[nodiscard]] StreamQkvArgs<__half> qkv_args(const StreamInput<__half>& input,
                                               const StreamWeight<__half>& w,
                                               LaunchOrder order) const {
    StreamQkvArgs<__half> args;
    args.input = input;
    args.w = &w;
    args.q_out = q.data();
    args.kv.k = keys.data();
    args.kv.v = values.data();
    args.kv.page_table = pages.data();
    args.kv.page_table_stride = 1;
    args.kv.page_size = kPageSize;
    args.kv.num_kv_heads = kKvHeads;
    args.kv.head_dim = kHeadDim;
    args.num_q_heads = kQueryHeads;
    args.positions = positions.data();
    args.row_sequences = sequences.data();
    args.inv_freq = inv_freq.data();
    args.order = order;
    return args;
  }
};

KernelCost cost_of(const Shape& shape, int64_t m) {
  const int64_t columns = shape.kind == Kind::kGateUp ? shape.n / 2 : shape.n;
  return stream_linear_cost(m, shape.n, shape.k, columns, sizeof(__half));
}

StreamWeight<__half> weight_at(std::byte* data, const Shape& shape) {
  return make_stream_weight<__half>(reinterpret_cast<const __half*>(data), shape.n, shape.k)
      .value();
}

std::string text_of(const Shape& shape, int64_t m) {
  return std::string(shape.name) + " m " + std::to_string(m) + " [" + std::to_string(shape.n) +
         ", " + std::to_string(shape.k) + "]";
}

}  // namespace

TRIPTYCH_BENCH(stream_linear) {
  const Operands operands(bench);
  Gemm gemm;
  for (const Shape& shape : kShapes) {
    const int64_t bytes = shape.n * shape.k * static_cast<int64_t>(sizeof(__half));
    const int64_t sets = bench.rotation(bytes);
    std::vector<StreamWeight<__half>> weights;
    for (int64_t i = 0; i < sets; ++i)
      weights.push_back(weight_at(bench.pool() + i * bytes, shape));
    for (const int64_t m : {1, 4, 8, 16, 32}) {
      const auto call = [&](bool norm_inside, LaunchOrder order) {
        return [&, norm_inside, order](int64_t i, cudaStream_t stream) {
          operands.run(shape, weights[static_cast<size_t>(i)], m, norm_inside,
                       i == 0 ? LaunchOrder::kAfterPrevious : order, stream);
        };
      };
      const std::string text = text_of(shape, m);
      if (m <= kMaxNarrowStreamRows && shape.kind != Kind::kResidual) {
        bench.row("stream_linear of a norm", text, cost_of(shape, m), sets,
                  call(true, LaunchOrder::kAfterPrevious));
        bench.row("stream_linear of a norm, ov.", text, cost_of(shape, m), sets,
                  call(true, LaunchOrder::kOverlapPrevious));
      }
      bench.row("stream_linear", text, cost_of(shape, m), sets,
                call(false, LaunchOrder::kAfterPrevious));
      bench.row("stream_linear, overlapped", text, cost_of(shape, m), sets,
                call(false, LaunchOrder::kOverlapPrevious));
      bench.row("cublaslt", text, cost_of(shape, m), sets, [&](int64_t i, cudaStream_t stream) {
        operands.run_cublaslt(gemm, shape, weights[static_cast<size_t>(i)], m, false, stream);
      });
    }
  }
}

// The linear layers of a decode step in their order; attention, embedding and sampling left out.
// As many layers have weights of their own as the pool holds.
TRIPTYCH_BENCH(stream_linear_step) {
  const Operands operands(bench);
  const auto bytes_of = [](const Shape& shape) {
    return shape.n * shape.k * static_cast<int64_t>(sizeof(__half));
  };
  const StreamWeight<__half> head = weight_at(bench.pool(), kShapes[4]);
  int64_t layer_bytes = 0;
  for (int i = 0; i < 4; ++i) layer_bytes += bytes_of(kShapes[i]);
  std::vector<StreamWeight<__half>> weights;  // of layer after layer
  for (int64_t at = bytes_of(kShapes[4]); at + layer_bytes <= bench.pool_bytes();) {
    for (int i = 0; i < 4; ++i) {
      weights.push_back(weight_at(bench.pool() + at, kShapes[i]));
      at += bytes_of(kShapes[i]);
    }
  }
  Gemm gemm;
  for (const int64_t m : {1, 2, 4, 8, 12, 16, 32}) {
    KernelCost cost = cost_of(kShapes[4], m);
    for (int i = 0; i < 4; ++i) {
      for (int64_t layer = 0; layer < kLayers; ++layer) cost += cost_of(kShapes[i], m);
    }
    const auto step = [&](const auto& product, const auto& norm) {
      return [&](int64_t, cudaStream_t stream) {
        for (int64_t i = 0; i < 4 * kLayers; ++i) {
          const Shape& shape = kShapes[i % 4];
          if (shape.kind != Kind::kResidual) norm(i == 0, stream);
          product(shape, weights[static_cast<size_t>(i) % weights.size()], i == 0, stream);
        }
        norm(false, stream);
        product(kShapes[4], head, false, stream);
      };
    };
    const std::string text = "32 layers and lm_head, m " + std::to_string(m);
    for (const LaunchOrder others : {LaunchOrder::kAfterPrevious, LaunchOrder::kOverlapPrevious}) {
      const auto order = [others](bool first) {
        return first ? LaunchOrder::kAfterPrevious : others;
      };
      for (const bool inside : {true, false}) {
        if (inside && m > kMaxNarrowStreamRows) continue;
        const auto product = [&](const Shape& shape, const StreamWeight<__half>& w, bool first,
                                 cudaStream_t stream) {
          operands.run(shape, w, m, inside, order(first && inside), stream);
        };
        const auto norm = [&](bool first, cudaStream_t stream) {
          if (!inside) operands.take_norm(m, order(first), stream);
        };
        const std::string name = inside ? "stream step" : "stream step, norms out";
        bench.row(others == LaunchOrder::kOverlapPrevious ? name + ", ov." : name, text, cost, 1,
                  step(product, norm));
      }
    }
    const auto product = [&](const Shape& shape, const StreamWeight<__half>& w, bool,
                             cudaStream_t stream) {
      operands.run_cublaslt(gemm, shape, w, m, true, stream);
    };
    const auto norm = [&](bool, cudaStream_t stream) {
      operands.take_norm(m, LaunchOrder::kAfterPrevious, stream);
    };
    bench.row("library step", text, cost, 1, step(product, norm));
  }
}

}  // namespace triptych::bench
