// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The adapter hf_transformers against the built-in engine, on the same random numbers. Skipped
// where the interpreter of adapters has no Transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "base/units.h"
#include "engine/adapter_file.h"
#include "engine/command_engine.h"
#include "engine/synthetic_directory.h"
#include "engine/weight_shapes.h"
#include "profiler/trace_json.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;

bool has_transformers() {
  static const bool found = [] {
    auto child = ChildProcess::start(
        {.argv = {adapter_python(), "-c", "import torch, transformers"}, .working_directory = ""});
    return child && child->end_text(5 * kMinuteNs) == "exit code 0";
  }();
  return found;
}

struct Case {
  const char* arch;
  WeightScheme weights;
  const char* mode;
  /// Largest |logit difference|; logits reach about 4. In f32 what differs is the built-in engine's
  /// KV cache, which is f16 (2^-11 relative, see family_logits_test.cpp). In f16 and bf16
  /// Transformers also rounds every activation to 11 or 8 bits, some ten times a layer.
  double tolerance;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.arch << " " << weight_scheme_name(c.weights) << " " << c.mode;
}

/// Prompts of unequal lengths, so that Transformers has to pad; one is longer than the window of
/// mistral-tiny.
std::vector<Request> requests() {
  RandomStream random(11);
  std::vector<Request> all;
  for (const auto& [prompt, output] :
       {std::pair<int64_t, int64_t>{5, 20}, {30, 12}, {17, 20}, {30, 6}}) {
    Request request{.prompt = {}, .max_new_tokens = output};
    for (int64_t i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<int32_t>(random.below(512)));
    }
    all.push_back(std::move(request));
  }
  return all;
}

class HfTransformers : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_transformers()) {
      GTEST_SKIP() << adapter_python() << " has no torch and transformers (TRIPTYCH_PYTHON)";
    }
    const ModelConfig config = synthetic_config(GetParam().arch).value();
    ASSERT_TRUE(write_synthetic_directory(config, folder_ / "model", {.seed = 3}));
    const auto checkpoint = open_checkpoint({.path = folder_ / "model"}).value();
    EngineOptions options;
    options.features = RuntimeFeatures::fast(DeviceKind::kCpu);
    options.max_batch = 3;
    options.max_sequence = 64;
    options.num_threads = 1;
    builtin_ = make_engine(load_weights(checkpoint, GetParam().weights).value(), options).value();

    CommandEngineOptions command;
    command.name = "hf_transformers";
    command.adapter = AdapterFile::write("hf_transformers").value();
    command.command.argv = {adapter_python(), command.adapter->path().string()};
    command.open.model = folder_ / "model";
    command.open.weights = weight_scheme_name(GetParam().weights);
    command.open.options = {{"mode", GetParam().mode}};
    command.engine = options;
    command.shapes = weight_shapes(checkpoint, GetParam().weights).value();
    command.timeouts = {
        .start_ns = 5 * kMinuteNs, .record_ns = 5 * kMinuteNs, .pass_ns = 8 * kMinuteNs};
    auto made = make_command_engine(command);
    ASSERT_TRUE(made) << made.error().to_string();
    adapter_ = std::move(*made);
  }

  std::vector<std::vector<float>> logits(Engine& engine, const std::vector<int32_t>& tokens,
                                         int64_t prefill) {
    std::vector<std::vector<float>> all;
    const Status scored =
        engine.score(tokens, prefill, [&](int64_t, std::span<const float> position) {
          all.emplace_back(position.begin(), position.end());
        });
    EXPECT_TRUE(scored) << (scored ? "" : scored.error().to_string());
    return all;
  }

  TempDir folder_;
  std::unique_ptr<Engine> builtin_;
  std::unique_ptr<Engine> adapter_;
};

TEST_P(HfTransformers, LogitsAreThoseOfTheBuiltInEngine) {
  const std::vector<int32_t> tokens = requests()[1].prompt;
  const auto expected = logits(*builtin_, tokens, 20);
  const auto found = logits(*adapter_, tokens, 20);
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t j = 0; j < found[i].size(); ++j) {
      worst = std::max(worst, std::abs(static_cast<double>(found[i][j]) - expected[i][j]));
    }
  }
  EXPECT_LT(worst, GetParam().tolerance);
  RecordProperty("max_logit_error", std::to_string(worst));
}

/// Greedy tokens are equal up to the first place where the two best logits are nearer to each other
/// than the engines are; there they may part.
TEST_P(HfTransformers, TokensAreThoseOfTheBuiltInEngine) {
  const std::vector<Request> asked = requests();
  const auto expected = builtin_->generate(asked, nullptr);
  const auto found = adapter_->generate(asked, nullptr);
  ASSERT_TRUE(expected) << expected.error().to_string();
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->prefill_steps, 2);  // three requests, then the fourth
  for (size_t r = 0; r < asked.size(); ++r) {
    const std::vector<int32_t>& a = expected->requests[r].tokens;
    const std::vector<int32_t>& b = found->requests[r].tokens;
    ASSERT_EQ(a.size(), b.size());
    const size_t same =
        static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
    if (same == a.size()) continue;
    std::vector<int32_t> context = asked[r].prompt;
    context.insert(context.end(), a.begin(), a.begin() + static_cast<std::ptrdiff_t>(same));
    std::vector<float> last =
        logits(*builtin_, context, static_cast<int64_t>(asked[r].prompt.size())).back();
    std::nth_element(last.begin(), last.begin() + 1, last.end(), std::greater<>());
    // Either of the two may be off by the tolerance.
    EXPECT_LT(last[0] - last[1], 2 * GetParam().tolerance) << "request " << r << " token " << same;
  }
}

/// On a CPU its operators are what the device did; what is compiled leaves no records.
TEST_P(HfTransformers, WritesATraceOfItsSteps) {
  EXPECT_EQ(adapter_->writes_traces(), GetParam().mode == std::string("eager"));
  if (!adapter_->writes_traces()) return;
  std::vector<Request> asked = requests();
  asked.resize(3);  // 5, 30 and 17 prompt tokens; 20, 12 and 20 new ones
  const TraceFile file{.path = folder_ / "trace.json", .steps = 19};
  const int64_t before = now_ns();
  const auto result = adapter_->generate_to_file(asked, file);
  ASSERT_TRUE(result) << result.error().to_string();
  const auto trace = read_trace_json(file.path);
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->clock, "steady");
  EXPECT_EQ(trace->quality.unlinked, 0);
  EXPECT_EQ(trace->quality.inverted, 0);
  ASSERT_EQ(trace->phases.size(), 20U);
  EXPECT_EQ(trace->phases[0].kind, PhaseKind::kPrefill);
  EXPECT_EQ(trace->phases[0].tokens, 52);
  EXPECT_GE(trace->phases[0].start_ns, before);
  EXPECT_LE(trace->phases.back().end_ns, now_ns());
  for (size_t step = 1; step < trace->phases.size(); ++step) {
    const Phase& phase = trace->phases[step];
    EXPECT_EQ(phase.kind, PhaseKind::kDecode);
    EXPECT_EQ(phase.tokens, step <= 11 ? 3 : 2) << step;
    EXPECT_EQ(phase.end_ns, result->requests[0].token_ns[step]) << "when the token was there";
  }
  // The clocks agree: each step chooses tokens once, in its phase. They are read within 100 us.
  std::vector<int64_t> chosen;
  for (const Activity& activity : trace->activities) {
    if (trace->names[activity.name_id] == "aten::argmax") chosen.push_back(activity.start_ns);
  }
  ASSERT_EQ(chosen.size(), trace->phases.size());
  for (size_t step = 0; step < chosen.size(); ++step) {
    EXPECT_GT(chosen[step], trace->phases[step].start_ns - 100'000) << step;
    EXPECT_LT(chosen[step], trace->phases[step].end_ns + 100'000) << step;
  }
  const auto left = std::filesystem::directory_iterator(folder_.path());
  EXPECT_EQ(std::distance(begin(left), end(left)), 2) << "model and trace";
  EXPECT_TRUE(adapter_->generate(asked, nullptr)) << "it goes on without a trace";
}

TEST_P(HfTransformers, SaysWhatItIs) {
  const std::string text = adapter_->kernel_choice(1);
  EXPECT_NE(text.find("transformers"), std::string::npos) << text;
  EXPECT_NE(text.find(std::string("mode=") + GetParam().mode), std::string::npos) << text;
  EXPECT_GT(adapter_->memory().weight_bytes, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, HfTransformers,
                         ::testing::Values(Case{"llama-tiny", WeightScheme::kF32, "eager", 3e-3},
                                           Case{"mistral-tiny", WeightScheme::kF32, "eager", 3e-3},
                                           Case{"qwen2-tiny", WeightScheme::kF32, "eager", 3e-3},
                                           Case{"qwen3-tiny", WeightScheme::kF32, "eager", 3e-3},
                                           Case{"llama-tiny", WeightScheme::kF16, "eager", 2e-2},
                                           Case{"mistral-tiny", WeightScheme::kF16, "eager", 2e-2},
                                           Case{"qwen2-tiny", WeightScheme::kF16, "eager", 2e-2},
                                           Case{"qwen3-tiny", WeightScheme::kF16, "eager", 2e-2},
                                           Case{"llama-tiny", WeightScheme::kBF16, "eager", 2e-1},
                                           Case{"llama-tiny", WeightScheme::kF32, "static_compile",
                                                3e-3}));

TEST(HfTransformersOptions, WhatItDoesNotKnowIsRefused) {
  if (!has_transformers()) GTEST_SKIP() << adapter_python() << " has no torch and transformers";
  const auto shapes =
      weight_shapes(open_checkpoint({.synthetic = "llama-tiny"}).value(), WeightScheme::kF32);
  for (const auto& [options, message] :
       std::map<std::string, std::string>{{R"({"mode": "quick"})", "option mode is 'quick'"},
                                          {R"({"modes": "eager"})", "unknown option 'modes'"},
                                          {"{}", "is neither a Hugging Face directory"}}) {
    CommandEngineOptions command;
    command.name = "hf";
    command.adapter = AdapterFile::write("hf_transformers").value();
    command.command.argv = {adapter_python(), command.adapter->path().string()};
    command.open = {.model = "no-such-model", .weights = "f32", .eos_token_id = {}};
    command.open.options = Json::parse(options);
    command.engine.max_sequence = 8;
    command.shapes = *shapes;
    const auto made = make_command_engine(command);
    ASSERT_FALSE(made) << options;
    EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  }
}

}  // namespace
}  // namespace triptych
