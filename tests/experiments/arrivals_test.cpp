// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using testing::HasSubstr;

std::vector<Request> requests_of(size_t count, int64_t prompt = 10, int64_t output = 5) {
  return std::vector<Request>(
      count, Request{.prompt = std::vector<int32_t>(static_cast<size_t>(prompt), 1),
                     .max_new_tokens = output});
}

std::vector<int64_t> times(const std::vector<Request>& requests) {
  std::vector<int64_t> all;
  for (const Request& request : requests) all.push_back(request.arrival_ns.value());
  return all;
}

TEST(Arrivals, ClosedLoopSetsNothing) {
  std::vector<Request> requests = requests_of(3);
  ASSERT_TRUE(schedule_arrivals({}, nullptr, 1, requests));
  for (const Request& request : requests) EXPECT_EQ(request.arrival_ns, std::nullopt);
}

TEST(Arrivals, PoissonGapsAreExponentialAndReproducible) {
  constexpr size_t kCount = 20000;
  const ArrivalSpec poisson{.kind = ArrivalSpec::Kind::kPoisson, .rate_per_s = 4, .trace = {}};
  std::vector<Request> requests = requests_of(kCount, 1, 1);
  ASSERT_TRUE(schedule_arrivals(poisson, nullptr, 7, requests));
  const std::vector<int64_t> first = times(requests);
  EXPECT_EQ(first[0], 0);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  std::vector<double> gaps;
  for (size_t i = 1; i < first.size(); ++i) {
    gaps.push_back(static_cast<double>(first[i] - first[i - 1]) * 1e-9);
  }
  double mean = 0;
  double longer_than_mean = 0;
  for (const double gap : gaps) {
    mean += gap / static_cast<double>(gaps.size());
    longer_than_mean += (gap > 0.25 ? 1.0 : 0.0) / static_cast<double>(gaps.size());
  }
  // Standard errors: 0.25 / sqrt(20000) = 0.0018 and sqrt(0.37 * 0.63 / 20000) = 0.0034; four of
  // each.
  EXPECT_NEAR(mean, 0.25, 0.0072);
  EXPECT_NEAR(longer_than_mean, std::exp(-1.0), 0.0136);

  ASSERT_TRUE(schedule_arrivals(poisson, nullptr, 7, requests));
  EXPECT_EQ(times(requests), first);
  std::vector<Request> fewer = requests_of(10, 1, 1);
  ASSERT_TRUE(schedule_arrivals(poisson, nullptr, 7, fewer));
  EXPECT_EQ(times(fewer), std::vector<int64_t>(first.begin(), first.begin() + 10));
  ASSERT_TRUE(schedule_arrivals(poisson, nullptr, 8, requests));
  EXPECT_NE(times(requests), first);
}

TEST(Arrivals, AJsonTraceIsSortedAndBeginsAtZero) {
  const auto trace = parse_arrival_trace(
      "{\"timestamp\": 1500, \"input_length\": 8, \"output_length\": 2, \"hash_ids\": [1]}\n"
      "\n{\"timestamp\": 1000.5}\n",
      "t.jsonl");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->arrivals.size(), 2U);
  EXPECT_EQ(trace->arrivals[0].arrival_ns, 0);
  EXPECT_EQ(trace->arrivals[0].line, 3);
  EXPECT_EQ(trace->arrivals[0].prompt_tokens, std::nullopt);
  EXPECT_EQ(trace->arrivals[1].arrival_ns, 499500000);
  EXPECT_EQ(trace->arrivals[1].prompt_tokens, 8);
  EXPECT_EQ(trace->arrivals[1].output_tokens, 2);
}

TEST(Arrivals, ACsvTraceReadsDatesToTheNanosecond) {
  const auto trace = parse_arrival_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-12-31 23:59:59.9999999,374,44\r\n"
      "2024-01-01 00:00:00.0000001,396,109\r\n2024-03-01 00:00:00,5,6\r\n",
      "azure.csv");
  ASSERT_TRUE(trace) << trace.error().to_string();
  EXPECT_EQ(trace->arrivals[1].arrival_ns, 200);
  EXPECT_EQ(trace->arrivals[2].arrival_ns, (31 + 29) * 86400'000000000LL + 100);
  EXPECT_EQ(trace->arrivals[0].prompt_tokens, 374);
}

TEST(Arrivals, TracesAreReplayedFasterAndWithTheirLengths) {
  const ArrivalTrace trace =
      parse_arrival_trace(
          "{\"timestamp\": 0, \"input_length\": 8, \"output_length\": 2}\n"
          "{\"timestamp\": 10, \"input_length\": 10, \"output_length\": 5}\n{\"timestamp\": 20}",
          "t.jsonl")
          .value();
  ArrivalSpec spec{.kind = ArrivalSpec::Kind::kTrace, .trace = "t.jsonl", .speed = 4};
  std::vector<Request> requests = requests_of(3);
  ASSERT_TRUE(schedule_arrivals(spec, &trace, 1, requests));
  EXPECT_EQ(times(requests), (std::vector<int64_t>{0, 2500000, 5000000}));
  EXPECT_EQ(requests[0].prompt.size(), 10U) << "lengths were not asked for";

  spec.lengths = true;
  std::vector<Request> two = requests_of(2);
  ASSERT_TRUE(schedule_arrivals(spec, &trace, 1, two));
  EXPECT_EQ(two[0].prompt.size(), 8U);
  EXPECT_EQ(two[0].max_new_tokens, 2);
  const Status missing = schedule_arrivals(spec, &trace, 1, requests);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().where, "t.jsonl:3");
  std::vector<Request> small = requests_of(2, 10, 4);
  const Status longer = schedule_arrivals(spec, &trace, 1, small);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().where, "t.jsonl:2");
  EXPECT_THAT(longer.error().message, HasSubstr("10 prompt and 5 output tokens"));
  std::vector<Request> more = requests_of(4);
  EXPECT_THAT(schedule_arrivals(spec, &trace, 1, more).error().message,
              HasSubstr("3 entries, but the workload asks for 4"));
}

TEST(Arrivals, AReplayThatTakesYearsIsRefused) {
  const ArrivalTrace trace =
      parse_arrival_trace("{\"timestamp\": 0}\n{\"timestamp\": 86400000}", "t.jsonl").value();
  std::vector<Request> requests = requests_of(2);
  ArrivalSpec spec{.kind = ArrivalSpec::Kind::kTrace, .trace = "t.jsonl", .speed = 1.0 / 366};
  ASSERT_TRUE(schedule_arrivals(spec, &trace, 1, requests));
  spec.speed = 1e-6;  // times beyond 64 bits of ns
  const Status status = schedule_arrivals(spec, &trace, 1, requests);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().where, "t.jsonl:2");
  EXPECT_EQ(status.error().message,
            "at speed 1e-06 this request would come after 1e+06 days, expected one year at most");
}

TEST(Arrivals, BadTracesAreRefusedWithTheirLine) {
  struct Case {
    const char* file;
    const char* text;
    const char* where;
    const char* message;
  };
  // Would exhaust the stack if it were printed.
  const std::string deep =
      "{\"timestamp\": " + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
  const std::vector<Case> cases = {
      {"t.jsonl", "", "t.jsonl", "no entry"},
      {"t.jsonl", "{\"timestamp\": 1}\n[1]", "t.jsonl:2", "expected {\"timestamp\""},
      {"t.jsonl", "{\"timestamp\": -1}", "t.jsonl:1", "ms from 0"},
      {"t.jsonl", "{\"timestamp\": 1e300}", "t.jsonl:1", "ms from 0"},
      {"t.jsonl", "{\"timestamp\": \"1\"}", "t.jsonl:1", "\"timestamp\" is \"1\""},
      {"t.jsonl", "{\"timestamp\": 1, \"input_length\": 0}", "t.jsonl:1", "\"input_length\" is 0"},
      {"t.jsonl", "{\"timestamp\": 1, \"output_length\": 1.5}", "t.jsonl:1", "1.5"},
      {"t.jsonl", deep.c_str(), "t.jsonl:1", "\"timestamp\" is a list or an object"},
      {"t.csv", "a,b,c\n", "t.csv:1", "expected the header"},
      {"t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,1", "t.csv:2",
       "no timestamp"},
      {"t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:00.,1,1", "t.csv:2",
       "no timestamp"},
      {"t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:00,1", "t.csv:2",
       "expected TIMESTAMP"},
      {"t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:00,1,0", "t.csv:2",
       "token counts from 1"}};
  for (const Case& c : cases) {
    const auto trace = parse_arrival_trace(c.text, c.file);
    ASSERT_FALSE(trace) << c.text;
    EXPECT_EQ(trace.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(trace.error().where, c.where) << c.text;
    EXPECT_THAT(trace.error().message, HasSubstr(c.message));
  }
  EXPECT_EQ(load_arrival_trace("/no/such/trace.jsonl").error().code, ErrorCode::kNotFound);
}

TEST(Arrivals, LabelsSayWhatIsReplayed) {
  EXPECT_EQ(ArrivalSpec().label(), "closed");
  EXPECT_EQ(
      (ArrivalSpec{.kind = ArrivalSpec::Kind::kPoisson, .rate_per_s = 0.5, .trace = {}}).label(),
      "poisson:0.5");
  EXPECT_EQ((ArrivalSpec{.kind = ArrivalSpec::Kind::kTrace, .trace = "a/b.csv"}).label(),
            "trace:b.csv");
  EXPECT_EQ(
      (ArrivalSpec{
           .kind = ArrivalSpec::Kind::kTrace, .trace = "a/b.csv", .speed = 2, .lengths = true})
          .label(),
      "trace:b.csv,speed=2,lengths");
}

}  // namespace
}  // namespace triptych
