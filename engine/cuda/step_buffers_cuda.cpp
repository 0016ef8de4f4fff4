// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/step_buffers_cuda.h"

namespace triptych {

namespace {

constexpr int64_t kAlignment = 16;  // bytes: the widest load

/// Cuts arrays from a block, one after another.
class Cutter {
 public:
  explicit Cutter(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* const array = reinterpret_cast<T*>(base_ + offset_);
    offset_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return array;
  }
  [[nodiscard]] int64_t offset() const { return offset_; }

 private:
  std::byte* base_;
  int64_t offset_ = 0;
};

}  // namespace

StepBuffers::View StepBuffers::view(std::byte* base) const {
  Cutter cut(base);
  View v{};
  v.tokens = cut.take<int32_t>(limits_.rows);
  v.positions = cut.take<int32_t>(limits_.rows);
  v.row_sequences = cut.take<int32_t>(limits_.rows);
  v.kv_lengths = cut.take<int32_t>(limits_.sequences);
  v.row_starts = cut.take<int32_t>(limits_.sequences + 1);
  v.kv_starts = cut.take<int32_t>(limits_.sequences);
  v.old_lengths = cut.take<int32_t>(limits_.sequences);
  v.sampled_rows = cut.take<int32_t>(limits_.sequences);
  v.sampled_slots = cut.take<int32_t>(limits_.sequences);
  v.sample_keys = cut.take<SampleKey>(limits_.sequences);
  v.tokens_at = cut.take<int32_t>(1);
  v.old_parts = cut.take<const void*>(limits_.old_parts * limits_.sequences);
  v.page_table = cut.take<int32_t>(limits_.sequences * limits_.pages_per_sequence);
  return v;
}

StepBuffers::StepBuffers(const StepLimits& limits)
    : limits_(limits), stream_(make_stream()), before_(make_marker()) {
  const View measured = view(nullptr);
  table_offset_ = reinterpret_cast<intptr_t>(measured.page_table);
  bytes_ = table_offset_ + table_bytes(limits.sequences);
  for (Copies& copies : copies_) {
    copies.device_memory = DeviceBuffer<std::byte>(static_cast<size_t>(bytes_));
    copies.device = view(copies.device_memory.data());
    copies.host_memory = PinnedBuffer<std::byte>(static_cast<size_t>(bytes_));
    copies.host = view(copies.host_memory.data());
    copies.arrived = make_marker();
  }
}

int64_t StepBuffers::table_bytes(int64_t sequences) const {
  return sequences * limits_.pages_per_sequence * static_cast<int64_t>(sizeof(int32_t));
}

const StepBuffers::View& StepBuffers::begin() {
  current_ = 1 - current_;
  TRIPTYCH_CUDA_CHECK(cudaEventSynchronize(copies_[current_].arrived.get()));
  return copies_[current_].host;
}

void StepBuffers::commit(int64_t sequences, cudaStream_t stream) {
  const Copies& copies = copies_[current_];
  // before_ is from the last commit: when it has come, the step before last, which read this copy,
  // has ended.
  TRIPTYCH_CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), before_.get()));
  TRIPTYCH_CUDA_CHECK(cudaMemcpyAsync(copies.device_memory.data(), copies.host_memory.data(),
                                      static_cast<size_t>(table_offset_ + table_bytes(sequences)),
                                      cudaMemcpyHostToDevice, stream_.get()));
  TRIPTYCH_CUDA_CHECK(cudaEventRecord(copies.arrived.get(), stream_.get()));
  TRIPTYCH_CUDA_CHECK(cudaEventRecord(before_.get(), stream));
  TRIPTYCH_CUDA_CHECK(cudaStreamWaitEvent(stream, copies.arrived.get()));
}

}  // namespace triptych
