// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/command_stack.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "engine/weight_shapes.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

std::string hash_of(const CommandSpec& command) {
  const auto hash = command_hash(command);
  TRIPTYCH_CHECK(hash.has_value(), hash.error().to_string());
  return *hash;
}

/// An environment variable for the time of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(CommandStack, TheHashIsThatOfTheFilesThatRun) {
  const TempDir folder;
  CommandSpec command;
  command.folder = folder.path();
  command.argv = {"python3", "mine.py"};
  folder.write("mine.py", "print(1)");
  const std::string first = hash_of(command);
  EXPECT_EQ(hash_of(command), first);
  folder.write("mine.py", "print(2)");
  EXPECT_NE(hash_of(command), first);

  command.adapter = "mine.py";
  command.argv.clear();
  const std::string adapter = hash_of(command);
  folder.write("mine.py", "print(3)");
  EXPECT_NE(hash_of(command), adapter);

  command.adapter = "hf_transformers";
  EXPECT_EQ(hash_of(command).size(), 32U);
  command.adapter = "missing.py";
  EXPECT_EQ(command_hash(command).error().code, ErrorCode::kNotFound);
}

TEST(CommandStack, TheEngineIsStartedAsTheSpecSays) {
  const TempDir folder;
  const auto checkpoint = open_checkpoint({.synthetic = "llama-tiny"}).value();
  const auto shapes = weight_shapes(checkpoint, WeightScheme::kBF16).value();
  StackSpec stack;
  stack.engine = "command";
  stack.weights = WeightScheme::kBF16;
  stack.num_threads = 3;
  stack.command.folder = folder.path();
  stack.command.options = R"({"mode":"eager"})";
  stack.command.timeouts.pass_ns = 77;
  WorkloadSpec workload;
  workload.prompt_tokens = 10;
  workload.output_tokens = 5;
  workload.concurrency = 4;

  const Variable python("TRIPTYCH_PYTHON", "/usr/bin/some-python");
  stack.command.adapter = "hf_transformers";
  auto options = command_engine_options(stack, workload, shapes, "model");
  ASSERT_TRUE(options) << options.error().to_string();
  EXPECT_EQ(options->name, "hf_transformers");
  ASSERT_EQ(options->command.argv.size(), 2U);
  EXPECT_EQ(options->command.argv[0], "/usr/bin/some-python");
  EXPECT_TRUE(std::filesystem::exists(options->command.argv[1]));
  EXPECT_EQ(options->open.weights, "bf16");
  EXPECT_EQ(options->open.options["mode"], "eager");
  EXPECT_TRUE(options->open.model.is_absolute());
  EXPECT_EQ(options->engine.max_batch, 4);
  EXPECT_EQ(options->engine.max_sequence, 15);
  EXPECT_EQ(options->engine.num_threads, 3);
  EXPECT_EQ(options->timeouts.pass_ns, 77);

  stack.command.adapter = "sub/mine.py";
  options = command_engine_options(stack, workload, shapes, "model");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->name, "mine.py");
  EXPECT_EQ(options->command.argv[1], (folder / "sub/mine.py").string());

  stack.command.adapter.clear();
  stack.command.argv = {"./engine", "-x"};
  options = command_engine_options(stack, workload, shapes, "model");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->command.argv, stack.command.argv);
  EXPECT_EQ(options->command.working_directory, folder.path());
}

TEST(CommandStack, TheCacheFolderIsTheFirstThatIsNamed) {
  const Variable own("TRIPTYCH_CACHE", "/own");
  const Variable xdg("XDG_CACHE_HOME", "/xdg");
  const Variable home("HOME", "/user");
  EXPECT_EQ(cache_folder("/chosen").value(), "/chosen");
  EXPECT_EQ(cache_folder("").value(), "/own");
  const Variable no_own("TRIPTYCH_CACHE", nullptr);
  EXPECT_EQ(cache_folder("").value(), "/xdg/triptych");
  const Variable no_xdg("XDG_CACHE_HOME", "");
  EXPECT_EQ(cache_folder("").value(), "/user/.cache/triptych");
  const Variable no_home("HOME", nullptr);
  EXPECT_EQ(cache_folder("").error().code, ErrorCode::kNotFound);
}

TEST(CommandStack, ASyntheticModelIsWrittenOnceWithTheSameNumbers) {
  const TempDir cache;
  const ModelRef model{.synthetic = "qwen2-tiny", .seed = 5, .layers = 1};
  const auto checkpoint = open_checkpoint(model).value();
  const auto path = external_model_path(model, *checkpoint, {.cache = cache.path()});
  ASSERT_TRUE(path) << path.error().to_string();
  const auto written = open_checkpoint({.path = *path});
  ASSERT_TRUE(written) << written.error().to_string();
  for (const char* name : {"embed", "layers.0.q", "layers.0.q_bias", "final_norm"}) {
    const WeightView expected = checkpoint->tensor(name).value();
    const WeightView found = (*written)->tensor(name).value();
    ASSERT_EQ(found.dtype, DType::kF16);
    ASSERT_EQ(found.bytes(), expected.bytes());
    EXPECT_EQ(std::memcmp(found.data, expected.data, static_cast<size_t>(found.bytes())), 0)
        << name;
  }
  const auto time = std::filesystem::last_write_time(*path / "config.json");
  EXPECT_EQ(external_model_path(model, *checkpoint, {.cache = cache.path()}).value(), *path);
  EXPECT_EQ(std::filesystem::last_write_time(*path / "config.json"), time);

  const ModelRef other{.synthetic = "qwen2-tiny", .seed = 6, .layers = 1};
  EXPECT_NE(
      external_model_path(other, *open_checkpoint(other).value(), {.cache = cache.path()}).value(),
      *path);
}

TEST(CommandStack, ADamagedModelInTheCacheIsWrittenAnewAndToldOf) {
  const TempDir cache;
  const ModelRef model{.synthetic = "qwen2-tiny", .seed = 5, .layers = 1};
  const auto checkpoint = open_checkpoint(model).value();
  std::vector<std::string> notes;
  const ExternalModelOptions options{
      .cache = cache.path(), .note = [&](std::string_view text) { notes.emplace_back(text); }};
  const auto path = external_model_path(model, *checkpoint, options);
  ASSERT_TRUE(path) << path.error().to_string();
  EXPECT_TRUE(notes.empty());
  const auto bytes = std::filesystem::file_size(*path / "model.safetensors");

  std::filesystem::resize_file(*path / "model.safetensors", bytes / 2);
  EXPECT_EQ(external_model_path(model, *checkpoint, options).value(), *path);
  EXPECT_EQ(std::filesystem::file_size(*path / "model.safetensors"), bytes);
  std::filesystem::remove(*path / "config.json");
  EXPECT_EQ(external_model_path(model, *checkpoint, options).value(), *path);
  EXPECT_TRUE(std::filesystem::exists(*path / "config.json"));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "a model in the cache is damaged and is written anew: " +
                          (*path / "model.safetensors").string() + ": " +
                          std::to_string(bytes / 2) + " bytes, expected " + std::to_string(bytes));
  EXPECT_NE(notes[1].find("config.json: No such file"), std::string::npos) << notes[1];
  EXPECT_TRUE(open_checkpoint({.path = *path}));
}

TEST(CommandStack, AModelOnDiskIsItself) {
  const auto checkpoint = open_checkpoint({.synthetic = "llama-tiny"}).value();
  EXPECT_EQ(external_model_path({.path = "some/model.gguf"}, *checkpoint, {.cache = ""}).value(),
            "some/model.gguf");
}

}  // namespace
}  // namespace triptych
