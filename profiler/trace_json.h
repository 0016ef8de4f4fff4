// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Chrome JSON traces: written for Perfetto and chrome://tracing, read back without loss.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "base/result.h"
#include "profiler/trace.h"

namespace triptych {

/// Writes the Kineto dialect of Chrome JSON: `ts` and `dur` in us with three decimals (exact ns),
/// `baseTimeNanoseconds` added so that times start near 0, phases as `user_annotation`.
void write_trace_json(const Trace& trace, std::ostream& out);

/// Reads a Chrome or Kineto JSON trace (plain text). Timestamps are parsed as decimal text, so ns
/// survive. Errors: kCorrupt with the byte offset; kNotFound, kIo.
[[nodiscard]] Result<Trace> read_trace_json(const std::filesystem::path& path);

}  // namespace triptych
