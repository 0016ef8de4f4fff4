// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// OpTimer: when operations ran on the device, by CUDA events around them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/cuda_handles.h"
#include "profiler/phase.h"

namespace triptych {

/// Device times are placed on the host's clock by one event whose host time is known; the two
/// clocks drift by less than a microsecond in the seconds of a traced pass. An event costs the
/// device about as much as an empty kernel, so what is measured is longer than an untraced pass.
class OpTimer {
 public:
  /// Waits for `stream`. Throws DeviceError.
  explicit OpTimer(cudaStream_t stream);

  void begin();
  /// Of the operation since begin(). `bytes` as in OperationRecord.
  void end(ActivityKind kind, std::string_view name, int64_t bytes);
  /// Reports what has ended; what is still under way waits for the next call.
  void report(ActivitySink& sink);

 private:
  struct Op {
    size_t start, stop;  // indices of events_
    ActivityKind kind;
    std::string name;
    int64_t bytes;
  };
  size_t record();
  [[nodiscard]] int64_t time_ns(size_t event) const;
  [[nodiscard]] bool has_ended(const Op& op) const;

  cudaStream_t stream_;
  Event anchor_;
  int64_t anchor_ns_ = 0;
  std::vector<Event> events_;  // used anew once everything is reported
  size_t used_ = 0;
  size_t started_ = 0;
  std::vector<Op> ops_;
};

}  // namespace triptych
