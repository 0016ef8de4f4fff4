// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The decoder in double precision and plain loops, after the Hugging Face implementations. It
// shares no code with kernels/ or engine/ beyond the structures that hold a model, and decodes
// stored numbers by itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/weights.h"

namespace triptych::reference {

using Matrix = std::vector<std::vector<double>>;

inline double decode_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The nearest f16 to `value`, ties to even; values of a test stay far from overflow.
inline double round_to_half(double value) {
  if (value == 0) return value;
  const int exponent = std::max(std::ilogb(value), -14);  // below 2^-14 the spacing is 2^-24
  return std::ldexp(std::nearbyint(std::ldexp(value, 10 - exponent)), exponent - 10);
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

inline double element(const WeightView& w, int64_t row, int64_t column) {
  const auto index = row * w.columns + column;
  switch (w.dtype) {
    case DType::kF32:
      return static_cast<double>(load<float>(w.data + 4 * index));
    case DType::kF16:
      return decode_half(load<uint16_t>(w.data + 2 * index));
    case DType::kQ8_0: {
      const std::byte* block = w.data + index / 32 * 34;
      return decode_half(load<uint16_t>(block)) * load<int8_t>(block + 2 + index % 32);
    }
    case DType::kQ4_1:
    case DType::kQ4_1_G64: {
      const int64_t group = w.dtype == DType::kQ4_1 ? 32 : 64;
      const std::byte* block = w.data + index / group * (4 + group / 2);
      const int64_t in_group = index % group;
      const auto codes = load<uint8_t>(block + 4 + in_group / 32 * 16 + in_group % 16);
      const int code = in_group % 32 < 16 ? codes & 15 : codes >> 4;
      return decode_half(load<uint16_t>(block)) * code + decode_half(load<uint16_t>(block + 2));
    }
    default:
      throw std::invalid_argument("the reference does not read this type");
  }
}

inline std::vector<double> multiply(const WeightView& w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  for (int64_t r = 0; r < w.rows; ++r) {
    for (int64_t c = 0; c < w.columns; ++c) y[r] += element(w, r, c) * x[c];
  }
  return y;
}

inline std::vector<double> norm(const std::vector<double>& x, const std::vector<float>& weight,
                                double eps) {
  double sum = 0;
  for (double v : x) sum += v * v;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + eps) *
           static_cast<double>(weight[i]);
  }
  return y;
}

/// Frequency of pair i, scaled as `_compute_llama3_parameters` and `_compute_linear_scaling` do.
inline double frequency(const ModelConfig& c, int64_t i) {
  const double base =
      std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
  const RopeScaling& s = c.rope_scaling;
  if (s.kind == RopeScalingKind::kNone) return base;
  if (s.kind == RopeScalingKind::kLinear) return base / s.factor;
  const double wavelength = 2.0 * std::numbers::pi / base;
  if (wavelength > s.original_max_position / s.low_freq_factor) return base / s.factor;
  if (wavelength < s.original_max_position / s.high_freq_factor) return base;
  const double smooth = (s.original_max_position / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * base / s.factor + smooth * base;
}

inline void rotate(const ModelConfig& c, std::vector<double>& x, int64_t position) {
  const int64_t half = c.head_dim / 2;
  for (size_t head = 0; head < x.size(); head += static_cast<size_t>(c.head_dim)) {
    for (int64_t i = 0; i < half; ++i) {
      const bool split = c.rope_kind == RopeKind::kHalfSplit;
      double& a = x[head + static_cast<size_t>(split ? i : 2 * i)];
      double& b = x[head + static_cast<size_t>(split ? i + half : 2 * i + 1)];
      const double angle = static_cast<double>(position) * frequency(c, i);
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated;
    }
  }
}

/// Bias and norm of each head, where the family has them.
inline void add_extras(std::vector<double>& x, const std::vector<float>& bias,
                       const std::vector<float>& head_norm, double eps) {
  for (size_t i = 0; i < bias.size(); ++i) x[i] += static_cast<double>(bias[i]);
  const size_t dim = head_norm.size();
  for (size_t head = 0; dim > 0 && head < x.size(); head += dim) {
    const auto begin = x.begin() + static_cast<int64_t>(head);
    const std::vector<double> y = norm({begin, begin + static_cast<int64_t>(dim)}, head_norm, eps);
    std::copy(y.begin(), y.end(), begin);
  }
}

/// Attention of the last row of `keys` and `values` for one query row. As the sliding mask of
/// Transformers: key t is visible from position p if p - window < t <= p.
inline std::vector<double> attend(const ModelConfig& c, int64_t window,
                                  const std::vector<double>& q, const Matrix& keys,
                                  const Matrix& values) {
  const auto position = static_cast<int64_t>(keys.size()) - 1;
  const size_t first =
      window > 0 && position >= window ? static_cast<size_t>(position - window + 1) : 0;
  const int64_t group = c.num_q_heads / c.num_kv_heads;
  std::vector<double> out(q.size());
  for (int64_t h = 0; h < c.num_q_heads; ++h) {
    const int64_t kv = h / group * c.head_dim;
    std::vector<double> weights(keys.size());
    double sum = 0;
    for (size_t t = first; t < keys.size(); ++t) {
      double dot = 0;
      for (int64_t d = 0; d < c.head_dim; ++d) dot += q[h * c.head_dim + d] * keys[t][kv + d];
      sum += weights[t] = std::exp(dot / std::sqrt(static_cast<double>(c.head_dim)));
    }
    for (size_t t = first; t < keys.size(); ++t) {
      for (int64_t d = 0; d < c.head_dim; ++d) {
        out[h * c.head_dim + d] += weights[t] / sum * values[t][kv + d];
      }
    }
  }
  return out;
}

/// Logits after every token, [tokens][vocab_size]. Keys and values are rounded to f16 as the cache
/// stores them; everything else is double.
inline Matrix logits(const ModelWeights& m, std::span<const int32_t> tokens) {
  const ModelConfig& c = m.config;
  const auto add = [](std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  };
  std::vector<Matrix> keys(m.layers.size());
  std::vector<Matrix> values(m.layers.size());
  Matrix out;
  for (size_t t = 0; t < tokens.size(); ++t) {
    std::vector<double> x(static_cast<size_t>(c.hidden_size));
    for (int64_t i = 0; i < c.hidden_size; ++i) x[i] = element(m.embed, tokens[t], i);
    for (size_t l = 0; l < m.layers.size(); ++l) {
      const LayerWeights& w = m.layers[l];
      std::vector<double> n = norm(x, w.attn_norm, c.rms_norm_eps);
      std::vector<double> q = multiply(w.q, n);
      std::vector<double> k = multiply(w.k, n);
      std::vector<double> v = multiply(w.v, n);
      add_extras(q, w.q_bias, w.q_norm, c.rms_norm_eps);
      add_extras(k, w.k_bias, w.k_norm, c.rms_norm_eps);
      add_extras(v, w.v_bias, {}, c.rms_norm_eps);
      rotate(c, q, static_cast<int64_t>(t));
      rotate(c, k, static_cast<int64_t>(t));
      for (double& value : k) value = round_to_half(value);
      for (double& value : v) value = round_to_half(value);
      keys[l].push_back(k);
      values[l].push_back(v);
      add(x, multiply(w.o, attend(c, c.window(static_cast<int64_t>(l)), q, keys[l], values[l])));
      n = norm(x, w.ffn_norm, c.rms_norm_eps);
      std::vector<double> gate = multiply(w.gate, n);
      const std::vector<double> up = multiply(w.up, n);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(x, multiply(w.down, gate));
    }
    out.push_back(multiply(m.lm_head, norm(x, m.final_norm, c.rms_norm_eps)));
  }
  return out;
}

}  // namespace triptych::reference
