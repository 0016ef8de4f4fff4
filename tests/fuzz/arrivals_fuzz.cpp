// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Fuzz target: a recorded trace of arrivals, as CSV if it starts like one, and its replay. Times
// never run backwards.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "experiments/arrivals.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace triptych;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = parse_arrival_trace(text, text.starts_with('T') ? "t.csv" : "t.jsonl");
  if (!trace) return 0;
  TRIPTYCH_CHECK(!trace->arrivals.empty() && trace->arrivals.front().arrival_ns == 0,
                 "a trace that does not start at 0");
  for (const double speed : {1.0, 1e-6, 1e6}) {  // the ends of what a spec may say
    const ArrivalSpec spec{
        .kind = ArrivalSpec::Kind::kTrace, .trace = "t", .speed = speed, .lengths = true};
    std::vector<Request> requests(trace->arrivals.size());
    for (Request& request : requests) {
      request.prompt.resize(64);
      request.max_new_tokens = 64;
    }
    if (!schedule_arrivals(spec, &*trace, 1, requests)) continue;
    TRIPTYCH_CHECK(std::is_sorted(requests.begin(), requests.end(),
                                  [](const Request& a, const Request& b) {
                                    return a.arrival_ns < b.arrival_ns;
                                  }) &&
                       requests.front().arrival_ns >= 0,
                   "arrivals that run backwards");
    for (const Request& request : requests) {
      TRIPTYCH_CHECK(!request.prompt.empty() && request.max_new_tokens > 0, "an empty request");
    }
  }
  return 0;
}
