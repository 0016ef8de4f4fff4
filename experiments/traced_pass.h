// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// traced_pass(): one pass that is recorded, by this program or by an engine of another project.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "db/rows.h"
#include "engine/engine.h"
#include "profiler/trace.h"

namespace triptych {

/// Can a pass of `engine` be recorded?
[[nodiscard]] bool is_traceable(const Engine& engine);

/// Runs one wave of `requests` (as many as run together, so that the steps of the first are those
/// of all), cut to `steps` decode steps, and makes a row of its trace. A file that the engine
/// writes lies in a temporary folder, which is gone afterwards. Errors: those of generate() and
/// make_trace_row(); where the engine writes it, those of generate_to_file(), read_trace_json() and
/// check_written_trace(). Precondition: is_traceable(engine).
[[nodiscard]] Result<db::TraceRow> traced_pass(Engine& engine, std::span<const Request> requests,
                                               int64_t steps, int64_t cell_id);

/// Is this a trace of a pass of `steps` decode steps at most? Errors: kCorrupt if it has more of
/// them, none although there were some, steps that tell no tokens, no record of a device, or device
/// records of which more than half lie outside of its phases, which then are on another clock.
[[nodiscard]] Status check_written_trace(const Trace& trace, int64_t steps);

}  // namespace triptych
