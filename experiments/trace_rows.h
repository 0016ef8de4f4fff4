// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// From a trace and its attribution to the row that the database keeps.
#pragma once

#include <cstdint>

#include "attribution/classify.h"
#include "base/result.h"
#include "db/rows.h"
#include "profiler/trace.h"

namespace triptych {

/// Divides the decode steps of `trace` among the time classes: one row for every class and device,
/// zeros included, that sum to window_ns exactly. A trace that dropped records is stored without
/// classes, because what is missing cannot be told from waiting. Errors: those of attribute().
[[nodiscard]] Result<db::TraceRow> make_trace_row(int64_t cell_id, const Trace& trace,
                                                  const Classifier& classifier);

/// "compute", "coordination", "memcpy" or "unclassified".
[[nodiscard]] std::string_view time_group(TimeClass time_class);

}  // namespace triptych
