// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: value = f(seed, counter), so any element can be made alone and
// every stack, thread count and device sees the same numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace triptych {

/// SplitMix64 finaliser (Steele, Lea, Flood 2014): a bijection with full avalanche.
[[nodiscard]] constexpr uint64_t mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// The `counter`-th 64 random bits of stream `seed`.
[[nodiscard]] constexpr uint64_t random_bits(uint64_t seed, uint64_t counter) {
  return mix64(mix64(seed) ^ (counter * 0xD1342543DE82EF95ULL + 0x2545F4914F6CDD1DULL));
}

/// Uniform in [0, 1), 53 bits.
[[nodiscard]] constexpr double random_uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(random_bits(seed, counter) >> 11) * 0x1.0p-53;
}

/// Standard normal (Box-Muller on counters 2c and 2c+1).
[[nodiscard]] inline double random_normal(uint64_t seed, uint64_t counter) {
  const double u = 1.0 - random_uniform(seed, 2 * counter);  // (0, 1], so the log is finite
  const double v = random_uniform(seed, 2 * counter + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

/// A sequential view of one stream; satisfies UniformRandomBitGenerator.
class RandomStream {
 public:
  using result_type = uint64_t;
  explicit RandomStream(uint64_t seed) : seed_(seed) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  uint64_t operator()() { return random_bits(seed_, counter_++); }
  /// Uniform integer in [0, n); the bias is below n * 2^-32. Precondition: 0 < n <= 2^32.
  uint64_t below(uint64_t n) { return ((*this)() >> 32) * n >> 32; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

}  // namespace triptych
