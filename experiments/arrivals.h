// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// When the requests of a workload are submitted: closed loop, Poisson process, or a recorded trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace triptych {

struct ArrivalSpec {
  enum class Kind : uint8_t { kClosed, kPoisson, kTrace };
  Kind kind = Kind::kClosed;
  double rate_per_s = 0;        ///< kPoisson: mean arrivals per second.
  std::filesystem::path trace;  ///< kTrace: see load_arrival_trace().
  double speed = 1;             ///< kTrace: it is replayed this many times faster.
  bool lengths = false;         ///< kTrace: prompt and output lengths come from it too.

  /// "closed", "poisson:4", "trace:azure.csv", "trace:azure.csv,speed=2,lengths".
  [[nodiscard]] std::string label() const;
};

/// What a request is promised; goodput counts those that got all of it.
struct SloSpec {
  std::optional<double> ttft_ms;
  std::optional<double> tpot_ms;
  std::optional<double> e2e_ms;
};

/// One request of a recorded trace.
struct Arrival {
  int64_t arrival_ns = 0;  ///< After the first of the trace.
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> output_tokens;
  int line = 0;  ///< From 1.
};

struct ArrivalTrace {
  std::filesystem::path path;
  std::string hash;               ///< Content hash of the file's bytes.
  std::vector<Arrival> arrivals;  ///< By time, at least one.
};

/// Reads JSONL, one object a line with "timestamp" in ms and optional "input_length" and
/// "output_length" (the format of the Mooncake traces; other keys are skipped), or CSV whose header
/// is TIMESTAMP,ContextTokens,GeneratedTokens with "YYYY-MM-DD HH:MM:SS.fraction" (the format of
/// the Azure LLM inference traces). Lines need not be in order of time. Errors: kNotFound, kIo;
/// kInvalidArgument at `file:line`.
[[nodiscard]] Result<ArrivalTrace> load_arrival_trace(const std::filesystem::path& path);
/// The same from memory; `path` is named in errors, and its extension .csv says which format.
[[nodiscard]] Result<ArrivalTrace> parse_arrival_trace(std::string_view text,
                                                       const std::filesystem::path& path);

/// Sets the arrival time of each request, and, if the spec says so, its lengths: the prompt is cut
/// to that of the trace. `trace` is null unless arrivals.kind is kTrace. Poisson gaps are drawn
/// from `seed`, so that every stack and block sees the same times. Errors: kInvalidArgument when
/// the trace has fewer entries than there are requests, or at `file:line` when an entry has no
/// length or one that exceeds that of the request, or would come after more than a year.
[[nodiscard]] Status schedule_arrivals(const ArrivalSpec& arrivals, const ArrivalTrace* trace,
                                       uint64_t seed, std::span<Request> requests);

}  // namespace triptych
