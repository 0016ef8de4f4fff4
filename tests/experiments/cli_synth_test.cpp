// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych synth, from the command line to the model that the engine opens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "engine/checkpoint.h"
#include "experiments/cli.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int code = 0;
  std::string out;
  std::string err;
};

Ended synth(std::vector<std::string> args) {
  args.insert(args.begin(), "synth");
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_cli(args, {out, err});
  return {code, out.str(), err.str()};
}

TEST(CliSynth, WritesAModelThatOpens) {
  const TempDir dir;
  const std::string target = (dir / "model").string();
  const Ended ended = synth({"qwen2-tiny", target, "--dtype", "f32"});
  ASSERT_EQ(ended.code, kExitOk) << ended.err;
  EXPECT_EQ(ended.out, target +
                           ": qwen2, 131648 parameters as f32, 514 KiB in 1 file, byte-level "
                           "tokenizer\n");
  const auto opened = open_checkpoint({.path = target});
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ((*opened)->config().architecture, "qwen2");

  const Ended again = synth({"qwen2-tiny", target});
  EXPECT_EQ(again.code, kExitBadInput);
  EXPECT_THAT(again.err, HasSubstr("exists already"));
}

TEST(CliSynth, SetChangesTheConfigAndTheSeedTheWeights) {
  const TempDir dir;
  const std::string target = (dir / "model").string();
  const Ended ended = synth({"mistral-tiny", target, "--seed", "7", "--set", "num_hidden_layers=3",
                             "--set", "sliding_window=null", "--set", "vocab_size=100", "--set",
                             R"(rope_scaling={"rope_type":"linear","factor":2})"});
  ASSERT_EQ(ended.code, kExitOk) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("no tokenizer"));
  const auto opened = open_checkpoint({.path = target}).value();
  EXPECT_EQ(opened->config().num_layers, 3);
  EXPECT_EQ(opened->config().sliding_window, 0);
  EXPECT_EQ(opened->config().rope_scaling.factor, 2.0);
  const auto stored = opened->tensor("layers.1.up").value();
  const auto made = [](uint64_t seed) {
    return open_synthetic({.synthetic = "mistral-tiny", .seed = seed}).value();
  };
  const auto same = made(7);
  const auto other = made(8);
  const auto bytes = static_cast<size_t>(stored.bytes());
  EXPECT_EQ(std::memcmp(same->tensor("layers.1.up")->data, stored.data, bytes), 0);
  EXPECT_NE(std::memcmp(other->tensor("layers.1.up")->data, stored.data, bytes), 0);
}

TEST(CliSynth, SaysWhatIsWrong) {
  const TempDir dir;
  const std::string target = (dir / "model").string();
  const auto expect = [&](const std::vector<std::string>& args, int code, const char* part) {
    const Ended ended = synth(args);
    EXPECT_EQ(ended.code, code) << part;
    EXPECT_THAT(ended.err, HasSubstr(part));
    EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << part;
  };
  expect({"qwen2-tinny", target}, kExitBadInput, "did you mean \"qwen2-tiny\"?");
  expect({"qwen2-tiny"}, kExitBadInput, "expected DIR after 'synth'");
  expect({}, kExitBadInput, "expected ARCH after 'synth'");
  expect({"qwen2-tiny", target, "--dtype", "q4"}, kExitBadInput, "--dtype");
  expect({"qwen2-tiny", target, "--set", "vocab_size"}, kExitBadInput, "expected KEY=VALUE");
  expect({"qwen2-tiny", target, "--set", "vocabsize=3"}, kExitBadInput,
         "no key \"vocabsize\" in the config.json of qwen2, did you mean \"vocab_size\"?");
  expect({"qwen2-tiny", target, "--set", "vocab_size=many"}, kExitBadInput, "vocab_size");
  expect({"qwen2-tiny", target, "--set", "num_attention_heads=3"}, kExitBadInput, "multiple of");
  expect({"llama-tiny", target, "--set", "hidden_act=gelu"}, kExitUnsupported, "\"gelu\"");
  expect({"llama-tiny", target, "--set", R"(rope_scaling={"rope_type":"yarn"})"}, kExitUnsupported,
         "\"rope_type\" is \"yarn\"");
  expect({"qwen3-8b", target, "--set", "num_hidden_layers=100000000"}, kExitIo, "has room for");
}

TEST(CliSynth, HelpNamesEveryArchitecture) {
  for (const std::string& arch : synthetic_architectures()) {
    EXPECT_THAT(help_text("synth"), HasSubstr(arch));
  }
}

}  // namespace
}  // namespace triptych
