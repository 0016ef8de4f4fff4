// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "profiler/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/random.h"
#include "base/strings.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

// A file that is gone when the test ends.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text)
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("triptych_trace_" + std::to_string(::getpid()) + ".json")) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string write(const Trace& trace) {
  std::ostringstream out;
  write_trace_json(trace, out);
  return out.str();
}

Result<Trace> read(std::string_view text) { return read_trace_json(TemporaryFile(text).path()); }

const std::vector<std::string> kNames = {"gemv_q4_1",
                                         "",
                                         "quote \" backslash \\ slash / tab \t newline \n nul \x01",
                                         "\u00fcn\u00ef \u4e2d\u6587 \U0001F680 </script>",
                                         "void f<int, 4>(char const*)",
                                         "ProfilerStep#7",
                                         std::string("embedded\0zero", 13)};

int64_t random_time(RandomStream& random) {
  // From a few ns to all 62 bits, so that texts of every length occur.
  return static_cast<int64_t>(random() >> (2 + random.below(60)));
}

Trace random_trace(RandomStream& random) {
  Trace trace;
  const int64_t origin = random_time(random);
  const uint64_t count = random.below(30);
  for (uint64_t i = 0; i < count; ++i) {
    Activity activity;
    activity.kind = static_cast<ActivityKind>(random.below(kActivityKindNames.size()));
    activity.device_id = static_cast<int32_t>(random());
    activity.stream_id = static_cast<int32_t>(random.below(5)) - 1;
    activity.name_id = trace.names.intern(kNames[random.below(kNames.size())]);
    activity.start_ns = origin + static_cast<int64_t>(random.below(1'000'000));
    activity.end_ns = activity.start_ns + static_cast<int64_t>(random.below(5000));
    activity.correlation_id = random.below(2) == 0 ? random.below(100) : random();
    activity.bytes = random_time(random);
    const uint64_t odd = random.below(20);
    if (odd == 0) activity.start_ns = activity.end_ns = 0;
    if (odd == 1) std::swap(activity.start_ns, activity.end_ns);
    if (odd == 2) activity.end_ns = std::numeric_limits<int64_t>::max();
    if (odd == 3) activity.start_ns = std::numeric_limits<int64_t>::min();
    trace.activities.push_back(activity);
  }
  int64_t now = origin;
  const uint64_t phases = random.below(5);
  for (uint64_t i = 0; i < phases; ++i) {
    now += static_cast<int64_t>(random.below(1000));
    const int64_t end = now + static_cast<int64_t>(random.below(100'000));
    trace.phases.push_back({static_cast<PhaseKind>(random.below(2)), static_cast<int64_t>(i),
                            static_cast<int64_t>(random.below(500)), now, end});
    now = end;
  }
  trace.quality.dropped = static_cast<int64_t>(random.below(3));
  trace.quality.unlinked = static_cast<int64_t>(random.below(9));
  trace.clock = random.below(2) == 0 ? "steady" : "device";
  trace.source = kNames[1 + random.below(kNames.size() - 1)];
  if (trace.source.empty()) trace.source = "host_tracer";
  EXPECT_TRUE(trace.finish());
  return trace;
}

void expect_same(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.clock, b.clock);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.quality.dropped, b.quality.dropped);
  EXPECT_EQ(a.quality.zero_time, b.quality.zero_time);
  EXPECT_EQ(a.quality.inverted, b.quality.inverted);
  EXPECT_EQ(a.quality.unlinked, b.quality.unlinked);
  ASSERT_EQ(a.phases.size(), b.phases.size());
  for (size_t i = 0; i < a.phases.size(); ++i) {
    EXPECT_EQ(a.phases[i].kind, b.phases[i].kind);
    EXPECT_EQ(a.phases[i].index, b.phases[i].index);
    EXPECT_EQ(a.phases[i].tokens, b.phases[i].tokens);
    EXPECT_EQ(a.phases[i].start_ns, b.phases[i].start_ns);
    EXPECT_EQ(a.phases[i].end_ns, b.phases[i].end_ns);
  }
  // Compared as sorted rows: records with equal times may change places.
  const auto rows = [](const Trace& trace) {
    std::multiset<std::tuple<int64_t, int64_t, int, int, int, std::string, uint64_t, int64_t>> all;
    for (const Activity& x : trace.activities) {
      all.emplace(x.start_ns, x.end_ns, static_cast<int>(x.kind), x.device_id, x.stream_id,
                  std::string(trace.names[x.name_id]), x.correlation_id, x.bytes);
    }
    return all;
  };
  EXPECT_EQ(rows(a), rows(b));
}

TEST(TraceJson, RoundTripLosesNothing) {
  RandomStream random(1);
  for (int round = 0; round < 400 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Trace trace = random_trace(random);
    const Result<Trace> again = read(write(trace));
    ASSERT_TRUE(again) << again.error().to_string();
    expect_same(trace, *again);
  }
}

TEST(TraceJson, WritesWhatTraceViewersExpect) {
  RandomStream random(2);
  for (int round = 0; round < 100; ++round) {
    const Trace trace = random_trace(random);
    const nlohmann::json json = nlohmann::json::parse(write(trace));
    EXPECT_EQ(json["schemaVersion"], 1);
    EXPECT_EQ(json["displayTimeUnit"], "ns");
    EXPECT_TRUE(json["baseTimeNanoseconds"].is_number_integer());
    EXPECT_EQ(json["dropped_records"], trace.quality.dropped);
    EXPECT_EQ(json["zero_time_records"], trace.quality.zero_time);
    EXPECT_EQ(json["inverted_records"], trace.quality.inverted);
    EXPECT_EQ(json["unlinked_records"], trace.quality.unlinked);
    size_t complete = 0;
    for (const nlohmann::json& event : json["traceEvents"]) {
      EXPECT_TRUE(event["name"].is_string());
      EXPECT_TRUE(event["pid"].is_number_integer());
      EXPECT_TRUE(event["tid"].is_number_integer());
      EXPECT_GE(event["ts"].get<double>(), 0);
      if (event["ph"] == "X") {
        ++complete;
        EXPECT_GE(event["dur"].get<double>(), 0);
      } else {
        EXPECT_EQ(event["ph"], "M");
      }
    }
    EXPECT_EQ(complete, trace.activities.size() + trace.phases.size());
  }
}

Trace small_trace() {
  Trace trace;
  trace.source = "host_tracer";
  trace.activities = {{.kind = ActivityKind::kMemcpy,
                       .device_id = 1,
                       .stream_id = 7,
                       .name_id = trace.names.intern("kv_concat"),
                       .start_ns = 1'000'000'002'000'123,
                       .end_ns = 1'000'000'002'045'123,
                       .correlation_id = 9,
                       .bytes = 64}};
  trace.phases = {{PhaseKind::kDecode, 3, 2, 1'000'000'002'000'000, 1'000'000'002'050'001}};
  return trace;
}

TEST(TraceJson, WritesExactTimesFromABaseAndNamesItsTracks) {
  EXPECT_EQ(
      write(small_trace()),
      R"({"schemaVersion":1,"displayTimeUnit":"ns","baseTimeNanoseconds":1000000002000000,)"
      R"("dropped_records":0,"zero_time_records":0,"inverted_records":0,"unlinked_records":0,)"
      R"("clock":"steady","source":"host_tracer","traceEvents":[)"
      "\n"
      R"({"ph":"M","name":"process_name","ts":0.000,"pid":1000000,"tid":0,"args":{"name":"phases"}},)"
      "\n"
      R"({"ph":"M","name":"process_sort_index","ts":0.000,"pid":1000000,"tid":0,"args":{"sort_index":-1}},)"
      "\n"
      R"({"ph":"M","name":"thread_name","ts":0.000,"pid":1000000,"tid":0,"args":{"name":"phases"}},)"
      "\n"
      R"({"ph":"M","name":"process_name","ts":0.000,"pid":1,"tid":0,"args":{"name":"device 1"}},)"
      "\n"
      R"({"ph":"M","name":"thread_name","ts":0.000,"pid":1,"tid":7,"args":{"name":"stream 7"}},)"
      "\n"
      R"({"ph":"X","cat":"user_annotation","name":"decode step 3","pid":1000000,"tid":0,)"
      R"("ts":0.000,"dur":50.001,"args":{"kind":"decode","index":3,"tokens":2}},)"
      "\n"
      R"({"ph":"X","cat":"gpu_memcpy","name":"kv_concat","pid":1,"tid":7,"ts":0.123,"dur":45.000,)"
      R"("args":{"device":1,"stream":7,"correlation":9,"bytes":64}})"
      "\n]}\n");
}

TEST(TraceJson, ReplacesBytesThatAreNotUtf8) {
  Trace trace;
  trace.activities = {{.name_id = trace.names.intern("a\xff\xc3z"), .start_ns = 1, .end_ns = 2}};
  const std::string text = write(trace);
  EXPECT_TRUE(is_valid_utf8(text));
  const Result<Trace> again = read(text);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->names[0], "a\uFFFD\uFFFDz");
}

TEST(TraceJson, WritesALargeTraceInPieces) {
  Trace trace;
  const uint32_t name = trace.names.intern("add");
  constexpr int64_t kCount = 20'000;  // about 3 MB, many times the buffer
  for (int64_t i = 0; i < kCount; ++i) {
    trace.activities.push_back({.name_id = name, .start_ns = 1 + i, .end_ns = 3 + 2 * i});
  }
  const Result<Trace> again = read(write(trace));
  ASSERT_TRUE(again) << again.error().to_string();
  ASSERT_EQ(again->activities.size(), static_cast<size_t>(kCount));
  EXPECT_EQ(again->activities.back().end_ns, 3 + 2 * (kCount - 1));
}

TEST(TraceJson, ReadsKinetoRecordsAndProfilerSteps) {
  const Result<Trace> trace = read(
      R"json({"schemaVersion": 1, "baseTimeNanoseconds": 1711964646000000000, "traceEvents": [
      {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 29, "tid": 29,
       "ts": 4458676416788.066, "dur": 222.191},
      {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#4", "pid": 0, "tid": 7,
       "ts": 4458676416788.065, "dur": 222.193},
      {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#x", "pid": 29, "tid": 29,
       "ts": 4458676416788.066, "dur": 1},
      {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 29, "tid": 30,
       "ts": 4458676416790.000, "dur": 2.5, "args": {"cbid": 211, "correlation": 57541}},
      {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 29, "tid": 140735340871,
       "ts": 4458676416791.000, "dur": 2.5, "args": {"correlation": 5}},
      {"ph": "X", "cat": "kernel", "name": "bn_bw", "pid": 0, "tid": 7, "ts": 4458676416795.183,
       "dur": 41.407, "args": {"External id": 12, "device": 0, "stream": 7, "correlation": 57541}},
      {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 3, "tid": 9,
       "ts": 4458676416900.267, "dur": 4.96, "args": {
  "correlation" : 8, "bytes" : 6291456}},
      {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 29, "tid": 30, "ts": 1, "dur": 2},
      {"ph": "s", "cat": "ac2g", "id": 57541, "pid": 29, "tid": 30, "ts": 4458676416790.000}]
})json");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->phases.size(), 1u);
  EXPECT_EQ(trace->phases[0].kind, PhaseKind::kDecode);
  EXPECT_EQ(trace->phases[0].index, 4);
  EXPECT_EQ(trace->phases[0].tokens, 0);
  EXPECT_EQ(trace->phases[0].start_ns, 1711964646000000000 + 4458676416788066);
  EXPECT_EQ(trace->phases[0].end_ns, trace->phases[0].start_ns + 222191);
  ASSERT_EQ(trace->activities.size(), 4u);
  const Activity& launch = trace->activities[0];
  EXPECT_EQ(launch.kind, ActivityKind::kRuntime);
  EXPECT_EQ(launch.device_id, 29);
  EXPECT_EQ(launch.stream_id, 30);
  EXPECT_EQ(trace->activities[1].kind, ActivityKind::kRuntime);
  EXPECT_EQ(trace->activities[1].stream_id, 0);  // a pthread id is no stream number
  const Activity& kernel = trace->activities[2];
  EXPECT_EQ(kernel.kind, ActivityKind::kKernel);
  EXPECT_EQ(trace->names[kernel.name_id], "bn_bw");
  EXPECT_EQ(kernel.stream_id, 7);
  EXPECT_EQ(kernel.correlation_id, 57541u);
  EXPECT_EQ(kernel.start_ns, 1711964646000000000 + 4458676416795183);
  EXPECT_EQ(kernel.end_ns - kernel.start_ns, 41407);
  const Activity& memset = trace->activities[3];
  EXPECT_EQ(memset.kind, ActivityKind::kMemset);
  EXPECT_EQ(memset.device_id, 3);  // from pid and tid
  EXPECT_EQ(memset.stream_id, 9);
  EXPECT_EQ(memset.bytes, 6291456);
  EXPECT_EQ(memset.end_ns - memset.start_ns, 4960);
  EXPECT_EQ(trace->quality.unlinked, 1);  // the memset
  // The annotation on the GPU's track, the one that is no step, the operator and the flow.
  EXPECT_EQ(trace->unused_events, 4);
  EXPECT_EQ(trace->quality.dropped, 0);
  EXPECT_EQ(trace->clock, "realtime");
  EXPECT_THAT(trace->source, HasSubstr(".json"));
}

TEST(TraceJson, ReadsLegacyCategories) {
  const Result<Trace> trace = read(
      R"([{"ph": "X", "cat": "Kernel", "name": "k", "pid": 1, "tid": 7, "ts": 5, "dur": 1},
          {"ph": "X", "cat": "Memcpy", "name": "c", "pid": 1, "tid": 7, "ts": 6, "dur": 1}])");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->activities.size(), 2u);
  EXPECT_EQ(trace->activities[0].kind, ActivityKind::kKernel);
  EXPECT_EQ(trace->activities[1].kind, ActivityKind::kMemcpy);
}

TEST(TraceJson, CountsDeviceRecordsWithoutUsableTimesAsDropped) {
  const Result<Trace> trace = read(
      R"({"dropped_records": 2, "baseTimeNanoseconds": 9223372036854775807, "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "no dur", "ts": 5},
      {"ph": "X", "cat": "kernel", "name": "text", "ts": "5", "dur": 1},
      {"ph": "X", "cat": "kernel", "name": "huge", "ts": 9000000000000000, "dur": 9000000000000000},
      {"ph": "X", "cat": "kernel", "name": "beyond the base", "ts": 1, "dur": 1},
      {"ph": "X", "cat": "kernel", "name": "good", "ts": -1, "dur": 0.5},
      {"ph": "X", "cat": "cpu_op", "name": "not a device record", "ts": "x"}]})");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->activities.size(), 1u);
  EXPECT_EQ(trace->names[trace->activities[0].name_id], "good");
  EXPECT_EQ(trace->quality.dropped, 2 + 4);
  EXPECT_EQ(trace->unused_events, 1);
}

TEST(TraceJson, CountsPhasesOfImpossibleSizeAsDropped) {
  const Result<Trace> trace = read(R"([
      {"ph": "X", "cat": "user_annotation", "name": "decode 0", "ts": 0, "dur": 1,
       "args": {"kind": "decode", "index": 0, "tokens": 9223372036854775807}},
      {"ph": "X", "cat": "user_annotation", "name": "decode 1", "ts": 2, "dur": 1,
       "args": {"kind": "decode", "index": 1, "tokens": -1}},
      {"ph": "X", "cat": "user_annotation", "name": "decode 2", "ts": 4, "dur": 1,
       "args": {"kind": "decode", "index": 2, "tokens": 16777216}}])");
  ASSERT_TRUE(trace) << trace.error().to_string();
  ASSERT_EQ(trace->phases.size(), 1u);
  EXPECT_EQ(trace->phases[0].index, 2);
  EXPECT_EQ(trace->quality.dropped, 2);
}

TEST(TraceJson, RefusesOverlappingPhases) {
  const Result<Trace> trace = read(
      R"([{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 5, "dur": 10},
          {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "ts": 9, "dur": 10}])");
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(trace.error().where, HasSubstr(".json"));
}

TEST(TraceJson, NamesTheByteWhereAFileWasCut) {
  const std::string whole = write(small_trace());
  RandomStream random(3);
  for (int round = 0; round < 200; ++round) {
    const size_t size = random.below(whole.rfind('}'));
    const Result<Trace> trace = read(std::string_view(whole).substr(0, size));
    ASSERT_FALSE(trace) << size;
    EXPECT_EQ(trace.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(trace.error().message, HasSubstr("byte " + std::to_string(size + 1)));
  }
}

TEST(TraceJson, NamesAMissingFile) {
  const Result<Trace> trace = read_trace_json("/nonexistent/trace.json");
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(trace.error().where, "/nonexistent/trace.json");
}

TEST(TraceJson, SurvivesMutatedFiles) {
  RandomStream random(4);
  Trace trace = random_trace(random);
  while (trace.activities.size() < 10 || trace.phases.empty()) trace = random_trace(random);
  const std::string valid = write(trace);
  constexpr std::string_view kTokens[] = {"{",    "}",    "[",     "]",
                                          ",",    ":",    "\"",    "\\",
                                          "null", "-",    "1e308", "999999999999999999999",
                                          "true", "\xf0", "\\u"};
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = valid;
    const uint64_t edits = 1 + random.below(3);
    for (uint64_t i = 0; i < edits; ++i) {
      const size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0:
          text[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          text.erase(at, random.below(20));
          break;
        case 2:
          text.insert(at, kTokens[random.below(std::size(kTokens))]);
          break;
        default:
          text[at] = static_cast<char>('0' + random.below(10));
      }
    }
    const Result<Trace> mutated = read(text);
    if (mutated) {
      ++accepted;
    } else {
      ASSERT_EQ(mutated.error().code, ErrorCode::kCorrupt);
      ASSERT_FALSE(mutated.error().message.empty());
    }
  }
  // Both outcomes must occur, or the mutations test nothing.
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 3900);
}

}  // namespace
}  // namespace triptych
