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
/// `baseTimeNanoseconds` added so that times start near 0, phases as `user_annotation` on a track
/// of their own. The process of an event is its device, the thread its stream; record quality,
/// clock and source are top-level keys. Bytes of a name that are not UTF-8 become U+FFFD. A record
/// whose times JSON viewers reject (inverted, or never stamped) is drawn with `dur` 0 and keeps
/// its own times in args. Write errors show in the state of `out`.
void write_trace_json(const Trace& trace, std::ostream& out);

/// Reads a Chrome or Kineto JSON trace (plain text): what write_trace_json wrote, or an object
/// with `traceEvents`, or a bare array of events. Complete events ("ph": "X") of the categories
/// kernel, gpu_memcpy, gpu_memset, cuda_sync, cuda_runtime, cuda_driver and collective become
/// activities; our phases and `ProfilerStep#N` become phases (a profiler step counts as decode
/// step N with 0 tokens, because it does not say how many it made). Device and stream are
/// args.device and args.stream, else pid and tid, so a runtime record of Kineto carries the ids of
/// its host process and thread. Timestamps are parsed as decimal text, so ns survive; digits below
/// 1 ns are rounded. The file is streamed, never held as a tree.
/// Other events count as unused_events. A device record without usable times, or a phase of less
/// than 0 or more than 2^24 tokens, counts as quality.dropped. quality.unlinked is the file's own
/// count, else the number of kernels, copies and fills whose correlation has no runtime record.
/// Errors: kCorrupt with the byte offset of a fault, or if phases overlap; kNotFound, kIo.
[[nodiscard]] Result<Trace> read_trace_json(const std::filesystem::path& path);

}  // namespace triptych
