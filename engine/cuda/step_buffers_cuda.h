// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// StepBuffers: what the kernels of a step read about it, copied to the device in one piece while
// the step before still runs.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "engine/step.h"
#include "kernels/common/cuda_handles.h"

namespace triptych {

/// Sizes of the largest step.
struct StepLimits {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t pages_per_sequence = 0;  ///< 0: a contiguous cache.
  int64_t old_parts = 0;           ///< Buffers that a sequence of a contiguous cache has.
};

/// Two copies on the host and two on the device, which steps use in turn: a step is prepared and
/// copied while the one before it runs. The device's are at fixed addresses, so that graphs may
/// read them: a graph for each.
class StepBuffers {
 public:
  /// Throws DeviceError.
  explicit StepBuffers(const StepLimits& limits);

  /// All in device memory; [rows] unless said.
  struct View {
    int32_t* tokens;
    int32_t* positions;
    int32_t* row_sequences;  ///< -1: a padding row.
    int32_t* kv_lengths;     ///< [sequences]; 0: a padding row.
    int32_t* row_starts;     ///< [sequences + 1]
    int32_t* kv_starts;      ///< [sequences]; contiguous caches.
    int32_t* old_lengths;    ///< [sequences]; contiguous caches.
    const void** old_parts;  ///< [old_parts, sequences]: where the cached tokens begin.
    int32_t* sampled_rows;   ///< [sampled]
    int32_t* sampled_slots;  ///< [sampled]; -1: a padding row.
    SampleKey* sample_keys;  ///< [sampled]
    int32_t* tokens_at;      ///< [1]: of the step's tokens among those of the steps under way.
    int32_t* page_table;     ///< [sequences, pages_per_sequence]
  };
  static constexpr size_t kCopies = 2;
  /// Of the copy in use.
  [[nodiscard]] const View& device() const { return copies_[current_].device; }
  [[nodiscard]] size_t current() const { return current_; }
  /// For the recording of graphs: makes device() that of this copy, until it is set back.
  void select(size_t copy) { current_ = copy; }
  [[nodiscard]] int64_t max_rows() const { return limits_.rows; }
  /// Entries of each row of old_parts.
  [[nodiscard]] int64_t max_sequences() const { return limits_.sequences; }
  /// The host's copy for the next step; waits until the device has taken what was in it.
  [[nodiscard]] const View& begin();
  /// Copies it to the device, of the page table as many rows as there are sequences; what is issued
  /// to `stream` from now on finds it there. Everything of the step before is issued to it already.
  void commit(int64_t sequences, cudaStream_t stream);

 private:
  [[nodiscard]] View view(std::byte* base) const;
  [[nodiscard]] int64_t table_bytes(int64_t sequences) const;

  StepLimits limits_;
  int64_t bytes_ = 0;  // page table included
  int64_t table_offset_ = 0;
  struct Copies {
    DeviceBuffer<std::byte> device_memory;
    View device;
    PinnedBuffer<std::byte> host_memory;
    View host;
    Event arrived;
  };
  std::array<Copies, kCopies> copies_;
  size_t current_ = 0;
  Stream stream_;  // of the copies
  Event before_;   // everything before the current step
};

}  // namespace triptych
