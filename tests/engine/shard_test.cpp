// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "kernels/cpu/linear.h"
#include "tests/support/random_model.h"

namespace triptych {
namespace {

using testing::HasSubstr;
using Shards = std::vector<std::shared_ptr<const ModelWeights>>;

ModelConfig heads(int64_t q_heads, int64_t kv_heads, int64_t head_dim = 16) {
  ModelConfig config = tiny_config();
  config.num_q_heads = q_heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.num_layers = 2;
  return config;
}

Shards shards_of(const std::shared_ptr<const ModelWeights>& whole, int tp) {
  Shards shards;
  for (int rank = 0; rank < tp; ++rank) {
    auto shard = shard_weights(whole, rank, tp);
    EXPECT_TRUE(shard) << shard.error().to_string();
    shards.push_back(*shard);
  }
  return shards;
}

std::vector<double> multiply(const WeightView& w, std::span<const double> x) {
  EXPECT_EQ(static_cast<int64_t>(x.size()), w.columns);
  std::vector<double> y(static_cast<size_t>(w.rows));
  std::vector<float> row(static_cast<size_t>(w.columns));
  for (int64_t r = 0; r < w.rows; ++r) {
    cpu::dequantize_row(w, r, row.data());
    for (size_t c = 0; c < x.size(); ++c) y[r] += static_cast<double>(row[c]) * x[c];
  }
  return y;
}

std::vector<double> random_vector(int64_t size, uint64_t seed) {
  std::vector<double> x(static_cast<size_t>(size));
  for (size_t i = 0; i < x.size(); ++i) x[i] = random_normal(seed, i);
  return x;
}

// Row shards one below the other are the whole, number for number. `replicas` neighbouring ranks
// hold the same rows.
void expect_rows(const WeightView& whole, const std::vector<WeightView>& parts, size_t replicas) {
  const std::vector<double> x = random_vector(whole.columns, 1);
  std::vector<double> joined;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::vector<double> y = multiply(parts[rank], x);
    if (rank % replicas == 0) {
      joined.insert(joined.end(), y.begin(), y.end());
    } else {
      EXPECT_EQ(parts[rank].data, parts[rank - 1].data);
    }
    EXPECT_GE(parts[rank].data, whole.data) << "not a view";
    EXPECT_LT(parts[rank].data, whole.data + whole.bytes()) << "not a view";
  }
  EXPECT_EQ(joined, multiply(whole, x));
}

// The products of column shards with their parts of x add up to the whole.
void expect_columns(const WeightView& whole, const std::vector<WeightView>& parts) {
  const std::vector<double> x = random_vector(whole.columns, 2);
  std::vector<double> sum(static_cast<size_t>(whole.rows));
  size_t first = 0;
  for (const WeightView& part : parts) {
    const auto own = std::span(x).subspan(first, static_cast<size_t>(part.columns));
    const std::vector<double> y = multiply(part, own);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
    first += own.size();
  }
  EXPECT_EQ(first, x.size());
  const std::vector<double> expected = multiply(whole, x);
  // The order of a few hundred additions in double is all that differs.
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], expected[i], 1e-12);
}

std::vector<WeightView> parts(const Shards& shards, size_t layer,
                              WeightView LayerWeights::*matrix) {
  std::vector<WeightView> views;
  for (const auto& shard : shards) views.push_back(shard->layers[layer].*matrix);
  return views;
}

struct Case {
  ModelConfig config;
  DType dtype;
  int tp;
};

std::vector<Case> cases() {
  ModelConfig tied = heads(6, 2);
  tied.tie_word_embeddings = true;
  return {{heads(4, 2), DType::kF16, 2},
          {heads(4, 2, 32), DType::kQ4_1, 2},
          {heads(6, 3), DType::kF32, 3},       // vocabulary of 97 and 128 columns of down: uneven
          {heads(6, 3, 32), DType::kQ8_0, 3},  // 4 blocks of down for 3 ranks
          {heads(4, 2), DType::kF16, 4},       // KV heads replicated
          {heads(8, 1, 64), DType::kQ4_1_G64, 2},
          {tied, DType::kF16, 2},
          {tied, DType::kF16, 6}};
}

TEST(Shard, ShardsMultiplyToTheWhole) {
  for (const Case& c : cases()) {
    const auto whole = random_model(c.config, c.dtype, 7);
    const Shards shards = shards_of(whole, c.tp);
    const auto replicas = static_cast<size_t>(std::max<int64_t>(c.tp / c.config.num_kv_heads, 1));
    for (size_t layer = 0; layer < whole->layers.size(); ++layer) {
      SCOPED_TRACE(testing::Message() << "tp " << c.tp << ", layer " << layer);
      const LayerWeights& w = whole->layers[layer];
      expect_rows(w.q, parts(shards, layer, &LayerWeights::q), 1);
      expect_rows(w.k, parts(shards, layer, &LayerWeights::k), replicas);
      expect_rows(w.v, parts(shards, layer, &LayerWeights::v), replicas);
      expect_rows(w.gate, parts(shards, layer, &LayerWeights::gate), 1);
      expect_rows(w.up, parts(shards, layer, &LayerWeights::up), 1);
      expect_columns(w.o, parts(shards, layer, &LayerWeights::o));
      expect_columns(w.down, parts(shards, layer, &LayerWeights::down));
    }
    std::vector<WeightView> heads_of_vocabulary;
    for (const auto& shard : shards) heads_of_vocabulary.push_back(shard->lm_head);
    expect_rows(whole->lm_head, heads_of_vocabulary, 1);
  }
}

// Each query head finds the KV head that it has in the whole model at the place where attention
// looks for it.
TEST(Shard, EveryRankHasTheKvHeadsOfItsQueryHeads) {
  for (const Case& c : cases()) {
    const auto whole = random_model(c.config, c.dtype, 8);
    const int64_t group = c.config.num_q_heads / c.config.num_kv_heads;
    int64_t head = 0;
    for (const auto& shard : shards_of(whole, c.tp)) {
      const ModelConfig& own = shard->config;
      ASSERT_EQ(own.num_q_heads % own.num_kv_heads, 0);
      EXPECT_EQ(own.head_dim, c.config.head_dim);
      for (int64_t h = 0; h < own.num_q_heads; ++h, ++head) {
        const int64_t local = h / (own.num_q_heads / own.num_kv_heads);
        EXPECT_EQ(shard->layers[0].k.row(local * own.head_dim),
                  whole->layers[0].k.row(head / group * own.head_dim));
        EXPECT_EQ(shard->layers[0].q.row(h * own.head_dim),
                  whole->layers[0].q.row(head * own.head_dim));
      }
    }
    EXPECT_EQ(head, c.config.num_q_heads);
  }
}

TEST(Shard, BytesAddUpToTheWholeAndWhatIsReplicated) {
  for (const Case& c : cases()) {
    const auto whole = random_model(c.config, c.dtype, 9);
    int64_t bytes = 0;
    int64_t read = 0;
    for (const auto& shard : shards_of(whole, c.tp)) {
      bytes += shard->bytes();
      read += shard->bytes_per_decode_step();
    }
    const int64_t copies = std::max<int64_t>(c.tp / c.config.num_kv_heads, 1) - 1;
    const int64_t norms =
        static_cast<int64_t>(sizeof(float)) * c.config.hidden_size * (2 * c.config.num_layers + 1);
    int64_t replicated = (c.tp - 1) * norms;
    for (const LayerWeights& w : whole->layers) {
      replicated += copies * (w.k.bytes() + w.v.bytes());
    }
    EXPECT_EQ(read, whole->bytes_per_decode_step() + replicated);
    EXPECT_EQ(bytes, whole->bytes() + replicated + (c.tp - 1) * whole->embed.bytes());
  }
}

TEST(Shard, OutlivesTheWholeAndTheOtherRanks) {
  auto whole = random_model(heads(4, 2), DType::kF16, 10);
  const std::weak_ptr<const ModelWeights> watch = whole;
  auto shard = shard_weights(whole, 1, 2);
  ASSERT_TRUE(shard);
  const std::vector<double> x = random_vector(64, 3);
  const std::vector<double> before = multiply((*shard)->layers[1].q, x);
  whole.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(multiply((*shard)->layers[1].q, x), before);
  shard->reset();
  EXPECT_TRUE(watch.expired());
}

TEST(Shard, OneRankIsTheWhole) {
  const auto whole = random_model(heads(4, 2), DType::kF16, 11);
  EXPECT_EQ(*shard_weights(whole, 0, 1), whole);
}

struct Refused {
  ModelConfig config;
  DType dtype;
  int tp;
  std::vector<const char*> message;
};

TEST(Shard, RefusesWithTheArithmetic) {
  ModelConfig narrow = heads(8, 8, 32);
  narrow.intermediate_size = 96;
  const std::vector<Refused> cases = {
      {heads(4, 2), DType::kF16, 3, {"tp is 3", "4 query heads"}},
      {heads(12, 3), DType::kF16, 2, {"tp is 2", "3 KV heads"}},
      {heads(4, 2), DType::kQ4_1, 4, {"tp is 4", "layers.0.o", "64 columns", "blocks of 32", "16"}},
      {narrow, DType::kQ4_1, 4, {"tp is 4", "layers.0.down", "96 columns", "3 blocks of 32"}}};
  for (const Refused& c : cases) {
    const auto shard = shard_weights(random_model(c.config, c.dtype, 12), 0, c.tp);
    ASSERT_FALSE(shard);
    EXPECT_EQ(shard.error().code, ErrorCode::kUnsupported);
    for (const char* part : c.message) EXPECT_THAT(shard.error().message, HasSubstr(part));
  }
}

TEST(ShardRange, CoversTheCountInWholeUnits) {
  RandomStream random(13);
  for (int i = 0; i < 500; ++i) {
    const auto unit = static_cast<int64_t>(1 + random.below(40));
    const auto units = static_cast<int64_t>(1 + random.below(50));
    const auto parts = static_cast<int>(1 + random.below(9));
    const int64_t count = units * unit;
    int64_t next = 0;
    for (int part = 0; part < parts; ++part) {
      const ShardRange range = shard_range(count, unit, parts, part);
      EXPECT_EQ(range.first, next);
      EXPECT_EQ(range.count % unit, 0);
      EXPECT_LE(std::abs(range.count * parts - count), unit * parts) << "uneven by a unit at most";
      next = range.first + range.count;
    }
    EXPECT_EQ(next, count);
  }
}

}  // namespace
}  // namespace triptych
