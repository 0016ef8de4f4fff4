// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/op_timer_cuda.h"

#include "base/units.h"

namespace triptych {

OpTimer::OpTimer(cudaStream_t stream) : stream_(stream), anchor_(make_event()) {
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream_));
  TRIPTYCH_CUDA_CHECK(cudaEventRecord(anchor_.get(), stream_));
  TRIPTYCH_CUDA_CHECK(cudaEventSynchronize(anchor_.get()));
  anchor_ns_ = now_ns();
}

size_t OpTimer::record() {
  if (used_ == events_.size()) events_.push_back(make_event());
  TRIPTYCH_CUDA_CHECK(cudaEventRecord(events_[used_].get(), stream_));
  return used_++;
}

void OpTimer::begin() { started_ = record(); }

void OpTimer::end(ActivityKind kind, std::string_view name, int64_t bytes) {
  const size_t stop = record();
  ops_.push_back({started_, stop, kind, std::string(name), bytes});
}

int64_t OpTimer::time_ns(size_t event) const {
  float ms = 0;
  TRIPTYCH_CUDA_CHECK(cudaEventElapsedTime(&ms, anchor_.get(), events_[event].get()));
  return anchor_ns_ + static_cast<int64_t>(1e6 * static_cast<double>(ms));
}

bool OpTimer::has_ended(const Op& op) const {
  const cudaError_t status = cudaEventQuery(events_[op.stop].get());
  if (status == cudaErrorNotReady) return false;
  TRIPTYCH_CUDA_CHECK(status);
  return true;
}

void OpTimer::report(ActivitySink& sink) {
  size_t ended = 0;
  for (; ended < ops_.size() && has_ended(ops_[ended]); ++ended) {
    const Op& op = ops_[ended];
    sink.record({.kind = op.kind,
                 .name = op.name,
                 .start_ns = time_ns(op.start),
                 .end_ns = time_ns(op.stop),
                 .bytes = op.bytes});
  }
  ops_.erase(ops_.begin(), ops_.begin() + static_cast<int64_t>(ended));
  if (ops_.empty()) used_ = 0;
}

}  // namespace triptych
