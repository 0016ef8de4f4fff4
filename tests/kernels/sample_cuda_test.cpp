// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sample.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

template <class T>
class SampleCuda : public GpuTest {
 protected:
  // The tokens of all rows; also looks at the slots, and that the workspace is left zero.
  std::vector<int32_t> sample(const std::vector<T>& logits, int64_t rows,
                              const SamplingParams& params, LaunchOrder order) {
    const auto vocab = static_cast<int64_t>(logits.size()) / rows;
    std::vector<SampleKey> keys;
    std::vector<int32_t> slots;
    for (int32_t row = 0; row < rows; ++row) {
      keys.push_back({.request = row, .position = 3 * row + 1});
      slots.push_back(row % 3 == 2 ? -1 : static_cast<int32_t>(rows) - 1 - row);
    }
    const auto bytes = static_cast<size_t>(sample_workspace_bytes(rows, vocab));
    const auto device_logits = to_device(logits);
    const auto device_keys = to_device(keys);
    const auto device_slots = to_device(slots);
    const auto last = to_device(std::vector<int32_t>(static_cast<size_t>(rows), -7));
    const auto out = to_device(std::vector<int32_t>(static_cast<size_t>(rows), -7));
    const auto workspace = to_device(std::vector<char>(bytes, 0));
    const Stream stream = make_stream();
    launch_sample<T>({.logits = device_logits.data(),
                      .rows = rows,
                      .vocab_size = vocab,
                      .params = params,
                      .keys = device_keys.data(),
                      .slots = device_slots.data(),
                      .last_tokens = last.data(),
                      .out = out.data(),
                      .workspace = workspace.data(),
                      .order = order},
                     stream.get());
    const auto tokens = to_host(out);
    const auto last_tokens = to_host(last);
    std::vector<int32_t> expected(static_cast<size_t>(rows), -7);
    for (size_t row = 0; row < slots.size(); ++row) {
      if (slots[row] >= 0) expected[static_cast<size_t>(slots[row])] = tokens[row];
    }
    EXPECT_EQ(last_tokens, expected);
    EXPECT_EQ(to_host(workspace), std::vector<char>(bytes, 0));
    return tokens;
  }

  void expect_as_on_host(const std::vector<T>& logits, int64_t rows, const SamplingParams& params) {
    const std::string label = std::string(Rounding<T>::kName) + " " + std::to_string(rows) + " x " +
                              std::to_string(static_cast<int64_t>(logits.size()) / rows) + " " +
                              to_string(params);
    SCOPED_TRACE(label);
    const auto tokens = sample(logits, rows, params, LaunchOrder::kAfterPrevious);
    const size_t vocab = logits.size() / static_cast<size_t>(rows);
    for (size_t row = 0; row < tokens.size(); ++row) {
      std::vector<float> values;
      for (size_t i = 0; i < vocab; ++i) {
        values.push_back(Rounding<T>::to(logits[row * vocab + i]));
      }
      const auto r = static_cast<int32_t>(row);
      ASSERT_EQ(tokens[row], sample_token(values, params, {.request = r, .position = 3 * r + 1}))
          << "row " << row;
    }
  }
};

using Types = testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(SampleCuda, Types);

const std::vector<SamplingParams>& all_params() {
  static const std::vector<SamplingParams> params = {
      {},
      {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1},
      {.temperature = 1.0f, .seed = 2},
      {.temperature = 1.5f, .top_p = 0.9f, .seed = 3},
      {.temperature = 0.01f, .top_p = 0.999f, .seed = 4},
      {.temperature = 100.0f, .top_k = 1000, .seed = 5},
      {.temperature = 1.0f, .top_k = 1, .seed = 6},
      {.temperature = 0.7f, .top_k = 500, .top_p = 1e-6f, .seed = 0xFFFFFFFFFFFFFFFFull},
  };
  return params;
}

// Every number of blocks a row (they depend on the number of rows), rows that are no multiple of
// eight, rows that do not fit a block's memory.
TYPED_TEST(SampleCuda, ChoosesTheTokensOfTheHost) {
  struct Shape {
    int64_t rows, vocab;
  };
  for (const Shape shape : {Shape{1, 1},
                            {2, 7},
                            {3, 97},
                            {140, 256},
                            {20, 1003},
                            {5, 32000},
                            {1, 128256},
                            {40, 20000},
                            {2, 262144}}) {
    const auto logits = random_numbers<TypeParam>(11, shape.rows * shape.vocab, 1.0, 3.0);
    for (const SamplingParams& params : all_params()) {
      this->expect_as_on_host(logits, shape.rows, params);
    }
  }
}

TYPED_TEST(SampleCuda, ReadsAgainWhatDoesNotFit) {
  const auto logits = random_numbers<TypeParam>(12, int64_t{70} * 128256, 0.0, 2.0);
  this->expect_as_on_host(logits, 70, {.temperature = 0.9f, .top_p = 0.98f, .seed = 8});
}

// A few values many times over: the cut falls between equal logits.
TYPED_TEST(SampleCuda, KeepsTheLowestOfEqualLogits) {
  std::vector<TypeParam> logits;
  for (uint64_t i = 0; i < 6 * 5000; ++i) {
    logits.push_back(Rounding<TypeParam>::from(0.5f * static_cast<float>(random_bits(13, i) % 4)));
  }
  for (const SamplingParams& params : all_params()) this->expect_as_on_host(logits, 6, params);
  const std::vector<TypeParam> equal(3 * 4097, Rounding<TypeParam>::from(-2.0f));
  for (const SamplingParams& params : all_params()) this->expect_as_on_host(equal, 3, params);
}

// Rows of one block each, two neighbouring keys more often than 16 bits count, alone and together.
TYPED_TEST(SampleCuda, CountsEqualLogitsBeyond16Bits) {
  using R = Rounding<TypeParam>;
  constexpr int64_t kRows = 67;
  constexpr int64_t kVocab = 150000;
  const auto next = static_cast<float>(1.0 + 2 * R::kUnit);
  std::vector<TypeParam> logits;
  for (uint64_t i = 0; i < kRows * kVocab; ++i) {
    const bool both = i / kVocab % 2 == 0;
    const bool larger = both ? random_bits(15, i) % 2 == 0 : i / kVocab % 4 == 1;
    logits.push_back(R::from(random_bits(16, i) % 50 == 0 ? -1.0f : larger ? next : 1.0f));
  }
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1.0f, .top_k = 70000, .seed = 9},
        {.temperature = 2.0f, .top_p = 0.7f, .seed = 10}}) {
    this->expect_as_on_host(logits, kRows, params);
  }
}

TYPED_TEST(SampleCuda, NanNeverWinsAndInfinitiesHaveAnOrder) {
  using R = Rounding<TypeParam>;
  const float inf = std::numeric_limits<float>::infinity();
  constexpr size_t kVocab = 3000;
  const auto row_of = [&](float common, const std::vector<std::pair<size_t, float>>& others) {
    std::vector<TypeParam> row(kVocab, R::from(common));
    for (const auto& [index, value] : others) row[index] = R::from(value);
    return row;
  };
  std::vector<TypeParam> logits;
  for (const auto& row :
       {row_of(std::nanf(""), {}), row_of(std::nanf(""), {{2999, -inf}}),
        row_of(-inf, {{17, std::nanf("")}}), row_of(-inf, {{5, 1.0f}, {6, std::nanf("")}}),
        row_of(1.0f, {{2000, inf}, {2500, inf}, {0, std::nanf("")}}), row_of(0.0f, {{0, -0.0f}}),
        row_of(-0.0f, {{1, 0.0f}})}) {
    logits.insert(logits.end(), row.begin(), row.end());
  }
  for (const SamplingParams& params : all_params()) this->expect_as_on_host(logits, 7, params);
}

// Memory checkers run these two: every way to choose a token, with each number of blocks a row that
// a device of 132 multiprocessors takes.
const std::vector<SamplingParams>& params_of_every_way() {
  static const std::vector<SamplingParams> params = {
      {},
      {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 1},
      {.temperature = 1.0f, .seed = 2},
      {.temperature = 1.2f, .top_k = 300, .top_p = 0.9f, .seed = 3},
  };
  return params;
}
TYPED_TEST(SampleCuda, SmallCasesOfOneBlockARow) {
  const auto logits = random_numbers<TypeParam>(17, int64_t{67} * 401, 0.0, 2.0);
  for (const SamplingParams& params : params_of_every_way()) {
    this->expect_as_on_host(logits, 67, params);
  }
}
TYPED_TEST(SampleCuda, SmallCasesOfClusters) {
  for (const int64_t rows : {1, 9, 17, 34}) {
    const auto logits = random_numbers<TypeParam>(18, rows * 1201, 0.0, 2.0);
    for (const SamplingParams& params : params_of_every_way()) {
      this->expect_as_on_host(logits, rows, params);
    }
  }
}

TYPED_TEST(SampleCuda, BatchAndLaunchOrderDoNotMatter) {
  constexpr int64_t kVocab = 5000;
  const auto logits = random_numbers<TypeParam>(14, 64 * kVocab, 0.0, 2.0);
  for (const SamplingParams& params : all_params()) {
    const auto together = this->sample(logits, 64, params, LaunchOrder::kOverlapPrevious);
    const std::vector<TypeParam> one(logits.begin(), logits.begin() + kVocab);
    EXPECT_EQ(this->sample(one, 1, params, LaunchOrder::kAfterPrevious)[0], together[0]);
  }
}

}  // namespace
}  // namespace triptych
