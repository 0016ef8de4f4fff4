// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Chrome JSON as a stream of events: the syntax half of reading a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace triptych {

/// One object of `traceEvents`, reduced to the fields that traces of devices need. A field that is
/// absent or of another type is empty.
struct ChromeEvent {
  char phase = '\0';  ///< `ph`: 'X' complete, 'M' metadata, ...
  std::string category;
  std::string name;
  std::optional<int64_t> ts_ns;  ///< Relative to ChromeHeader::base_time_ns.
  std::optional<int64_t> dur_ns;
  std::optional<int64_t> process;
  std::optional<int64_t> thread;
  // From `args`:
  std::optional<int64_t> device;
  std::optional<int64_t> stream;
  std::optional<uint64_t> correlation;
  std::optional<int64_t> bytes;
  std::string kind;
  std::optional<int64_t> index;
  std::optional<int64_t> tokens;
  std::optional<int64_t>
      start_ns;  ///< `raw_start_ns`, `raw_end_ns`: absolute times of a record that cannot be drawn.
  std::optional<int64_t> end_ns;
};

/// Top-level keys. They may stand after the events.
struct ChromeHeader {
  int64_t base_time_ns = 0;
  std::optional<int64_t> dropped_records;
  std::optional<int64_t> unlinked_records;
  std::string clock;
  std::string source;
};

/// Calls `visit` for each event of `json`: an object with `traceEvents`, or a bare array. Memory
/// does not grow with the number of events. Errors: kCorrupt with the byte offset, in `where`.
[[nodiscard]] Result<ChromeHeader> read_chrome_events(
    std::string_view json, std::string_view where,
    const std::function<void(const ChromeEvent&)>& visit);

/// Decimal text in us to integer ns, rounded half away from zero; empty if it does not fit. Never
/// through a double, whose 53 bits are too few for epoch time in ns (61 bits).
[[nodiscard]] std::optional<int64_t> us_text_to_ns(std::string_view text);

}  // namespace triptych
