// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/chrome_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

TEST(UsTextToNs, IsExactForThreeDecimals) {
  EXPECT_EQ(us_text_to_ns("0"), 0);
  EXPECT_EQ(us_text_to_ns("0.001"), 1);
  EXPECT_EQ(us_text_to_ns("-0.001"), -1);
  EXPECT_EQ(us_text_to_ns("12"), 12'000);
  EXPECT_EQ(us_text_to_ns("12.5"), 12'500);
  // As a double this is off by 102 ns.
  EXPECT_EQ(us_text_to_ns("1711964646000123.457"), 1711964646000123457);
  EXPECT_EQ(us_text_to_ns("9223372036854775.807"), std::numeric_limits<int64_t>::max());
}

TEST(UsTextToNs, RoundsWhatIsBelowOneNanosecond) {
  EXPECT_EQ(us_text_to_ns("1.0004"), 1000);
  EXPECT_EQ(us_text_to_ns("1.0005"), 1001);
  EXPECT_EQ(us_text_to_ns("-1.0005"), -1001);
  EXPECT_EQ(us_text_to_ns("1.9999999999999999999999999"), 2000);
  EXPECT_EQ(us_text_to_ns("0.00049"), 0);
  EXPECT_EQ(us_text_to_ns("0.0005"), 1);
  EXPECT_EQ(us_text_to_ns("0.00000000000009"), 0);
}

TEST(UsTextToNs, ReadsExponents) {
  EXPECT_EQ(us_text_to_ns("1.5e3"), 1'500'000);
  EXPECT_EQ(us_text_to_ns("1.5E+3"), 1'500'000);
  EXPECT_EQ(us_text_to_ns("1500e-3"), 1'500);
  EXPECT_EQ(us_text_to_ns("1e-9"), 0);
  EXPECT_EQ(us_text_to_ns("0e500"), 0);
}

TEST(UsTextToNs, IsEmptyWhereItDoesNotFit) {
  EXPECT_EQ(us_text_to_ns("9223372036854775.808"), std::nullopt);
  EXPECT_EQ(us_text_to_ns("1e16"), std::nullopt);
  EXPECT_EQ(us_text_to_ns("1e99999999999"), std::nullopt);
  EXPECT_EQ(us_text_to_ns("99999999999999999999999"), std::nullopt);
}

TEST(UsTextToNs, UndoesTheDecimalTextOfAnyTime) {
  RandomStream random(1);
  for (int i = 0; i < 5000; ++i) {
    const auto ns = static_cast<int64_t>(random() >> (1 + random.below(63)));
    std::string text = std::to_string(ns / 1000) + ".";
    text += std::to_string(1000 + ns % 1000).substr(1);
    ASSERT_EQ(us_text_to_ns(text), ns) << text;
    ASSERT_EQ(us_text_to_ns("-" + text), -ns) << text;
  }
}

struct Parsed {
  Result<ChromeHeader> header;
  std::vector<ChromeEvent> events;
};

Parsed parse(std::string_view json) {
  std::vector<ChromeEvent> events;
  Result<ChromeHeader> header = read_chrome_events(
      json, "t.json", [&events](const ChromeEvent& event) { events.push_back(event); });
  return {std::move(header), std::move(events)};
}

TEST(ChromeEvents, ReadsTheFieldsOfAnEvent) {
  const Parsed parsed = parse(
      R"({"baseTimeNanoseconds": 17, "dropped_records": 3, "clock": "device", "other": [{"ts": 1}],
          "traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\"b\u00e9", "ts": 1.234, "dur": 5,
          "pid": 2, "tid": 7, "args": {"device": 1, "stream": -1, "correlation": 18446744073709551615,
          "bytes": 12, "grid": [1, 2, 3], "nested": {"device": 99}, "kind": "decode", "index": 4,
          "tokens": 8}}], "source": "x", "unlinked_records": 2})");
  ASSERT_TRUE(parsed.header) << parsed.header.error().to_string();
  EXPECT_EQ(parsed.header->base_time_ns, 17);
  EXPECT_EQ(parsed.header->dropped_records, 3);
  EXPECT_EQ(parsed.header->unlinked_records, 2);
  EXPECT_EQ(parsed.header->clock, "device");
  EXPECT_EQ(parsed.header->source, "x");
  ASSERT_EQ(parsed.events.size(), 1u);
  const ChromeEvent& event = parsed.events[0];
  EXPECT_EQ(event.phase, 'X');
  EXPECT_EQ(event.category, "kernel");
  EXPECT_EQ(event.name, "a\"b\u00e9");
  EXPECT_EQ(event.ts_ns, 1234);
  EXPECT_EQ(event.dur_ns, 5000);
  EXPECT_EQ(event.process, 2);
  EXPECT_EQ(event.thread, 7);
  EXPECT_EQ(event.device, 1);
  EXPECT_EQ(event.stream, -1);
  EXPECT_EQ(event.correlation, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(event.bytes, 12);
  EXPECT_EQ(event.kind, "decode");
  EXPECT_EQ(event.index, 4);
  EXPECT_EQ(event.tokens, 8);
}

TEST(ChromeEvents, ReadsABareArray) {
  const Parsed parsed = parse(R"([{"ph": "M"}, 5, null, [1, {"ph": "X"}], {"ph": "X", "ts": 1}])");
  ASSERT_TRUE(parsed.header);
  ASSERT_EQ(parsed.events.size(), 2u);
  EXPECT_EQ(parsed.events[0].phase, 'M');
  EXPECT_EQ(parsed.events[1].ts_ns, 1000);
}

TEST(ChromeEvents, ForgetsTheEventBefore) {
  const Parsed parsed = parse(R"([{"ph": "X", "name": "a", "ts": 1, "args": {"stream": 4}}, {}])");
  ASSERT_EQ(parsed.events.size(), 2u);
  EXPECT_EQ(parsed.events[1].phase, '\0');
  EXPECT_EQ(parsed.events[1].name, "");
  EXPECT_EQ(parsed.events[1].ts_ns, std::nullopt);
  EXPECT_EQ(parsed.events[1].stream, std::nullopt);
}

TEST(ChromeEvents, LeavesFieldsOfAnotherTypeEmpty) {
  const Parsed parsed = parse(
      R"({"baseTimeNanoseconds": "x", "dropped_records": {}, "clock": 7, "traceEvents": [{"ph": 3,
          "cat": null, "name": ["x"], "ts": "12", "dur": true, "pid": 1.5, "tid": {"ts": 4},
          "args": [{"device": 1}]}, {"args": 5, "ts": 1e30}]})");
  ASSERT_TRUE(parsed.header);
  EXPECT_EQ(parsed.header->base_time_ns, 0);
  EXPECT_EQ(parsed.header->dropped_records, std::nullopt);
  ASSERT_EQ(parsed.events.size(), 2u);
  const ChromeEvent& event = parsed.events[0];
  EXPECT_EQ(event.phase, '\0');
  EXPECT_EQ(event.name, "");
  EXPECT_EQ(event.ts_ns, std::nullopt);
  EXPECT_EQ(event.dur_ns, std::nullopt);
  EXPECT_EQ(event.process, std::nullopt);
  EXPECT_EQ(event.thread, std::nullopt);
  EXPECT_EQ(event.device, std::nullopt);
  EXPECT_EQ(parsed.events[1].ts_ns, std::nullopt);
}

TEST(ChromeEvents, SaysAtWhichByteTheTextBreaks) {
  const std::string whole = R"({"traceEvents": [{"ph": "X", "name": "gemm"}]})";
  for (size_t size = 0; size < whole.size(); ++size) {
    const Parsed parsed = parse(std::string_view(whole).substr(0, size));
    ASSERT_FALSE(parsed.header) << size;
    EXPECT_EQ(parsed.header.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(parsed.header.error().where, "t.json");
    EXPECT_THAT(parsed.header.error().message,
                HasSubstr("not JSON at byte " + std::to_string(size + 1) + ":"));
  }
  EXPECT_THAT(parse(R"({"traceEvents": [}])").header.error().message, HasSubstr("at byte 18: "));
  EXPECT_THAT(parse("[\"\xff\"]").header.error().message, HasSubstr("UTF-8"));
  EXPECT_FALSE(parse("[] []").header);
}

TEST(ChromeEvents, WantsEvents) {
  for (const std::string_view json : {"{}", "5", "\"text\"", R"({"traceEvents": {}})",
                                      R"({"other": {"traceEvents": []}})", "null"}) {
    const Parsed parsed = parse(json);
    ASSERT_FALSE(parsed.header) << json;
    EXPECT_THAT(parsed.header.error().message, HasSubstr("traceEvents")) << json;
  }
}

TEST(ChromeEvents, SurvivesDeepNesting) {
  // A recursive parser would run out of stack.
  constexpr size_t kDepth = 1'000'000;
  std::string json = R"({"traceEvents": [{"args": {"x": )" + std::string(kDepth, '[');
  EXPECT_FALSE(parse(json).header);
  json += std::string(kDepth, ']') + R"(}, "ts": 2}]})";
  const Parsed parsed = parse(json);
  ASSERT_TRUE(parsed.header);
  ASSERT_EQ(parsed.events.size(), 1u);
  EXPECT_EQ(parsed.events[0].ts_ns, 2000);
}

}  // namespace
}  // namespace triptych
