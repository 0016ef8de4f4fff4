// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/synthetic_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>

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

TEST(SyntheticDirectory, AnInterruptLeavesNothing) {
  const TempDir dir;
  const std::atomic<bool> interrupted = true;
  const auto written = write_synthetic_directory(*synthetic_config("llama-tiny"), dir / "model",
                                                 {.interrupted = &interrupted});
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_EQ(written.error().message, "interrupted");
  EXPECT_EQ(entries(dir.path()), 0u);
}

TEST(SyntheticDirectory, WhatAKilledWriterLeftIsRemoved) {
  const TempDir dir;
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  ASSERT_EQ(waitpid(dead, nullptr, 0), dead);
  const std::string number = std::to_string(dead);
  const std::string alive = std::to_string(getppid());
  for (const std::string& name : {".model.partial-" + number, ".other.partial-" + number,
                                  ".model.partial-" + alive, ".model.partial-" + number + "x"}) {
    fs::create_directory(dir / name);
    dir.write(name + "/model.safetensors", "half");
  }
  ASSERT_TRUE(write_synthetic_directory(*synthetic_config("llama-tiny"), dir / "model", {}));
  EXPECT_FALSE(fs::exists(dir / (".model.partial-" + number)));
  EXPECT_TRUE(fs::exists(dir / (".other.partial-" + number))) << "another model's";
  EXPECT_TRUE(fs::exists(dir / (".model.partial-" + alive))) << "its writer lives";
  EXPECT_TRUE(fs::exists(dir / (".model.partial-" + number + "x"))) << "no name of ours";

  // A lock says that it is being written, although no process here has the number.
  const fs::path locked = dir / (".third.partial-" + number);
  fs::create_directory(locked);
  const int fd = open(locked.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  ASSERT_TRUE(write_synthetic_directory(*synthetic_config("llama-tiny"), dir / "third", {}));
  EXPECT_TRUE(fs::exists(locked));
  close(fd);
}

/// Every way in which a file of the directory can be damaged without the weights' own numbers.
TEST(SyntheticDirectory, ADamagedOneIsFound) {
  const ModelConfig config = *synthetic_config("qwen3-tiny");
  const SyntheticDirectoryOptions options{.max_shard_bytes = 100'000};
  const TempDir dir;
  const auto make = [&](const std::string& name) {
    const fs::path path = dir / name;
    EXPECT_TRUE(write_synthetic_directory(config, path, options));
    EXPECT_TRUE(check_synthetic_directory(config, path, options));
    return path;
  };
  const fs::path whole = make("whole");
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(whole)) {
    const std::string file = entry.path().filename().string();
    SCOPED_TRACE(file);
    const fs::path model = make("model" + std::to_string(files++));
    const auto size = fs::file_size(model / file);
    fs::resize_file(model / file, size - 1);
    const Status shorter = check_synthetic_directory(config, model, options);
    ASSERT_FALSE(shorter);
    EXPECT_EQ(shorter.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(shorter.error().where, (model / file).string());
    fs::resize_file(model / file, size);  // the last byte is now 0: of JSON, not of weights
    EXPECT_EQ(check_synthetic_directory(config, model, options).has_value(),
              file.ends_with(".safetensors"));
    std::fstream(model / file, std::ios::in | std::ios::out | std::ios::binary) << "xxxx";
    EXPECT_FALSE(check_synthetic_directory(config, model, options));
    fs::remove(model / file);
    EXPECT_FALSE(check_synthetic_directory(config, model, options));
  }
  EXPECT_EQ(files, 8u);  // four shards, their index, the config and two of the tokenizer
  EXPECT_FALSE(check_synthetic_directory(config, dir / "none", options));
  EXPECT_FALSE(check_synthetic_directory(*synthetic_config("llama-tiny"), whole, options));
}

}  // namespace
}  // namespace triptych
