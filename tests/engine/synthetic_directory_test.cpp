// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/synthetic_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "base/mapped_file.h"
#include "engine/checkpoint.h"
#include "engine/json.h"
#include "engine/model_tensors.h"
#include "engine/tokenizer.h"
#include "kernels/cpu/linear.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

/// Names in a folder, so that leftovers show.
size_t entries(const fs::path& path) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path), {}));
}

/// Largest |a - b| / |a| over all tensors; a model with other shapes fails the test.
double largest_difference(const Checkpoint& a, const Checkpoint& b) {
  double worst = 0;
  const Status status = for_each_tensor(a.config(), [&](const TensorSpec& spec) -> Status {
    TRIPTYCH_TRY(const WeightView x, a.tensor(spec.name));
    TRIPTYCH_TRY(const WeightView y, b.tensor(spec.name));
    EXPECT_EQ(x.rows, y.rows) << spec.name;
    std::vector<float> one(static_cast<size_t>(spec.columns));
    std::vector<float> other(one.size());
    for (int64_t row = 0; row < spec.rows; ++row) {
      cpu::dequantize_row(x, row, one.data());
      cpu::dequantize_row(y, row, other.data());
      for (size_t i = 0; i < one.size(); ++i) {
        const double difference = std::abs(static_cast<double>(one[i]) - other[i]);
        if (difference > 0) worst = std::max(worst, difference / std::abs(one[i]));
      }
    }
    return {};
  });
  EXPECT_TRUE(status.has_value());
  return worst;
}

TEST(SyntheticDirectory, ReadsBackAsTheSyntheticModel) {
  for (const char* arch : {"llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"}) {
    const ModelConfig config = *synthetic_config(arch);
    const auto synthetic = *open_synthetic({.synthetic = arch, .seed = 5});
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const TempDir dir;
      const auto written =
          write_synthetic_directory(config, dir / "model", {.seed = 5, .dtype = dtype});
      ASSERT_TRUE(written.has_value()) << written.error().to_string();
      EXPECT_EQ(written->parameters, config.num_parameters());
      EXPECT_EQ(written->bytes, config.num_parameters() * (dtype == DType::kF32 ? 4 : 2));
      EXPECT_EQ(written->num_files, 1);
      EXPECT_EQ(entries(dir.path()), 1u);
      const auto opened = open_hf_directory(dir / "model");
      ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
      EXPECT_EQ((*opened)->origin(), "synthetic:model");
      EXPECT_EQ((*opened)->config().architecture, config.architecture);
      EXPECT_EQ((*opened)->config().sliding_window, config.sliding_window);
      EXPECT_EQ((*opened)->tensor("layers.1.q")->dtype, dtype);
      // bf16 keeps 8 bits of the 11: half a unit of the last of them.
      const double allowed = dtype == DType::kBF16 ? 0x1p-8 : 0.0;
      EXPECT_LE(largest_difference(*synthetic, **opened), allowed) << arch;
    }
  }
}

TEST(SyntheticDirectory, ShardsHoldTheSameModel) {
  const TempDir dir;
  const ModelConfig config = *synthetic_config("qwen3-tiny");
  const auto written =
      write_synthetic_directory(config, dir / "model", {.max_shard_bytes = 100'000});
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
  EXPECT_EQ(written->num_files, 4);
  EXPECT_TRUE(fs::exists(dir / "model/model-00004-of-00004.safetensors"));
  const auto opened = open_hf_directory(dir / "model");
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ(largest_difference(*open_synthetic({.synthetic = "qwen3-tiny"}).value(), **opened), 0);
  const auto index = MappedFile::open(dir / "model/model.safetensors.index.json");
  const Json json = Json::parse(index->text());
  EXPECT_EQ(json["metadata"]["total_size"], written->bytes);
}

TEST(SyntheticDirectory, TheTokenizerNamesBytes) {
  const TempDir dir;
  ModelConfig config = *synthetic_config("llama-tiny");
  ASSERT_TRUE(write_synthetic_directory(config, dir / "model", {}).has_value());
  const auto opened = open_hf_directory(dir / "model").value();
  ASSERT_NE(opened->tokenizer(), nullptr);
  EXPECT_EQ(opened->tokenizer()->vocab_size(), 256);
  std::string all;
  std::vector<int32_t> ids;
  for (int32_t byte = 0; byte < 128; ++byte) {
    all += static_cast<char>(byte);
    ids.push_back(byte);
  }
  EXPECT_EQ(opened->tokenizer()->encode(all + "\xC3\xA9").size(), 130u);
  EXPECT_EQ(opened->tokenizer()->encode(all), ids);

  config.vocab_size = 255;
  EXPECT_FALSE(write_synthetic_directory(config, dir / "small", {})->has_tokenizer);
  EXPECT_EQ(open_hf_directory(dir / "small").value()->tokenizer(), nullptr);
}

TEST(SyntheticDirectory, NeverReplacesAnything) {
  const TempDir dir;
  const ModelConfig config = *synthetic_config("llama-tiny");
  dir.write("file", "kept");
  fs::create_directory(dir / "folder");
  fs::create_symlink("nowhere", dir / "link");
  for (const char* name : {"file", "folder", "link", "folder/"}) {
    const auto written = write_synthetic_directory(config, dir / name, {});
    ASSERT_FALSE(written.has_value()) << name;
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(entries(dir.path()), 3u);
  EXPECT_EQ(MappedFile::open(dir / "file")->text(), "kept");
}

TEST(SyntheticDirectory, AnEmptyNameIsRefused) {
  const auto written = write_synthetic_directory(synthetic_config("llama-tiny").value(), "", {});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
}

TEST(SyntheticDirectory, LeavesNothingBehindWhenTheDiskIsFull) {
  const TempDir dir;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 100'000;  // as a disk that fills up in the middle of the weights
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written =
      write_synthetic_directory(*synthetic_config("llama-tiny"), dir / "model", {});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_EQ(entries(dir.path()), 0u);
}

TEST(SyntheticDirectory, RefusesWhatCannotFitBeforeItStarts) {
  const TempDir dir;
  ModelConfig config = *synthetic_config("llama-tiny");
  config.num_layers = 2'000'000'000;
  config.intermediate_size = 2'000'000'000;
  const auto written = write_synthetic_directory(config, dir / "model", {});
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_NE(written.error().message.find("the disk has room for"), std::string::npos);
  const auto nowhere =
      write_synthetic_directory(*synthetic_config("llama-tiny"), dir / "no" / "model", {});
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  EXPECT_EQ(entries(dir.path()), 0u);
}

}  // namespace
}  // namespace triptych
