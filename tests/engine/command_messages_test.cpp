// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/command_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base64.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

Json ready_record() {
  return {{"type", "ready"},           {"protocol", 1},
          {"engine", "mine"},          {"version", "2.5"},
          {"device", "Some GPU"},      {"vocab_size", 100},
          {"can", {"score", "dance"}}, {"frameworks", {{"torch", "2.11"}, {"cuda", "13.0"}}},
          {"kernels", "attention=x"},  {"weight_bytes", 77}};
}

TEST(CommandMessages, OpenSaysWhatToLoad) {
  EngineOptions options;
  options.device = DeviceKind::kCuda;
  options.num_threads = 3;
  options.max_batch = 8;
  options.max_sequence = 640;
  OpenMessage open{.model = "/m", .weights = "bf16", .eos_token_id = 2};
  open.options = {{"mode", "eager"}};
  const std::string line = open_message(open, options);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(line), Json::parse(R"({"type": "open", "protocol": 1, "model": "/m",
      "weights": "bf16", "device": "cuda", "threads": 3, "max_batch": 8, "max_sequence": 640,
      "eos_token_id": 2, "options": {"mode": "eager"}})"));
  open.eos_token_id.reset();
  EXPECT_TRUE(Json::parse(open_message(open, options))["eos_token_id"].is_null());
}

TEST(CommandMessages, GenerateAndScoreCarryTheTokens) {
  const std::vector<Request> requests = {
      {.prompt = {5, 6}, .max_new_tokens = 3},
      {.prompt = {7}, .max_new_tokens = 1, .ignore_eos = false, .arrival_ns = 12}};
  EXPECT_EQ(Json::parse(generate_message(4, 2, requests)),
            Json::parse(R"({"type": "generate", "pass": 4, "concurrency": 2, "sampling": "greedy",
      "requests": [{"id": 0, "prompt": [5, 6], "max_new_tokens": 3, "ignore_eos": true},
      {"id": 1, "prompt": [7], "max_new_tokens": 1, "ignore_eos": false, "arrival_ns": 12}]})"));
  const TraceFile trace{.path = "/t/a.json", .steps = 16};
  const Json traced = Json::parse(generate_message(4, 2, requests, &trace));
  EXPECT_EQ(traced["trace"], Json::parse(R"({"path": "/t/a.json", "steps": 16})"));
  EXPECT_EQ(Json::parse(score_message(std::vector<int32_t>{1, 2, 3}, 2)),
            Json::parse(R"({"type": "score", "tokens": [1, 2, 3], "prefill_tokens": 2})"));
}

TEST(CommandMessages, ReadyTellsWhatRuns) {
  const auto ready = parse_ready(ready_record());
  ASSERT_TRUE(ready) << ready.error().to_string();
  EXPECT_TRUE(ready->can_score);
  EXPECT_FALSE(ready->can_arrivals);
  EXPECT_FALSE(ready->can_trace);
  Json able = ready_record();
  able["can"] = {"trace", "fly"};
  EXPECT_TRUE(parse_ready(able)->can_trace);
  EXPECT_EQ(ready->vocab_size, 100);
  EXPECT_EQ(ready->weight_bytes, 77);
  EXPECT_EQ(ready->text(), "mine 2.5 on Some GPU: attention=x; cuda 13.0, torch 2.11");
}

TEST(CommandMessages, ReadyIsNotBelieved) {
  for (const char* key : {"protocol", "engine", "version", "device", "vocab_size"}) {
    Json record = ready_record();
    record.erase(key);
    EXPECT_THAT(parse_ready(record).error().message, HasSubstr(key));
    record[key] = Json::array();
    EXPECT_EQ(parse_ready(record).error().code, ErrorCode::kCorrupt) << key;
  }
  Json record = ready_record();
  record["vocab_size"] = 0;
  EXPECT_EQ(parse_ready(record).error().message, "\"vocab_size\" is 0, expected more than 0");
  record = ready_record();
  record["weight_bytes"] = -1;
  EXPECT_EQ(parse_ready(record).error().message, "\"weight_bytes\" is -1, expected a size");
  record = ready_record();
  record["protocol"] = 2;
  EXPECT_EQ(parse_ready(record).error().code, ErrorCode::kUnsupported);
  record = ready_record();
  record["frameworks"]["torch"] = 2;
  EXPECT_FALSE(parse_ready(record));
}

TEST(CommandMessages, TextIsOneLineOfBoundedLength) {
  Json record = ready_record();
  std::string longer(299, 'x');
  longer += "\xC3\xA9tail";  // the cut would fall into a character of two bytes
  record["engine"] = longer;
  record["device"] = "a\nb\tc";
  const auto ready = parse_ready(record);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->engine, std::string(299, 'x') + "...");
  EXPECT_EQ(ready->device, "a b c");
}

TEST(CommandMessages, ErrorsKeepTheirKind) {
  const auto code = [](const Json& record) { return parse_error_record(record).code; };
  EXPECT_EQ(code({{"code", "unsupported"}, {"message", "m"}}), ErrorCode::kUnsupported);
  EXPECT_EQ(code({{"code", "out_of_memory"}, {"message", "m"}}), ErrorCode::kOutOfMemory);
  EXPECT_EQ(code({{"code", "failed"}, {"message", "m"}}), ErrorCode::kIo);
  EXPECT_EQ(code({{"message", "m"}}), ErrorCode::kCorrupt);
}

TEST(CommandMessages, LongLogitsAreReadAsJsonWouldBe) {
  const std::string text(10000, 'A');
  const std::string start = R"({"type":"logits","position":3,"f32":")";
  for (const std::string& line :
       {start + text + "\"}", start + text + "\\n\"}", start + text + R"(","more":[1,{"f32":""}]})",
        R"({"a":{"f32":")" + text + R"("},"f32":"x"})", R"({"f32":"","b":")" + text + "\"}",
        R"({"f32": ")" + text + "\"}", start + "\"}"}) {
    const auto record = parse_record(line);
    ASSERT_TRUE(record.has_value()) << line.substr(0, 60);
    EXPECT_EQ(*record, Json::parse(line)) << line.substr(0, 60);
  }
  for (const std::string& line : {start + text, start + text + "\"", start + text + "\"}}",
                                  start + text + R"(","f32":"B"})"}) {
    EXPECT_FALSE(parse_record(line).has_value()) << line.substr(0, 60);
  }
}

TEST(CommandMessages, LogitsComeBackAsTheyWere) {
  const std::vector<float> sent = {1.5F, -0.0F, std::numeric_limits<float>::infinity(), -3e38F};
  Json record = {{"position", 6}, {"f32", encode_base64(std::as_bytes(std::span(sent)))}};
  std::vector<float> logits;
  ASSERT_TRUE(parse_logits(record, 6, 4, logits));
  EXPECT_EQ(logits, sent);
  EXPECT_FALSE(parse_logits(record, 7, 4, logits));
  EXPECT_FALSE(parse_logits(record, 6, 3, logits));
  record["f32"] = "?";
  EXPECT_EQ(parse_logits(record, 6, 4, logits).error().message, "\"f32\" is not base64");
  const std::vector<float> bad = {std::nanf("")};
  record["f32"] = encode_base64(std::as_bytes(std::span(bad)));
  EXPECT_THAT(parse_logits(record, 6, 1, logits).error().message, HasSubstr("is not a number"));
}

}  // namespace
}  // namespace triptych
