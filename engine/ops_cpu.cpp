// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/ops_cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "engine/kv_cache.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/ops.h"
#include "kernels/sampling.h"

namespace triptych {

namespace {

constexpr std::align_val_t kAlignment{64};  // bytes: a cache line, a full SIMD register

// Below this many elements of simple arithmetic (about 5 us) a parallel region costs more than it
// saves.
constexpr int64_t kSerialElements = 16384;
// A sine and a cosine per pair weigh about as much as this many additions per element.
constexpr int64_t kRopeWeight = 4;

float* f32(const Tensor& tensor) { return static_cast<float*>(tensor.data); }
const float* f32(DeviceVector vector) { return static_cast<const float*>(vector); }

class CpuOps final : public Ops {
 public:
  CpuOps(const ModelConfig& config, cpu::ThreadPool& pool)
      : pool_(pool),
        num_q_heads_(config.num_q_heads),
        num_kv_heads_(config.num_kv_heads),
        head_dim_(config.head_dim),
        eps_(static_cast<float>(config.rms_norm_eps)),
        rope_kind_(config.rope_kind),
        inv_freq_(rope_inverse_frequencies(config.rope_theta, head_dim_, config.rope_scaling)) {
    windows_.reserve(static_cast<size_t>(config.num_layers));
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      windows_.push_back(config.window(layer));
    }
  }

  void set_sink(ActivitySink* sink) override {
    sink_ = sink;
    pool_.set_measure_wait(sink != nullptr);
  }
  DeviceKind device() const override { return DeviceKind::kCpu; }

  std::byte* allocate(int64_t bytes) override {
    std::byte* memory = nullptr;
    run(
        [&] {
          memory = static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment));
        },
        [&] {
          return Info{ActivityKind::kRuntime, "alloc", 0};
        });
    return memory;
  }
  void release(std::byte* memory, int64_t) noexcept override {
    run([&] { ::operator delete(memory, kAlignment); },
        [&] {
          return Info{ActivityKind::kRuntime, "free", 0};
        });
  }
  void copy(const std::byte* from, std::byte* to, int64_t bytes, std::string_view name) override {
    run([&] { std::memcpy(to, from, static_cast<size_t>(bytes)); },
        [&] {
          return Info{ActivityKind::kMemcpy, name, 2 * bytes};
        });
  }
  std::unique_ptr<KvCache> make_cache(const KvShape& shape, int64_t page_size,
                                      int64_t num_pages) override {
    if (page_size == 0) return std::make_unique<ContiguousKvCache>(*this, shape);
    return std::make_unique<PagedKvCache>(*this, shape, page_size, num_pages);
  }
  WeightView resident(const WeightView& weights) override { return weights; }
  DeviceVector resident(std::span<const float> weights) override { return weights.data(); }

  void begin_step(const Step& step) override { step_ = step; }

  void embed(const WeightView& table, Tensor out) override {
    run(
        [&] {
          for_rows(out.rows, out.columns, [&](int64_t begin, int64_t count) {
            cpu::embed(table, step_.tokens.subspan(begin, count), f32(out) + begin * out.columns);
          });
        },
        [&] {
          return kernel("embed", out.rows * row_bytes(table.dtype, table.columns) + out.bytes());
        });
  }

  void rms_norm(Tensor x, DeviceVector weight, Tensor y) override {
    norm("rms_norm", {f32(x), nullptr, f32(weight), f32(y), x.rows, x.columns, eps_});
  }

  void linear(Tensor x, const WeightView& w, Tensor y) override {
    const cpu::LinearArgs args = linear_args(x, w, y);
    run([&] { cpu::linear(args, pool_); },
        [&] {
          return kernel(cpu::linear_kernel_name(w.dtype, x.rows), cpu::linear_cost(args).bytes());
        });
  }

  std::string_view linear_name(const WeightView& w, int64_t rows) override {
    return cpu::linear_kernel_name(w.dtype, rows);
  }

  void swiglu(Tensor gate, Tensor up, Tensor y) override {
    run(
        [&] {
          for_rows(y.rows, y.columns, [&](int64_t begin, int64_t count) {
            const int64_t at = begin * y.columns;
            cpu::swiglu(f32(gate) + at, f32(up) + at, f32(y) + at, count * y.columns);
          });
        },
        [&] { return kernel("swiglu", 3 * y.bytes()); });
  }

  void add(Tensor a, Tensor b, Tensor y) override {
    run(
        [&] {
          for_rows(y.rows, y.columns, [&](int64_t begin, int64_t count) {
            const int64_t at = begin * y.columns;
            cpu::add(f32(a) + at, f32(b) + at, f32(y) + at, count * y.columns);
          });
        },
        [&] { return kernel("add", 3 * y.bytes()); });
  }

  void add_bias(Tensor x, DeviceVector bias) override {
    run(
        [&] {
          for_rows(x.rows, x.columns, [&](int64_t begin, int64_t count) {
            bias_rows(x.slice(begin, count), f32(bias));
          });
        },
        [&] { return kernel("add_bias", 2 * x.bytes() + x.row_bytes); });
  }

  void qk_norm(Tensor x, DeviceVector weight) override {
    run(
        [&] {
          for_rows(x.rows, 2 * x.columns, [&](int64_t begin, int64_t count) {
            norm_heads(x.slice(begin, count), f32(weight));
          });
        },
        [&] { return kernel("qk_norm", 2 * x.bytes() + head_bytes()); });
  }

  void rope(Tensor x) override {
    run(
        [&] {
          for_rows(x.rows, x.columns * kRopeWeight,
                   [&](int64_t begin, int64_t count) { rotate(x.slice(begin, count), begin); });
        },
        [&] { return kernel("rope", 2 * x.bytes()); });
  }

  void kv_append(int64_t layer, Tensor k, Tensor v) override {
    prepare(layer);
    run(
        [&] {
          for_rows(k.rows, 2 * k.columns,
                   [&](int64_t begin, int64_t count) { append(layer, k, v, begin, count); });
        },
        [&] { return kernel("kv_append", append_bytes(k)); });
  }

  void attention(int64_t layer, Tensor q, Tensor out) override {
    attention_.clear();
    int64_t row = 0;
    for (const StepSequence& s : step_.sequences) {
      const KvPages pages = cache().pages(s.slot, layer);
      attention_.push_back({f32(q) + row * q.columns,
                            f32(out) + row * out.columns,
                            s.num_tokens,
                            s.first_position,
                            {pages.k, pages.v, pages.page_size}});
      row += s.num_tokens;
    }
    run(
        [&] {
          cpu::attention({attention_, num_q_heads_, num_kv_heads_, head_dim_,
                          1.0f / std::sqrt(static_cast<float>(head_dim_)), windows_[layer]},
                         pool_);
        },
        [&] { return attention_info(q, out, windows_[layer]); });
  }

  void fused_norm(const NormedInput& in) override { rms_norm(in.residual, in.weight, in.normed); }
  void fused_qkv(int64_t layer, const NormedInput& in, const QkvWeights& weights, Tensor scratch,
                 Tensor q) override {
    const Tensor k{scratch.data, q.rows, weights.k.rows, scratch.row_bytes / 2};
    const Tensor v{static_cast<std::byte*>(scratch.data) + k.bytes(), q.rows, weights.v.rows,
                   scratch.row_bytes / 2};
    linear_group(in.normed, std::array{weights.q, weights.k, weights.v}, std::array{q, k, v});
    rope_kv_append(layer, weights.extras, q, k, v);
  }
  void fused_residual(Tensor x, const WeightView& w, const NormedInput& out, NormUse use) override {
    linear(x, w, out.normed);
    fused_residual_sum(out, use);
  }
  void fused_residual_sum(const NormedInput& out, NormUse) override {
    norm("rms_norm_residual", {f32(out.normed), f32(out.residual), f32(out.weight), f32(out.normed),
                               out.normed.rows, out.normed.columns, eps_});
  }
  void fused_gate_up(const NormedInput& in, const WeightView& gate, const WeightView& up, Tensor,
                     Tensor y) override {
    const Tensor x = in.normed;
    run(
        [&] {
          cpu::linear_gate_up_swiglu({f32(x), x.columns, x.rows, gate, up, f32(y), y.columns},
                                     pool_);
        },
        [&] {
          name_ = "gate_up_swiglu_";
          name_ += dtype_info(gate.dtype).name;
          return kernel(name_, gate.bytes() + up.bytes() + x.bytes() + y.bytes());
        });
  }

  void gather_sampled(Tensor x, Tensor y) override {
    run(
        [&] {
          for (size_t i = 0; i < step_.sampled.size(); ++i) {
            std::memcpy(y.slice(static_cast<int64_t>(i), 1).data,
                        x.slice(step_.sampled[i].row, 1).data, static_cast<size_t>(x.row_bytes));
          }
        },
        [&] {
          return Info{ActivityKind::kMemcpy, "gather_rows", 2 * y.bytes()};
        });
  }

  void sample(Tensor logits, const SamplingParams& params) override {
    chosen_.resize(static_cast<size_t>(logits.rows));
    const std::string_view name = params.greedy() ? "argmax" : "sample";
    run(
        [&] {
          for_rows(logits.rows, logits.columns, [&](int64_t begin, int64_t count) {
            for (int64_t row = begin; row < begin + count; ++row) {
              const std::span<const float> values(f32(logits) + row * logits.columns,
                                                  static_cast<size_t>(logits.columns));
              chosen_[row] = sample_token(values, params, step_.sampled[row].key);
            }
          });
        },
        [&] { return kernel(name, logits.bytes()); });
  }
  void fetch_tokens(std::span<int32_t> out) override {
    TRIPTYCH_CHECK(out.size() == chosen_.size(), "one token per row of logits");
    std::copy(chosen_.begin(), chosen_.end(), out.begin());
  }
  void wait() override { chosen_.clear(); }
  void logits_to_host(Tensor logits, std::span<float> out) override {
    run([&] { std::memcpy(out.data(), logits.data, static_cast<size_t>(logits.bytes())); },
        [&] {
          return Info{ActivityKind::kMemcpy, "logits_to_host", 2 * logits.bytes()};
        });
  }

 private:
  struct Info {
    ActivityKind kind;
    std::string_view name;
    int64_t bytes;
  };
  static Info kernel(std::string_view name, int64_t bytes) {
    return {ActivityKind::kKernel, name, bytes};
  }

  // y[i] = x W[i]^T in one call; the numbers are those of linear().
  void linear_group(Tensor x, std::span<const WeightView> w, std::span<const Tensor> y) {
    group_.clear();
    for (size_t i = 0; i < w.size(); ++i) group_.push_back(linear_args(x, w[i], y[i]));
    run([&] { cpu::linear_group(group_, pool_); },
        [&] {
          int64_t bytes = 0;
          for (const cpu::LinearArgs& args : group_) bytes += cpu::linear_cost(args).bytes();
          bytes -= static_cast<int64_t>(group_.size() - 1) * x.bytes();  // x is shared
          return kernel(joined_names(w, x.rows), bytes);
        });
  }

  // add_bias and qk_norm as far as `extras` has them, rope(q), rope(k), kv_append in one call.
  void rope_kv_append(int64_t layer, const QkvExtras& extras, Tensor q, Tensor k, Tensor v) {
    prepare(layer);
    run(
        [&] {
          for_rows(q.rows, (q.columns + k.columns) * kRopeWeight,
                   [&](int64_t begin, int64_t count) {
                     const Tensor q_rows = q.slice(begin, count);
                     const Tensor k_rows = k.slice(begin, count);
                     add_extras(extras, q_rows, k_rows, v.slice(begin, count));
                     rotate(q_rows, begin);
                     rotate(k_rows, begin);
                     append(layer, k, v, begin, count);
                   });
        },
        [&] { return rope_kv_append_info(extras, q, k); });
  }

  // Runs body(); when traced, describe() says what it was. Untraced it costs one branch.
  template <class Body, class Describe>
  void run(Body&& body, Describe&& describe) {
    if (sink_ == nullptr) [[likely]] {
      body();
      return;
    }
    const int64_t start_ns = now_ns();
    body();
    report(start_ns, now_ns(), describe());
  }

  void report(int64_t start_ns, int64_t end_ns, const Info& info) {
    const cpu::ThreadPool::Wait wait = pool_.last_wait();
    const bool waited = wait.end_ns > wait.start_ns && wait.start_ns >= start_ns;
    sink_->record({.kind = info.kind,
                   .name = info.name,
                   .start_ns = start_ns,
                   .end_ns = waited ? wait.start_ns : end_ns,
                   .bytes = info.bytes});
    if (waited) {
      sink_->record({.kind = ActivityKind::kSync,
                     .name = "thread_pool_wait",
                     .start_ns = wait.start_ns,
                     .end_ns = wait.end_ns});
    }
  }

  // body(begin, count) over all rows, split over the threads if there is enough to do. Every row
  // is computed the same way, so the split does not show in the numbers.
  template <class Body>
  void for_rows(int64_t rows, int64_t weight_per_row, Body&& body) {
    if (rows == 1 || rows * weight_per_row < kSerialElements) {
      body(int64_t{0}, rows);
      return;
    }
    auto range = [&](int64_t begin, int64_t end, int) { body(begin, end - begin); };
    pool_.parallel_for(rows, 1, range);
  }

  void norm(std::string_view name, const RmsNormArgs<float>& args) {
    run([&] { cpu::rms_norm(args, pool_); },
        [&] { return kernel(name, rms_norm_cost(args).bytes()); });
  }

  static cpu::LinearArgs linear_args(Tensor x, const WeightView& w, Tensor y) {
    return {f32(x), x.columns, x.rows, w, f32(y), y.columns};
  }

  // One name when all weights use one kernel, else all of them joined by '+'.
  std::string_view joined_names(std::span<const WeightView> weights, int64_t m) {
    name_ = cpu::linear_kernel_name(weights.front().dtype, m);
    for (size_t i = 1; i < weights.size(); ++i) {
      if (weights[i].dtype == weights[i - 1].dtype) continue;
      name_ += '+';
      name_ += cpu::linear_kernel_name(weights[i].dtype, m);
    }
    return name_;
  }

  static void bias_rows(Tensor x, const float* bias) {
    for (int64_t row = 0; row < x.rows; ++row) {
      float* at = f32(x) + row * x.columns;
      cpu::add(at, bias, at, x.columns);
    }
  }

  void norm_heads(Tensor x, const float* weight) const {
    cpu::head_norm(f32(x), weight, x.rows * x.columns / head_dim_, head_dim_, eps_);
  }

  void add_extras(const QkvExtras& extras, Tensor q, Tensor k, Tensor v) const {
    if (extras.q_bias != nullptr) {
      bias_rows(q, f32(extras.q_bias));
      bias_rows(k, f32(extras.k_bias));
      bias_rows(v, f32(extras.v_bias));
    }
    if (extras.q_norm != nullptr) {
      norm_heads(q, f32(extras.q_norm));
      norm_heads(k, f32(extras.k_norm));
    }
  }

  // The rows of q, k and v pass once, whatever is done to them on the way.
  Info rope_kv_append_info(const QkvExtras& extras, Tensor q, Tensor k) {
    name_ = "rope_kv_append";
    int64_t bytes = 2 * q.bytes() + append_bytes(k);
    if (extras.q_bias != nullptr) {
      name_ += "_bias";
      bytes += q.row_bytes + 2 * k.row_bytes;
    }
    if (extras.q_norm != nullptr) {
      name_ += "_qk_norm";
      bytes += 2 * head_bytes();
    }
    return kernel(name_, bytes);
  }

  int64_t head_bytes() const { return head_dim_ * static_cast<int64_t>(sizeof(float)); }

  void rotate(Tensor x, int64_t first_row) {
    cpu::rope({.x = f32(x),
               .x_stride = x.columns,
               .positions = step_.positions.subspan(first_row, x.rows),
               .num_heads = x.columns / head_dim_,
               .head_dim = head_dim_,
               .inv_freq = inv_freq_,
               .kind = rope_kind_});
  }

  HostKvCache& cache() const { return static_cast<HostKvCache&>(*step_.cache); }

  void prepare(int64_t layer) {
    for (const StepSequence& s : step_.sequences) cache().prepare_layer(s.slot, layer);
  }

  // Writes rows [begin, begin + count) of k and v into the cache.
  void append(int64_t layer, Tensor k, Tensor v, int64_t begin, int64_t count) {
    int64_t first_row = 0;
    for (const StepSequence& s : step_.sequences) {
      const KvPages pages = cache().pages(s.slot, layer);
      const int64_t last = std::min(begin + count, first_row + s.num_tokens);
      for (int64_t row = std::max(begin, first_row); row < last;) {
        const int64_t position = s.first_position + row - first_row;
        const int64_t slot = position % pages.page_size;
        const int64_t run_rows = std::min(pages.page_size - slot, last - row);
        const int64_t offset = slot * k.columns;
        cpu::to_half(f32(k) + row * k.columns, pages.k[position / pages.page_size] + offset,
                     run_rows * k.columns);
        cpu::to_half(f32(v) + row * v.columns, pages.v[position / pages.page_size] + offset,
                     run_rows * v.columns);
        row += run_rows;
      }
      first_row += s.num_tokens;
    }
  }

  // Reads k and v in f32, writes them in f16.
  int64_t append_bytes(Tensor k) const {
    return 2 * k.rows * k.columns * static_cast<int64_t>(sizeof(float) + sizeof(Half));
  }

  // Every key and value within the window once (the heads of a group share them), q and out once.
  Info attention_info(Tensor q, Tensor out, int64_t window) const {
    int64_t kv_tokens = 0;
    bool decode = true;
    for (const cpu::AttentionSequence& s : attention_) {
      kv_tokens += cpu::attended_keys(s, window);
      decode = decode && s.num_queries == 1;
    }
    const int64_t kv_bytes =
        2 * kv_tokens * num_kv_heads_ * head_dim_ * static_cast<int64_t>(sizeof(Half));
    return kernel(decode ? "attention_decode" : "attention_prefill",
                  kv_bytes + q.bytes() + out.bytes());
  }

  cpu::ThreadPool& pool_;
  int64_t num_q_heads_;
  int64_t num_kv_heads_;
  int64_t head_dim_;
  float eps_;
  RopeKind rope_kind_;
  std::vector<float> inv_freq_;
  std::vector<int64_t> windows_;  // [num_layers]
  ActivitySink* sink_ = nullptr;
  Step step_;
  std::vector<int32_t> chosen_;
  // Scratch kept between calls, so that a step of the fast runtime allocates nothing.
  std::vector<cpu::LinearArgs> group_;
  std::vector<cpu::AttentionSequence> attention_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, cpu::ThreadPool& pool) {
  return std::make_unique<CpuOps>(config, pool);
}

}  // namespace triptych
