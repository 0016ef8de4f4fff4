// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Benchmarks of CUDA kernels: time of a call in a CUDA graph of many, beside the device's ceilings
// measured in the same run. A file bench_<op>.cu adds its cases with TRIPTYCH_BENCH.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/cuda_check.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/cost.h"
#include "kernels/device_info.h"

namespace triptych::bench {

/// Of one call: median and 10th and 90th percentile over graph replays.
struct Times {
  double median_us = 0, low_us = 0, high_us = 0;
};

/// What one call of the graph that `record(stream)` fills costs, divided by `calls`.
[[nodiscard]] Times measure(cudaStream_t stream, int64_t calls,
                            const std::function<void(cudaStream_t)>& record);

/// What the cases of a run share.
class Bench {
 public:
  explicit Bench(const DeviceInfo& device);

  /// Calls call(i, stream) for i in [0, calls) in one graph and prints a row: name, shape, us a
  /// call, rates, and the time as a multiple of the floor max(bytes / read ceiling, flops / f16
  /// ceiling).
  void row(const std::string& name, const std::string& shape, const KernelCost& cost, int64_t calls,
           const std::function<void(int64_t, cudaStream_t)>& call);

  /// How many sets of `set_bytes` must rotate so that every call reads from memory and not from L2;
  /// at most what fits the pool.
  [[nodiscard]] int64_t rotation(int64_t set_bytes) const;
  /// Random f16 in [-1, 1), pool_bytes() of them; cases cut their operands from it.
  [[nodiscard]] std::byte* pool() const { return pool_.data(); }
  [[nodiscard]] int64_t pool_bytes() const { return static_cast<int64_t>(pool_.size()); }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  [[nodiscard]] const DeviceInfo& device() const { return device_; }
  [[nodiscard]] double read_bytes_per_s() const { return read_; }

 private:
  void measure_ceilings();

  DeviceInfo device_;
  Stream stream_;
  DeviceBuffer<std::byte> pool_;
  double read_ = 0;  // bytes/s
  double copy_ = 0;
  double f16_ = 0;  // flop/s of a large cuBLASLt product
};

template <class V>
DeviceBuffer<V> upload(const std::vector<V>& values) {
  DeviceBuffer<V> buffer(values.size());
  TRIPTYCH_CUDA_CHECK(
      cudaMemcpy(buffer.data(), values.data(), buffer.size_bytes(), cudaMemcpyHostToDevice));
  return buffer;
}

using Case = void (*)(Bench&);
/// Adds a case to those that the program runs; the value is of no use.
int add_case(const char* name, Case run);

}  // namespace triptych::bench

/// TRIPTYCH_BENCH(rms_norm) { bench.row(...); }  The program's arguments choose cases by name.
#define TRIPTYCH_BENCH(name)                                                              \
  static void bench_##name(::triptych::bench::Bench& bench);                              \
  static const int bench_added_##name = ::triptych::bench::add_case(#name, bench_##name); \
  static void bench_##name([[maybe_unused]] ::triptych::bench::Bench& bench)
