// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/shard.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/strings.h"

namespace triptych {
namespace {

/// A shard and what its views point into.
struct Holder {
  ModelWeights weights;
  std::shared_ptr<const ModelWeights> whole;
};

/// Columns of `down`, and so rows of gate and up, are cut between the blocks of every layer.
int64_t down_unit(const ModelWeights& whole) {
  int64_t unit = 1;
  for (const LayerWeights& layer : whole.layers) {
    unit = std::lcm(unit, int64_t{dtype_info(layer.down.dtype).block_elements});
  }
  return unit;
}

class Sharder {
 public:
  Sharder(std::shared_ptr<const ModelWeights> whole, int rank, int tp)
      : tp_(tp), holder_(std::make_shared<Holder>()) {
    const ModelConfig& c = whole->config;
    const int64_t q_heads = c.num_q_heads / tp;
    const int64_t group = c.num_q_heads / c.num_kv_heads;
    const int64_t first_kv = rank * q_heads / group;
    const int64_t kv_heads = std::max<int64_t>(c.num_kv_heads / tp, 1);
    q_ = {rank * q_heads * c.head_dim, q_heads * c.head_dim};
    kv_ = {first_kv * c.head_dim, kv_heads * c.head_dim};
    inner_ = shard_range(c.intermediate_size, down_unit(*whole), tp, rank);
    vocabulary_ = shard_range(c.vocab_size, 1, tp, rank);
    holder_->whole = std::move(whole);
  }

  Result<std::shared_ptr<const ModelWeights>> run() {
    const ModelWeights& whole = *holder_->whole;
    TRIPTYCH_RETURN_IF_ERROR(check_parts());
    ModelWeights& weights = holder_->weights;
    weights.config = whole.config;
    weights.config.num_q_heads = q_.count / whole.config.head_dim;
    weights.config.num_kv_heads = kv_.count / whole.config.head_dim;
    weights.config.intermediate_size = inner_.count;
    weights.scheme = whole.scheme;
    weights.kept = whole.kept;
    weights.converted = whole.converted;
    weights.checkpoint = whole.checkpoint;
    weights.embed = whole.embed;
    weights.lm_head = rows(whole.lm_head, vocabulary_);
    weights.final_norm = whole.final_norm;
    for (size_t i = 0; i < whole.layers.size(); ++i) {
      TRIPTYCH_RETURN_IF_ERROR(add_layer(whole.layers[i], "layers." + std::to_string(i) + "."));
    }
    return std::shared_ptr<const ModelWeights>(holder_, &holder_->weights);
  }

 private:
  [[nodiscard]] Status check_parts() const {
    const ModelConfig& c = holder_->whole->config;
    const int64_t unit = down_unit(*holder_->whole);
    if (c.intermediate_size < unit * tp_) {
      return fail(ErrorCode::kUnsupported,
                  str_format("tp is %d, but layers.0.down has %lld columns, which are %lld blocks "
                             "of %lld: not one for every rank",
                             tp_, static_cast<long long>(c.intermediate_size),
                             static_cast<long long>(c.intermediate_size / unit),
                             static_cast<long long>(unit)));
    }
    if (c.vocab_size >= tp_) return {};
    return fail(ErrorCode::kUnsupported,
                str_format("tp is %d, but lm_head has %lld rows: not one for every rank", tp_,
                           static_cast<long long>(c.vocab_size)));
  }

  Status add_layer(const LayerWeights& whole, const std::string& prefix) {
    LayerWeights layer;
    layer.attn_norm = whole.attn_norm;
    layer.q = rows(whole.q, q_);
    layer.k = rows(whole.k, kv_);
    layer.v = rows(whole.v, kv_);
    layer.q_bias = part(whole.q_bias, q_);
    layer.k_bias = part(whole.k_bias, kv_);
    layer.v_bias = part(whole.v_bias, kv_);
    layer.q_norm = whole.q_norm;
    layer.k_norm = whole.k_norm;
    TRIPTYCH_TRY(layer.o, columns(whole.o, q_, prefix + "o"));
    layer.ffn_norm = whole.ffn_norm;
    layer.gate = rows(whole.gate, inner_);
    layer.up = rows(whole.up, inner_);
    TRIPTYCH_TRY(layer.down, columns(whole.down, inner_, prefix + "down"));
    holder_->weights.layers.push_back(std::move(layer));
    return {};
  }

  /// Empty stays empty: a family without biases.
  static std::vector<float> part(const std::vector<float>& values, ShardRange range) {
    if (values.empty()) return {};
    return {values.begin() + range.first, values.begin() + range.first + range.count};
  }

  static WeightView rows(const WeightView& w, ShardRange range) {
    const bool numbers = w.data != nullptr;
    return {numbers ? w.row(range.first) : nullptr, w.dtype, range.count, w.columns};
  }

  Result<WeightView> columns(const WeightView& w, ShardRange range, const std::string& name) {
    const int64_t block = dtype_info(w.dtype).block_elements;
    if (range.first % block != 0 || range.count % block != 0) {
      return fail(
          ErrorCode::kUnsupported,
          str_format("tp is %d, but %s has %lld columns in blocks of %lld (%s), and a rank's "
                     "%lld are no whole number of them",
                     tp_, name.c_str(), static_cast<long long>(w.columns),
                     static_cast<long long>(block), std::string(dtype_info(w.dtype).name).c_str(),
                     static_cast<long long>(range.count)));
    }
    WeightView view{nullptr, w.dtype, w.rows, range.count};
    if (w.data == nullptr) return view;
    std::vector<std::byte> bytes(static_cast<size_t>(view.bytes()));
    const int64_t width = row_bytes(w.dtype, range.count);
    const int64_t offset = row_bytes(w.dtype, range.first);
    for (int64_t r = 0; r < w.rows; ++r) {
      std::memcpy(bytes.data() + r * width, w.row(r) + offset, static_cast<size_t>(width));
    }
    view.data = bytes.data();  // the heap block does not move with the vector
    holder_->weights.storage.push_back(std::move(bytes));
    return view;
  }

  int tp_;
  std::shared_ptr<Holder> holder_;
  ShardRange q_, kv_, inner_, vocabulary_;  // rows of q, of k and v, of gate and up, of lm_head
};

}  // namespace

ShardRange shard_range(int64_t count, int64_t unit, int parts, int part) {
  const int64_t units = (count + unit - 1) / unit;
  const int64_t first = std::min(units * part / parts * unit, count);
  return {first, std::min(units * (part + 1) / parts * unit, count) - first};
}

Status check_tensor_parallel(const ModelConfig& config, int tp) {
  if (config.num_q_heads % tp != 0) {
    return fail(ErrorCode::kUnsupported,
                str_format("tp is %d, which does not divide the %lld query heads of %s", tp,
                           static_cast<long long>(config.num_q_heads), config.name.c_str()));
  }
  if (config.num_kv_heads % tp != 0 && tp % config.num_kv_heads != 0) {
    return fail(ErrorCode::kUnsupported,
                str_format("tp is %d and %s has %lld KV heads: neither divides the other", tp,
                           config.name.c_str(), static_cast<long long>(config.num_kv_heads)));
  }
  return {};
}

Result<std::shared_ptr<const ModelWeights>> shard_weights(std::shared_ptr<const ModelWeights> whole,
                                                          int rank, int tp) {
  TRIPTYCH_CHECK(whole != nullptr && tp >= 1 && rank >= 0 && rank < tp, "no such rank");
  if (tp == 1) return whole;
  TRIPTYCH_RETURN_IF_ERROR(check_tensor_parallel(whole->config, tp));
  return Sharder(std::move(whole), rank, tp).run();
}

Result<std::vector<std::shared_ptr<const ModelWeights>>> make_shards(
    const std::shared_ptr<const ModelWeights>& whole, int tp) {
  std::vector<std::shared_ptr<const ModelWeights>> shards;
  for (int rank = 0; rank < tp; ++rank) {
    TRIPTYCH_TRY(shards.emplace_back(), shard_weights(whole, rank, tp));
  }
  return shards;
}

}  // namespace triptych
