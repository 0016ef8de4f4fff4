// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Every block type against the gguf package, bit by bit
// (tests/reference/make_dequantize_golden.py).
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/ops.h"
#include "tests/support/golden.h"
#include "tests/support/simd_targets.h"

namespace triptych::cpu {
namespace {

struct GoldenBlock {
  std::string type;
  std::string origin;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<GoldenBlock> golden_blocks() {
  std::ifstream file(golden_dir() / "dequantize" / "blocks.txt");
  std::vector<GoldenBlock> blocks;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    GoldenBlock block;
    std::string bytes, values;
    fields >> block.type >> block.origin >> bytes >> values;
    block.bytes = from_hex(bytes);
    const std::vector<std::byte> raw = from_hex(values);
    block.values.resize(raw.size() / sizeof(float));
    std::memcpy(block.values.data(), raw.data(), raw.size());
    blocks.push_back(std::move(block));
  }
  return blocks;
}

DType dtype_named(const std::string& name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  ADD_FAILURE() << "no type " << name;
  return DType::kF32;
}

// A block whose bytes begin at an odd address, as in a file.
struct Placed {
  explicit Placed(const GoldenBlock& block)
      : storage(block.bytes.size() + 2), data(storage.data() + 1) {
    if (reinterpret_cast<uintptr_t>(data) % 2 == 0) ++data;
    std::memcpy(data, block.bytes.data(), block.bytes.size());
  }
  std::vector<std::byte> storage;
  std::byte* data;
};

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "element " << i << ": " << got[i] << ", expected " << want[i];
  }
}

TEST(Dequantize, HasTheBitsOfTheGgufPackage) {
  const std::vector<GoldenBlock> blocks = golden_blocks();
  std::map<std::string, int> seen;
  for (const GoldenBlock& block : blocks) {
    SCOPED_TRACE(block.type + " " + block.origin);
    ++seen[block.type];
    const auto columns = static_cast<int64_t>(block.values.size());
    const Placed placed(block);
    const WeightView view{placed.data, dtype_named(block.type), 1, columns};
    ASSERT_EQ(view.bytes(), static_cast<int64_t>(block.bytes.size()));
    for_each_simd_target([&] {
      std::vector<float> got(block.values.size());
      dequantize_row(view, 0, got.data());
      expect_same_bits(got, block.values);
      const int32_t token = 0;
      embed(view, {&token, 1}, got.data());
      expect_same_bits(got, block.values);
    });
  }
  // Every block type of GGUF that is read, and bf16; q4_1_g64 is ours.
  EXPECT_EQ(seen.size(), 9U);
  for (const auto& [type, count] : seen) EXPECT_GE(count, 7) << type;
}

// The reference decodes by itself: its product with one unit vector is one element.
TEST(Dequantize, ReferenceHasTheValuesOfTheGgufPackage) {
  for (const GoldenBlock& block : golden_blocks()) {
    SCOPED_TRACE(block.type + " " + block.origin);
    const auto columns = static_cast<int64_t>(block.values.size());
    const Placed placed(block);
    const WeightView view{placed.data, dtype_named(block.type), 1, columns};
    for (int64_t k = 0; k < columns; ++k) {
      std::vector<float> unit(block.values.size());
      unit[static_cast<size_t>(k)] = 1.0f;
      float got = 0.0f;
      linear_ref({unit.data(), columns, 1, view, &got, 1});
      ASSERT_EQ(got, block.values[static_cast<size_t>(k)]) << "element " << k;
    }
  }
}

}  // namespace
}  // namespace triptych::cpu
