// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/forward.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "engine/kv_cache.h"
#include "engine/ops_cpu.h"
#include "kernels/cpu/linear.h"
#include "tests/support/random_model.h"
#include "tests/support/record_sink.h"
#include "tests/support/reference_forward.h"

namespace triptych {
namespace {

struct Variant {
  const char* name;
  ForwardShape shape;
  bool arena;
  int64_t page_size;  // 0: contiguous
  int threads;
};

constexpr Variant kEager{"eager", ForwardShape::kOpByOp, false, 0, 1};
constexpr Variant kFast{"fast", ForwardShape::kFused, true, 16, 1};

constexpr int64_t kMaxSequence = 80;

/// One runtime put together by hand, with three slots.
class Runner {
 public:
  Runner(const ModelWeights& weights, const Variant& variant)
      : weights_(weights), pool_(variant.threads), ops_(make_cpu_ops(weights.config, pool_)) {
    const KvShape shape{.num_layers = weights.config.num_layers,
                        .kv_columns = weights.config.num_kv_heads * weights.config.head_dim,
                        .max_batch = 3,
                        .max_sequence = kMaxSequence};
    if (variant.page_size > 0) {
      cache_ = std::make_unique<PagedKvCache>(*ops_, shape, variant.page_size,
                                              3 * kMaxSequence / variant.page_size + 3);
    } else {
      cache_ = std::make_unique<ContiguousKvCache>(*ops_, shape);
    }
    memory_ = variant.arena
                  ? make_arena_activations(
                        *ops_, Forward::arena_bytes(weights, variant.shape, DeviceKind::kCpu,
                                                    kMaxSequence, kMaxSequence))
                  : make_heap_activations(*ops_);
    forward_ = std::make_unique<Forward>(weights, variant.shape, *ops_, *memory_);
  }

  /// Reads `tokens` into `slot`, behind what it already holds; logits of every one of them.
  std::vector<float> read(int64_t slot, std::span<const int32_t> tokens) {
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(cache_->length(slot)));
    const StepSequence sequence{slot, cache_->length(slot), static_cast<int64_t>(tokens.size())};
    return run({tokens, positions, {&sequence, 1}, {}, cache_.get()});
  }

  /// One decode step of all slots, tokens[slot] each.
  std::vector<float> decode(std::span<const int32_t> tokens) {
    std::vector<int32_t> positions;
    std::vector<StepSequence> sequences;
    for (int64_t slot = 0; slot < static_cast<int64_t>(tokens.size()); ++slot) {
      positions.push_back(static_cast<int32_t>(cache_->length(slot)));
      sequences.push_back({slot, cache_->length(slot), 1});
    }
    return run({tokens, positions, sequences, {}, cache_.get()});
  }

  Ops& ops() { return *ops_; }
  HostKvCache& cache() { return *cache_; }

 private:
  std::vector<float> run(const Step& step) {
    forward_->begin(step);
    const Activation hidden = forward_->hidden(step.rows());
    const Activation logits = forward_->logits(hidden, *memory_);
    std::vector<float> out(static_cast<size_t>(step.rows() * weights_.config.vocab_size));
    ops_->logits_to_host(logits, out);
    return out;
  }

  const ModelWeights& weights_;
  cpu::ThreadPool pool_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<HostKvCache> cache_;
  std::unique_ptr<ActivationMemory> memory_;
  std::unique_ptr<Forward> forward_;
};

/// Largest difference over the largest magnitude.
double relative_error(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return worst / largest;
}

std::vector<float> reference_logits(const ModelWeights& weights, std::span<const int32_t> tokens) {
  std::vector<float> flat;
  for (const std::vector<double>& row : reference::logits(weights, tokens)) {
    for (const double value : row) flat.push_back(static_cast<float>(value));
  }
  return flat;
}

// f32 sums over at most 128 terms differ from double by about 128 * 2^-24 / 2 = 4e-6 of their
// magnitude, through 3 layers; and a key or value that lies within that of the middle between two
// f16 numbers is rounded to the other one, 2^-11 of one of 32 columns. Measured: at most 9e-5.
constexpr double kReferenceTolerance = 3e-4;

std::vector<Variant> variants() {
  std::vector<Variant> all = {kEager, kFast};
  all.push_back({"fused", ForwardShape::kFused, false, 0, 2});
  all.push_back({"arena", ForwardShape::kOpByOp, true, 0, 1});
  for (const int64_t page_size : {1, 3, 16}) {
    all.push_back({"paged", ForwardShape::kOpByOp, false, page_size, 2});
  }
  return all;
}

class ForwardFamilies : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(ForwardFamilies, MatchTheReference) {
  ModelConfig config = tiny_config();
  config.num_q_heads = GetParam().first;
  config.num_kv_heads = GetParam().second;
  uint64_t seed = 1;
  RandomStream random(7);
  for (const RopeKind rope : {RopeKind::kHalfSplit, RopeKind::kInterleaved}) {
    for (const bool tied : {false, true}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_1, DType::kQ4_1_G64}) {
        config.rope_kind = rope;
        config.tie_word_embeddings = tied;
        const auto weights = random_model(config, dtype, seed++);
        const auto tokens = random_tokens(random, 20, config.vocab_size);
        const std::vector<float> expected = reference_logits(*weights, tokens);
        for (const Variant& variant : {kEager, kFast}) {
          Runner runner(*weights, variant);
          EXPECT_LT(relative_error(runner.read(0, tokens), expected), kReferenceTolerance)
              << variant.name << " rope " << static_cast<int>(rope) << " tied " << tied << " "
              << dtype_info(dtype).name;
        }
      }
    }
  }
}

// q heads * 16 must be a multiple of 64, the largest group, for the o projection.
INSTANTIATE_TEST_SUITE_P(Gqa, ForwardFamilies,
                         ::testing::Values(std::pair{4, 4}, std::pair{4, 2}, std::pair{4, 1},
                                           std::pair{12, 4}, std::pair{8, 1}));

TEST(Forward, RopeScalingMatchesTheReference) {
  ModelConfig config = tiny_config();
  config.rope_theta = 500.0;  // wavelengths from 6 to 1400, so that all three bands occur
  const std::vector<RopeScaling> scalings = {{.kind = RopeScalingKind::kLinear, .factor = 4.0},
                                             {.kind = RopeScalingKind::kLlama3,
                                              .factor = 8.0,
                                              .low_freq_factor = 1.0,
                                              .high_freq_factor = 4.0,
                                              .original_max_position = 128.0}};
  RandomStream random(8);
  std::vector<float> previous;
  for (const RopeScaling& scaling : scalings) {
    config.rope_scaling = scaling;
    const auto weights = random_model(config, DType::kF32, 3);
    RandomStream same(9);
    const auto tokens = random_tokens(same, 60, config.vocab_size);
    const std::vector<float> expected = reference_logits(*weights, tokens);
    Runner runner(*weights, kFast);
    EXPECT_LT(relative_error(runner.read(0, tokens), expected), kReferenceTolerance);
    EXPECT_NE(expected, previous) << "the scaling changed nothing";
    previous = expected;
  }
}

/// What families add to Llama, alone and together.
std::vector<std::pair<const char*, ModelConfig>> families() {
  std::vector<std::pair<const char*, ModelConfig>> all(5, {"", tiny_config()});
  all[0].first = "bias";
  all[0].second.qkv_bias = true;
  all[1].first = "qk_norm";
  all[1].second.qk_norm = true;
  all[1].second.head_dim = 32;  // not hidden_size / num_q_heads
  all[2].first = "window";
  all[2].second.sliding_window = 9;
  all[3].first = "window of one token from layer 1 on";
  all[3].second.sliding_window = 1;
  all[3].second.first_window_layer = 1;
  all[4].first = "everything";
  all[4].second.qkv_bias = all[4].second.qk_norm = true;
  all[4].second.sliding_window = 5;
  all[4].second.window_layers = {true, false, true};
  return all;
}

TEST(Forward, WhatFamiliesAddMatchesTheReference) {
  RandomStream random(17);
  for (const auto& [name, config] : families()) {
    const auto weights = random_model(config, DType::kF32, 31);
    const auto tokens = random_tokens(random, 70, config.vocab_size);
    const std::vector<float> expected = reference_logits(*weights, tokens);
    auto plain = std::make_shared<ModelWeights>(*weights);
    plain->config.sliding_window = 0;
    for (LayerWeights& layer : plain->layers) {
      layer.q_bias = layer.k_bias = layer.v_bias = layer.q_norm = layer.k_norm = {};
    }
    // A model that ignores what its family adds is far off, so that the comparison can fail.
    EXPECT_GT(relative_error(reference_logits(*plain, tokens), expected), 100 * kReferenceTolerance)
        << name;
    for (const Variant& variant : variants()) {
      Runner runner(*weights, variant);
      std::vector<float> got = runner.read(0, std::span(tokens).first(40));
      for (size_t i = 40; i < tokens.size(); ++i) {
        const auto logits = runner.read(0, {&tokens[i], 1});
        got.insert(got.end(), logits.begin(), logits.end());
      }
      EXPECT_LT(relative_error(got, expected), kReferenceTolerance) << name << " " << variant.name;
    }
  }
}

TEST(Forward, FamiliesHaveTheSameBitsInEveryVariant) {
  RandomStream random(18);
  for (const auto& [name, config] : families()) {
    const auto weights = random_model(config, DType::kF16, 32);
    const auto prompt = random_tokens(random, 37, config.vocab_size);
    const auto next = random_tokens(random, 5, config.vocab_size);
    std::vector<std::vector<float>> expected;
    for (const Variant& variant : variants()) {
      Runner runner(*weights, variant);
      std::vector<std::vector<float>> got = {runner.read(1, prompt)};
      for (const int32_t token : next) got.push_back(runner.read(1, {&token, 1}));
      if (expected.empty()) expected = got;
      EXPECT_EQ(got, expected) << name << " " << variant.name << " page " << variant.page_size;
    }
  }
}

TEST(Forward, EveryVariantGivesTheSameBits) {
  const ModelConfig config = tiny_config();
  RandomStream random(11);
  for (const DType dtype : {DType::kF16, DType::kQ4_1}) {
    const auto weights = random_model(config, dtype, 21);
    const auto prompt = random_tokens(random, 37, config.vocab_size);
    const auto next = random_tokens(random, 5, config.vocab_size);
    std::vector<std::vector<float>> expected;
    for (const Variant& variant : variants()) {
      Runner runner(*weights, variant);
      std::vector<std::vector<float>> got = {runner.read(1, prompt)};
      for (const int32_t token : next) got.push_back(runner.read(1, {&token, 1}));
      if (expected.empty()) expected = got;
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i], expected[i])
            << variant.name << " page " << variant.page_size << " step " << i;
      }
    }
  }
}

TEST(Forward, PrefillEqualsDecodeSteps) {
  const ModelConfig config = tiny_config();
  RandomStream random(12);
  for (const DType dtype : {DType::kF16, DType::kQ4_1}) {
    const auto weights = random_model(config, dtype, 22);
    const auto tokens = random_tokens(random, 50, config.vocab_size);
    for (const Variant& variant : variants()) {
      Runner whole(*weights, variant);
      Runner parts(*weights, variant);
      const std::vector<float> expected = whole.read(0, tokens);
      std::vector<float> got = parts.read(0, std::span(tokens).first(1));
      for (size_t i = 1; i < tokens.size();) {  // single tokens and a few longer pieces
        const size_t count = i % 10 == 0 ? std::min<size_t>(4, tokens.size() - i) : 1;
        const auto logits = parts.read(0, std::span(tokens).subspan(i, count));
        got.insert(got.end(), logits.begin(), logits.end());
        i += count;
      }
      // The kernels for one row and for many sum in different orders: the same bound as against
      // the reference.
      EXPECT_LT(relative_error(got, expected), kReferenceTolerance) << variant.name;
    }
  }
}

TEST(Forward, ABatchEqualsItsSequencesAlone) {
  const ModelConfig config = tiny_config();
  const auto weights = random_model(config, DType::kQ4_1, 23);
  RandomStream random(13);
  const std::vector<int64_t> lengths = {1, 30, 7};
  for (const Variant& variant : variants()) {
    Runner batch(*weights, variant);
    std::vector<std::unique_ptr<Runner>> alone;
    for (int64_t slot = 0; slot < 3; ++slot) {
      const auto prompt = random_tokens(random, lengths[slot], config.vocab_size);
      alone.push_back(std::make_unique<Runner>(*weights, variant));
      EXPECT_EQ(alone[slot]->read(0, prompt), batch.read(slot, prompt)) << "slots are equal";
    }
    for (int step = 0; step < 20; ++step) {
      const auto tokens = random_tokens(random, 3, config.vocab_size);
      const std::vector<float> together = batch.decode(tokens);
      for (int64_t slot = 0; slot < 3; ++slot) {
        const auto expected = alone[slot]->read(0, {&tokens[slot], 1});
        const auto got = std::span(together).subspan(slot * config.vocab_size, config.vocab_size);
        EXPECT_LT(relative_error(got, expected), kReferenceTolerance) << variant.name;
      }
    }
  }
}

std::vector<std::string> names_of_one_layer(const Variant& variant, int64_t prompt,
                                            ModelConfig config = tiny_config()) {
  config.num_layers = 1;
  const auto weights = random_model(config, DType::kQ4_1, 24);
  Runner runner(*weights, variant);
  RandomStream random(14);
  static_cast<void>(runner.read(0, random_tokens(random, prompt, config.vocab_size)));
  RecordSink sink;
  runner.ops().set_sink(&sink);
  const int32_t token = 5;
  static_cast<void>(runner.read(0, {&token, 1}));
  runner.ops().set_sink(nullptr);
  std::vector<std::string> names;
  for (const RecordSink::Record& record : sink.records()) {
    if (record.kind != ActivityKind::kRuntime && record.kind != ActivityKind::kSync) {
      names.push_back(record.name);
    }
  }
  return names;
}

TEST(Forward, OpByOpIsEveryOperationAlone) {
  const std::string q4(cpu::linear_kernel_name(DType::kQ4_1, 1));
  const std::string f16(cpu::linear_kernel_name(DType::kF16, 1));
  EXPECT_EQ(names_of_one_layer(kEager, 3), (std::vector<std::string>{"embed",
                                                                     "rms_norm",
                                                                     q4,
                                                                     q4,
                                                                     q4,
                                                                     "rope",
                                                                     "rope",
                                                                     "kv_concat",
                                                                     "kv_concat",
                                                                     "kv_append",
                                                                     "attention_decode",
                                                                     q4,
                                                                     "add",
                                                                     "rms_norm",
                                                                     q4,
                                                                     q4,
                                                                     "swiglu",
                                                                     q4,
                                                                     "add",
                                                                     "rms_norm",
                                                                     f16,
                                                                     "logits_to_host"}));
}

TEST(Forward, FusedJoinsNeighbours) {
  const std::string q4(cpu::linear_kernel_name(DType::kQ4_1, 1));
  const std::string f16(cpu::linear_kernel_name(DType::kF16, 1));
  EXPECT_EQ(names_of_one_layer(kFast, 3),
            (std::vector<std::string>{"embed", "rms_norm", q4, "rope_kv_append", "attention_decode",
                                      q4, "rms_norm_residual", "gate_up_swiglu_q4_1", q4,
                                      "rms_norm_residual", f16, "logits_to_host"}));
}

TEST(Forward, WhatFamiliesAddIsNamedInTheTrace) {
  ModelConfig config = tiny_config();
  config.qkv_bias = config.qk_norm = true;
  std::vector<std::string> eager = names_of_one_layer(kEager, 3, config);
  EXPECT_EQ(std::vector<std::string>(eager.begin() + 5, eager.begin() + 12),
            (std::vector<std::string>{"add_bias", "add_bias", "add_bias", "qk_norm", "qk_norm",
                                      "rope", "rope"}));
  EXPECT_EQ(names_of_one_layer(kFast, 3, config)[3], "rope_kv_append_bias_qk_norm");
  config.qk_norm = false;
  EXPECT_EQ(names_of_one_layer(kFast, 3, config)[3], "rope_kv_append_bias");
}

TEST(Forward, AttentionIsChargedForItsWindowOnly) {
  ModelConfig config = tiny_config();
  config.num_layers = 1;
  config.sliding_window = 8;
  const auto weights = random_model(config, DType::kF16, 33);
  RandomStream random(19);
  Runner runner(*weights, kFast);
  RecordSink sink;
  runner.ops().set_sink(&sink);
  static_cast<void>(runner.read(0, random_tokens(random, 20, config.vocab_size)));
  const int32_t token = 5;
  static_cast<void>(runner.read(0, {&token, 1}));
  runner.ops().set_sink(nullptr);
  std::vector<int64_t> bytes;
  for (const RecordSink::Record& record : sink.records()) {
    if (record.name.starts_with("attention_")) bytes.push_back(record.bytes);
  }
  const int64_t key_and_value = 2 * 2 * 16 * 2;  // 2 KV heads of 16, f16
  const int64_t q_and_out = 2 * 4 * 16 * 4;
  EXPECT_EQ(bytes, (std::vector<int64_t>{20 * (key_and_value + q_and_out),
                                         8 * key_and_value + q_and_out}));
}

TEST(ForwardDeathTest, WhatTheFamilyAddsMustBeThere) {
  ModelConfig config = tiny_config();
  config.qkv_bias = true;
  const auto weights = random_model(config, DType::kF16, 34);
  weights->layers[1].k_bias.clear();
  EXPECT_DEATH(Runner(*weights, kFast), "biases as the config says");
}

TEST(Forward, ArenaNeedsNoMoreThanTheResultsOfHalfALayer) {
  const ModelConfig c = tiny_config();
  const auto weights = random_model(c, DType::kF16, 25);
  const int64_t rows = 10;
  // Op by op the most that lives at once is residual, gate, up and their product.
  const int64_t live = rows * (c.hidden_size + 3 * c.intermediate_size) * 4;
  const int64_t planned =
      Forward::arena_bytes(*weights, ForwardShape::kOpByOp, DeviceKind::kCpu, rows, 0);
  EXPECT_GE(planned, live);
  EXPECT_LE(planned, live + 2 * rows * c.hidden_size * 4);  // gaps that first-fit leaves
  EXPECT_LT(Forward::arena_bytes(*weights, ForwardShape::kFused, DeviceKind::kCpu, rows, 0),
            planned);
}

}  // namespace
}  // namespace triptych
