// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/breakdown.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "base/random.h"
#include "profiler/trace_json.h"
#include "tests/support/golden.h"

namespace triptych {
namespace {

constexpr int64_t kRange = 300;  // ns of a random trace: small, so that records collide

// Names are class names, so that a random trace meets every class; "mystery" meets no rule.
const Classifier& class_name_rules() {
  static const Classifier rules = [] {
    std::string yaml;
    for (const std::string_view name : kTimeClassNames) {
      const std::string text(name);
      yaml += "- {class: " + text + ", name: '^" + text + "$'}\n";
    }
    return Classifier::parse(yaml, "test").value();
  }();
  return rules;
}

int64_t length(const Activity& activity) { return activity.end_ns - activity.start_ns; }

// Phases with random gaps; none, sometimes; contiguous if `tile`.
std::vector<Phase> random_phases(RandomStream& random, bool tile) {
  std::vector<Phase> phases;
  auto now = static_cast<int64_t>(random.below(60));
  const uint64_t count = random.below(6);
  for (uint64_t i = 0; i < count; ++i) {
    const auto duration = static_cast<int64_t>(random.below(50));
    phases.push_back({i == 0 ? PhaseKind::kPrefill : PhaseKind::kDecode, static_cast<int64_t>(i),
                      static_cast<int64_t>(random.below(4)), now, now + duration});
    now += duration + (tile ? 0 : static_cast<int64_t>(random.below(15)));
  }
  return phases;
}

Trace random_trace(RandomStream& random, bool tile = false) {
  Trace trace;
  trace.phases = random_phases(random, tile);
  const uint64_t count = 1 + random.below(40);
  const uint64_t devices = 1 + random.below(3);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t pick = random.below(kNumTimeClasses + 1);
    Activity activity;
    activity.name_id =
        trace.names.intern(pick < kNumTimeClasses ? kTimeClassNames[pick] : "mystery");
    activity.device_id = static_cast<int32_t>(random.below(devices));
    activity.stream_id = static_cast<int32_t>(random.below(3));
    activity.start_ns = 1 + static_cast<int64_t>(random.below(kRange - 50));
    activity.end_ns = activity.start_ns + static_cast<int64_t>(random.below(49));
    trace.activities.push_back(activity);
  }
  return trace;
}

// The class of every ns of one device, by looking at every record: slow and plainly right.
std::vector<TimeClass> classes_by_ns(const Trace& trace, int32_t device_id) {
  std::vector<TimeClass> owner(kRange, TimeClass::kHostWait);
  for (const Phase& phase : trace.phases) {
    for (int64_t t = phase.start_ns; t < phase.end_ns; ++t) owner[t] = TimeClass::kLaunchGap;
  }
  std::vector<bool> recorded(kRange);
  for (const Activity& activity : trace.activities) {
    if (activity.device_id != device_id) continue;
    const TimeClass own =
        *class_name_rules().classify(activity.kind, trace.names[activity.name_id]);
    for (int64_t t = activity.start_ns; t < activity.end_ns; ++t) {
      owner[t] = recorded[t] ? std::min(owner[t], own) : own;
      recorded[t] = true;
    }
  }
  return owner;
}

ClassTimes count(const std::vector<TimeClass>& owner, int64_t start_ns, int64_t end_ns) {
  ClassTimes times{};
  for (int64_t t = start_ns; t < end_ns; ++t) ++times[static_cast<size_t>(owner[t])];
  return times;
}

int64_t sum(const ClassTimes& times) {
  int64_t total = 0;
  for (const int64_t time : times) total += time;
  return total;
}

Attribution attribute_ok(const Trace& trace) {
  Result<Attribution> result = attribute(trace, class_name_rules());
  EXPECT_TRUE(result) << result.error().to_string();
  return *std::move(result);
}

// Equal rows, with times of `b` divided by `scale` after `shift_ns` was taken off.
void expect_same_rows(const Attribution& a, const Attribution& b, int64_t scale = 1,
                      int64_t shift_ns = 0) {
  const auto same = [&](const auto& x, const auto& y) {
    EXPECT_EQ(x.device_id, y.device_id);
    EXPECT_EQ(x.start_ns * scale + shift_ns, y.start_ns);
    EXPECT_EQ(x.end_ns * scale + shift_ns, y.end_ns);
    for (size_t c = 0; c < kNumTimeClasses; ++c) {
      EXPECT_EQ(x.times[c] * scale, y.times[c]) << kTimeClassNames[c];
    }
  };
  ASSERT_EQ(a.devices.size(), b.devices.size());
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.devices.size(); ++i) same(a.devices[i], b.devices[i]);
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].phase.index, b.steps[i].phase.index);
    same(a.steps[i], b.steps[i]);
  }
}

constexpr int kRounds = 1000;

TEST(BreakdownLaws, ClassesPartitionEveryWindowAsABitmapDoes) {
  RandomStream random(1);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Trace trace = random_trace(random);
    const Attribution result = attribute_ok(trace);
    for (const DeviceBreakdown& device : result.devices) {
      EXPECT_EQ(sum(device.times), device.end_ns - device.start_ns);
      const auto owner = classes_by_ns(trace, device.device_id);
      EXPECT_EQ(device.times, count(owner, device.start_ns, device.end_ns));
    }
    ASSERT_EQ(result.steps.size(), trace.phases.size() * result.devices.size());
    for (size_t i = 0; i < result.steps.size(); ++i) {
      const StepBreakdown& step = result.steps[i];
      const size_t p = i / result.devices.size();
      const bool last = p + 1 == trace.phases.size();
      EXPECT_EQ(step.device_id, result.devices[i % result.devices.size()].device_id);
      EXPECT_EQ(step.phase.index, trace.phases[p].index);
      EXPECT_EQ(step.start_ns, trace.phases[p].start_ns);
      EXPECT_EQ(step.end_ns, last ? trace.phases[p].end_ns : trace.phases[p + 1].start_ns);
      EXPECT_EQ(sum(step.times), step.end_ns - step.start_ns);
      const auto owner = classes_by_ns(trace, step.device_id);
      EXPECT_EQ(step.times, count(owner, step.start_ns, step.end_ns));
    }
  }
}

TEST(BreakdownLaws, StepsPrologueAndEpilogueSumToTheDevice) {
  RandomStream random(2);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Trace trace = random_trace(random, /*tile=*/true);
    if (trace.phases.empty()) continue;
    const Attribution result = attribute_ok(trace);
    for (const DeviceBreakdown& device : result.devices) {
      const auto owner = classes_by_ns(trace, device.device_id);
      ClassTimes total = count(owner, device.start_ns, trace.phases.front().start_ns);
      const ClassTimes epilogue = count(owner, trace.phases.back().end_ns, device.end_ns);
      for (size_t c = 0; c < kNumTimeClasses; ++c) {
        total[c] += epilogue[c];
        for (const StepBreakdown& step : result.steps) {
          if (step.device_id == device.device_id) total[c] += step.times[c];
        }
      }
      EXPECT_EQ(total, device.times);
    }
  }
}

TEST(BreakdownLaws, OrderOfRecordsDoesNotMatter) {
  RandomStream random(3);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    Trace trace = random_trace(random);
    const Attribution before = attribute_ok(trace);
    std::shuffle(trace.activities.begin(), trace.activities.end(), random);
    std::shuffle(trace.phases.begin(), trace.phases.end(), random);
    const Attribution after = attribute_ok(trace);
    expect_same_rows(before, after);
    EXPECT_EQ(before.unclassified, after.unclassified);
  }
}

TEST(BreakdownLaws, ShiftingTimeChangesNothing) {
  RandomStream random(4);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    Trace trace = random_trace(random);
    const Attribution before = attribute_ok(trace);
    // Up to epoch time in ns, which a double could not hold.
    const auto shift = static_cast<int64_t>(random.below(1'800'000'000'000'000'000));
    for (Activity& activity : trace.activities) {
      activity.start_ns += shift;
      activity.end_ns += shift;
    }
    for (Phase& phase : trace.phases) {
      phase.start_ns += shift;
      phase.end_ns += shift;
    }
    expect_same_rows(before, attribute_ok(trace), 1, shift);
  }
}

TEST(BreakdownLaws, ScalingTimeScalesTheClasses) {
  RandomStream random(5);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    Trace trace = random_trace(random);
    const Attribution before = attribute_ok(trace);
    const auto scale = 2 + static_cast<int64_t>(random.below(1'000'000));
    for (Activity& activity : trace.activities) {
      activity.start_ns *= scale;
      activity.end_ns *= scale;
    }
    for (Phase& phase : trace.phases) {
      phase.start_ns *= scale;
      phase.end_ns *= scale;
    }
    expect_same_rows(before, attribute_ok(trace), scale);
  }
}

TEST(BreakdownLaws, ARecordUnderOneOfHigherPriorityChangesNothing) {
  RandomStream random(6);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    Trace trace = random_trace(random);
    const Attribution before = attribute_ok(trace);
    Activity hidden = trace.activities[random.below(trace.activities.size())];
    const auto own =
        static_cast<size_t>(*class_name_rules().classify(hidden.kind, trace.names[hidden.name_id]));
    const size_t lower = own + random.below(kNumTimeClasses - own);
    if (lower == static_cast<size_t>(TimeClass::kUnclassified)) continue;  // would be listed
    hidden.name_id = trace.names.intern(kTimeClassNames[lower]);
    if (length(hidden) > 0) {
      hidden.start_ns += static_cast<int64_t>(random.below(length(hidden)));
      hidden.end_ns -= static_cast<int64_t>(random.below(length(hidden)));
    }
    trace.activities.push_back(hidden);
    expect_same_rows(before, attribute_ok(trace));
  }
}

TEST(BreakdownLaws, TwoAdjacentRecordsOfOneClassAreOne) {
  RandomStream random(7);
  for (int round = 0; round < kRounds && !testing::Test::HasFailure(); ++round) {
    Trace trace = random_trace(random);
    const Attribution before = attribute_ok(trace);
    Activity& whole = trace.activities[random.below(trace.activities.size())];
    if (length(whole) < 2) continue;
    Activity rest = whole;
    whole.end_ns = rest.start_ns =
        whole.start_ns + 1 + static_cast<int64_t>(random.below(length(whole) - 1));
    trace.activities.push_back(rest);
    expect_same_rows(before, attribute_ok(trace));
  }
}

Trace trace_with(std::initializer_list<Activity> activities) {
  Trace trace;
  for (const std::string_view name : kTimeClassNames) trace.names.intern(name);
  trace.activities = activities;
  return trace;
}

constexpr uint32_t id(TimeClass c) { return static_cast<uint32_t>(c); }

TEST(Breakdown, EmptyTraceGivesNoRows) {
  Trace trace;
  trace.phases = {{PhaseKind::kDecode, 0, 1, 0, 10}};
  const Attribution result = attribute_ok(trace);
  EXPECT_TRUE(result.devices.empty());
  EXPECT_TRUE(result.steps.empty());
  EXPECT_EQ(result.decode_total().steps, 0);
}

TEST(Breakdown, HostRecordsMakeNoDevice) {
  Trace trace = trace_with(
      {{.kind = ActivityKind::kRuntime, .device_id = 4515, .start_ns = 10, .end_ns = 20}});
  Result<Attribution> result = attribute(trace, Classifier::built_in());
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->devices.empty());
}

TEST(Breakdown, WithoutPhasesTheGapsBelongToTheHost) {
  const Attribution result =
      attribute_ok(trace_with({{.name_id = id(TimeClass::kGemm), .start_ns = 10, .end_ns = 20},
                               {.name_id = id(TimeClass::kSync), .start_ns = 50, .end_ns = 55}}));
  EXPECT_TRUE(result.steps.empty());
  ASSERT_EQ(result.devices.size(), 1u);
  ClassTimes expected{};
  expected[id(TimeClass::kGemm)] = 10;
  expected[id(TimeClass::kSync)] = 5;
  expected[id(TimeClass::kHostWait)] = 30;
  EXPECT_EQ(result.devices[0].times, expected);
}

TEST(Breakdown, RefusesDroppedRecordsUnlessAllowed) {
  Trace trace = trace_with({{.name_id = id(TimeClass::kGemm), .start_ns = 1, .end_ns = 2}});
  trace.quality.dropped = 3;
  trace.source = "t.json";
  const Result<Attribution> refused = attribute(trace, class_name_rules());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(refused.error().to_string(),
            "t.json: 3 records were dropped; a trace with holes cannot be divided");
  const Result<Attribution> allowed = attribute(trace, class_name_rules(), true);
  ASSERT_TRUE(allowed);
  EXPECT_EQ(allowed->quality.dropped, 3);
}

TEST(Breakdown, LeavesOddRecordsOutAndCountsThem) {
  Trace trace = trace_with({{.name_id = id(TimeClass::kGemm), .start_ns = 100, .end_ns = 110},
                            {.name_id = id(TimeClass::kGemm), .start_ns = 0, .end_ns = 0},
                            {.name_id = id(TimeClass::kGemm), .start_ns = 90, .end_ns = 20},
                            {.name_id = id(TimeClass::kNorm), .start_ns = 500, .end_ns = 500}});
  trace.quality.unlinked = 2;
  const Attribution result = attribute_ok(trace);
  ASSERT_EQ(result.devices.size(), 1u);
  EXPECT_EQ(result.devices[0].start_ns, 100);
  EXPECT_EQ(result.devices[0].end_ns, 110);
  EXPECT_EQ(result.quality.zero_time, 1);
  EXPECT_EQ(result.quality.inverted, 1);
  EXPECT_EQ(result.quality.unlinked, 2);
}

TEST(Breakdown, RefusesOverlappingPhases) {
  Trace trace = trace_with({{.name_id = id(TimeClass::kGemm), .start_ns = 1, .end_ns = 2}});
  trace.phases = {{PhaseKind::kDecode, 0, 1, 0, 10}, {PhaseKind::kDecode, 1, 1, 9, 20}};
  const Result<Attribution> result = attribute(trace, class_name_rules());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
}

TEST(Breakdown, RefusesABrokenClock) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  Trace trace =
      trace_with({{.name_id = id(TimeClass::kUnclassified), .start_ns = kMin, .end_ns = kMax},
                  {.name_id = id(TimeClass::kUnclassified), .start_ns = 0, .end_ns = kMax}});
  const Result<Attribution> result = attribute(trace, class_name_rules());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
}

TEST(Breakdown, RefusesMoreDevicesThanItCanSumOver) {
  Trace trace;
  trace.source = "file";
  for (int32_t device = 0; device < 1023; ++device) {
    trace.activities.push_back(
        {.device_id = device, .name_id = trace.names.intern("gemm"), .end_ns = 5});
  }
  EXPECT_TRUE(attribute(trace, Classifier::built_in()).has_value());
  trace.activities.push_back({.device_id = 1023, .end_ns = 5});
  const auto refused = attribute(trace, Classifier::built_in());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().to_string(),
            "file: 1024 devices and 0 phases; at most 1023 devices and 10000000 pairs of both are "
            "divided");
}

TEST(Breakdown, ListsUnclassifiedNamesLongestFirst) {
  Trace trace;
  const uint32_t zeta = trace.names.intern("zeta");
  const uint32_t beta = trace.names.intern("beta");
  const uint32_t alpha = trace.names.intern("alpha");
  trace.activities = {{.name_id = zeta, .start_ns = 0, .end_ns = 10},
                      {.name_id = beta, .start_ns = 5, .end_ns = 12},
                      {.name_id = zeta, .start_ns = 6, .end_ns = 9},
                      {.name_id = alpha, .start_ns = 20, .end_ns = 27}};
  const Attribution result = attribute_ok(trace);
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"zeta", 13}, {"alpha", 7}, {"beta", 7}};
  EXPECT_EQ(result.unclassified, expected);
}

TEST(Breakdown, DecodeTotalCountsDecodeRowsOfAllDevices) {
  Trace trace =
      trace_with({{.name_id = id(TimeClass::kGemm), .start_ns = 0, .end_ns = 5},
                  {.name_id = id(TimeClass::kGemm), .start_ns = 12, .end_ns = 16},
                  {.device_id = 1, .name_id = id(TimeClass::kSync), .start_ns = 15, .end_ns = 35}});
  trace.phases = {{PhaseKind::kPrefill, 0, 7, 0, 10},
                  {PhaseKind::kDecode, 0, 2, 10, 20},
                  {PhaseKind::kDecode, 1, 2, 24, 40}};
  const Attribution::DecodeTotal total = attribute_ok(trace).decode_total();
  EXPECT_EQ(total.steps, 4);
  EXPECT_EQ(total.tokens, 8);
  EXPECT_EQ(total.window_ns, 2 * 30);
  ClassTimes expected{};
  expected[id(TimeClass::kGemm)] = 4;
  expected[id(TimeClass::kSync)] = 20;
  // Device 0: [10,12) [16,20) [24,40) in phases, [20,24) between. Device 1: [10,15) [35,40).
  expected[id(TimeClass::kLaunchGap)] = 22 + 10;
  expected[id(TimeClass::kHostWait)] = 4;
  EXPECT_EQ(total.times, expected);
}

TEST(Breakdown, DividesOrRefusesWhateverTheReaderAccepts) {
  // Mutated numbers and categories of a good file; attribute() itself checks every partition.
  std::ifstream in(golden_dir() / "attribution" / "two_gpus_overlap" / "trace.json");
  const std::string valid(std::istreambuf_iterator<char>(in), {});
  ASSERT_FALSE(valid.empty());
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) /
                                     ("triptych_mutated_" + std::to_string(::getpid()) + ".json");
  RandomStream random(8);
  int divided = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = valid;
    for (uint64_t edits = 1 + random.below(8); edits > 0; --edits) {
      char& c = text[random.below(text.size())];
      if (c >= '0' && c <= '9') c = static_cast<char>('0' + random.below(10));
      if (c == '.') c = random.below(2) == 0 ? '0' : 'e';
      if (c == ' ') c = random.below(2) == 0 ? '-' : ' ';
    }
    std::ofstream(file, std::ios::binary) << text;
    const Result<Trace> trace = read_trace_json(file);
    std::filesystem::remove(file);  // ext4 syncs a file that is truncated and written again
    if (trace && attribute(*trace, class_name_rules(), /*allow_dropped=*/true)) ++divided;
  }
  EXPECT_GT(divided, 100);   // the mutations leave much intact
  EXPECT_LT(divided, 2000);  // and break much
}

std::string to_csv(const Attribution& result) {
  std::ostringstream csv;
  csv << "row,device,phase,index,tokens,start_ns,end_ns";
  for (const std::string_view name : kTimeClassNames) csv << ',' << name;
  const auto times = [&csv](const auto& row) {
    csv << ',' << row.start_ns << ',' << row.end_ns;
    for (const int64_t time : row.times) csv << ',' << time;
  };
  for (const DeviceBreakdown& device : result.devices) {
    csv << "\ndevice," << device.device_id << ",,,";
    times(device);
  }
  for (const StepBreakdown& step : result.steps) {
    csv << "\nstep," << step.device_id << ','
        << (step.phase.kind == PhaseKind::kPrefill ? "prefill" : "decode") << ','
        << step.phase.index << ',' << step.phase.tokens;
    times(step);
  }
  csv << "\n\ndropped,zero_time,inverted,unlinked\n"
      << result.quality.dropped << ',' << result.quality.zero_time << ',' << result.quality.inverted
      << ',' << result.quality.unlinked << "\n\nunclassified_ns,name\n";
  for (const auto& [name, time] : result.unclassified) csv << time << ',' << name << '\n';
  return csv.str();
}

class BreakdownGolden : public testing::TestWithParam<const char*> {};

TEST_P(BreakdownGolden, TraceToClasses) {
  const std::filesystem::path folder = std::filesystem::path("attribution") / GetParam();
  const Result<Trace> trace = read_trace_json(golden_dir() / folder / "trace.json");
  ASSERT_TRUE(trace) << trace.error().to_string();
  const Result<Attribution> result = attribute(*trace, Classifier::built_in());
  ASSERT_TRUE(result) << result.error().to_string();
  expect_golden(folder / "expected.csv", to_csv(*result));
}

INSTANTIATE_TEST_SUITE_P(Cases, BreakdownGolden,
                         testing::Values("cpu_decode", "two_gpus_overlap", "kineto_bare_array",
                                         "odd_records"),
                         [](const auto& golden) { return std::string(golden.param); });

}  // namespace
}  // namespace triptych
