// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Each operation of the CUDA table against the CPU's on the same f16 numbers. Whole models, the
// fused operations and bf16: engine_cuda_test.
#include "engine/cuda/ops_cuda.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops_cpu.h"
#include "tests/support/cuda_ops.h"
#include "tests/support/device_numbers.h"

namespace triptych {
namespace {

// A result is rounded once, a weight vector once before (the CPU has it as f32), and the f32
// arithmetic between them is off by far less than another rounding.
constexpr double kRoundings = 3 * Rounding<__half>::kUnit;

class OpsCuda : public CudaOpsTest {
 protected:
  /// The same f16 numbers on both devices.
  struct Pair {
    std::vector<float> host;
    DeviceBuffer<__half> device;
    int64_t columns;
    Tensor cpu() { return {host.data(), rows(), columns, 4 * columns}; }
    Tensor cuda() const { return {device.data(), rows(), columns, 2 * columns}; }
    int64_t rows() const { return static_cast<int64_t>(host.size()) / columns; }
  };
  static Pair pair_of(uint64_t seed, int64_t rows, int64_t columns) {
    const auto values = random_numbers<__half>(seed, rows * columns, 0, 1);
    std::vector<float> host;
    for (const __half value : values) host.push_back(__half2float(value));
    return {std::move(host), to_device(values), columns};
  }
  void expect_near(const Pair& pair, const char* what) const {
    ops_->wait();
    const std::vector<__half> found = to_host(pair.device);
    for (size_t i = 0; i < found.size(); ++i) {
      const double expected = static_cast<double>(pair.host[i]);
      ASSERT_NEAR(__half2float(found[i]), expected, kRoundings * std::max(1.0, std::abs(expected)))
          << what << " element " << i << " of " << pair.rows() << " rows";
    }
  }

  void SetUp() override {
    CudaOpsTest::SetUp();
    if (ops_ == nullptr) return;
    cpu_ = make_cpu_ops(weights_->config, *pool_);
    cache_ = ops_->make_cache(kShape, 16, 40);
    cpu_cache_ = cpu_->make_cache(kShape, 16, 40);
  }
  /// One prompt of so many rows; its first and last rows are sampled.
  void begin(int64_t rows) {
    tokens_.resize(static_cast<size_t>(rows));
    positions_.resize(tokens_.size());
    for (int64_t i = 0; i < rows; ++i) {
      tokens_[static_cast<size_t>(i)] = static_cast<int32_t>(7 * i % 104);
    }
    std::iota(positions_.begin(), positions_.end(), 0);
    sequence_ = {1, 0, rows};
    sampled_ = {{0, 1, {}}, {rows - 1, 1, {}}};
    Step step{.tokens = tokens_,
              .positions = positions_,
              .sequences = {&sequence_, 1},
              .sampled = sampled_,
              .cache = cpu_cache_.get()};
    for (KvCache* cache : {cpu_cache_.get(), cache_.get()}) {
      cache->clear(1);
      cache->extend(1, rows);
    }
    cpu_->begin_step(step);
    step.cache = cache_.get();
    ops_->begin_step(step);
  }

  const LayerWeights& layer() const { return weights_->layers[0]; }

  std::unique_ptr<Ops> cpu_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<KvCache> cpu_cache_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  StepSequence sequence_;
  std::vector<SampledRow> sampled_;
};

// Rows on both sides of where kernels change: 8 and 16 rows.
const std::vector<int64_t> kRows = {2, 8, 9, 16, 17, 70};

TEST_F(OpsCuda, IsTheOneThatTheDeviceIsAskedFor) { EXPECT_EQ(ops_->device(), DeviceKind::kCuda); }

TEST_F(OpsCuda, RowsMatchTheCpu) {
  for (const int64_t rows : kRows) {
    begin(rows);
    Pair x = pair_of(1, rows, 128);
    Pair y = pair_of(2, rows, 128);
    Pair z = pair_of(3, rows, 128);
    cpu_->embed(weights_->embed, z.cpu());
    ops_->embed(ops_->resident(weights_->embed), z.cuda());
    expect_near(z, "embed");
    cpu_->rms_norm(x.cpu(), cpu_->resident(layer().attn_norm), z.cpu());
    ops_->rms_norm(x.cuda(), ops_->resident(layer().attn_norm), z.cuda());
    expect_near(z, "rms_norm");
    cpu_->add(x.cpu(), y.cpu(), z.cpu());
    ops_->add(x.cuda(), y.cuda(), z.cuda());
    expect_near(z, "add");
    cpu_->swiglu(x.cpu(), y.cpu(), z.cpu());
    ops_->swiglu(x.cuda(), y.cuda(), z.cuda());
    expect_near(z, "swiglu");
    cpu_->add_bias(x.cpu(), cpu_->resident(layer().ffn_norm));
    ops_->add_bias(x.cuda(), ops_->resident(layer().ffn_norm));
    expect_near(x, "add_bias");
    Pair sampled = pair_of(4, 2, 128);
    cpu_->gather_sampled(y.cpu(), sampled.cpu());
    ops_->gather_sampled(y.cuda(), sampled.cuda());
    expect_near(sampled, "gather_sampled");
  }
}

TEST_F(OpsCuda, ProductsMatchTheCpu) {
  for (const int64_t rows : kRows) {
    begin(rows);
    for (const WeightView& w : {layer().gate, layer().o, weights_->lm_head}) {
      Pair x = pair_of(5, rows, w.columns);
      Pair y = pair_of(6, rows, w.rows);
      cpu_->linear(x.cpu(), w, y.cpu());
      ops_->linear(x.cuda(), ops_->resident(w), y.cuda());
      expect_near(y, "linear");
    }
  }
}

TEST_F(OpsCuda, HeadsAndAttentionMatchTheCpu) {
  for (const int64_t rows : kRows) {
    begin(rows);
    Pair q = pair_of(7, rows, layer().q.rows);
    Pair k = pair_of(8, rows, layer().k.rows);
    Pair v = pair_of(9, rows, layer().v.rows);
    Pair out = pair_of(10, rows, layer().q.rows);
    for (Pair* heads : {&q, &k}) {
      cpu_->rope(heads->cpu());
      ops_->rope(heads->cuda());
      expect_near(*heads, "rope");
    }
    cpu_->kv_append(2, k.cpu(), v.cpu());
    ops_->kv_append(2, k.cuda(), v.cuda());
    cpu_->attention(2, q.cpu(), out.cpu());
    ops_->attention(2, q.cuda(), out.cuda());
    expect_near(out, "attention");
  }
}

TEST_F(OpsCuda, LogitsArriveOnTheHostAsTheyAre) {
  begin(2);
  const Pair logits = pair_of(11, 2, 104);
  std::vector<float> host(logits.host.size());
  ops_->logits_to_host(logits.cuda(), host);
  EXPECT_EQ(host, logits.host);
}

}  // namespace
}  // namespace triptych
