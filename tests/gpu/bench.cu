// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych_gpu_bench [CASE...]: what the kernels reach beside what the device can read, copy and
// multiply in the same run. Buffers rotate over several times the L2 cache, so that every call
// reads from memory.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "kernels/common/half.h"
#include "kernels/cuda/ceilings.h"
#include "kernels/cuda/graph.h"
#include "tests/gpu/bench.h"

namespace triptych::bench {
namespace {

constexpr int kRepeats = 31;
constexpr size_t kPoolBytes = size_t{6} << 30;  // far above the L2 cache of any device
constexpr int64_t kL2Multiple = 4;              // bytes that rotate, in units of the L2 cache

std::vector<std::pair<const char*, Case>>& cases() {
  static std::vector<std::pair<const char*, Case>> all;
  return all;
}

// One tile of random numbers over and over: values matter to the power that a product draws, not
// where they repeat.
void fill_with_random_halves(const DeviceBuffer<std::byte>& pool) {
  std::vector<Half> tile(size_t{1} << 22);
  for (size_t i = 0; i < tile.size(); ++i) {
    tile[i] = half_from_float(static_cast<float>(2.0 * random_uniform(1, i) - 1.0));
  }
  const size_t bytes = tile.size() * sizeof(Half);
  for (size_t at = 0; at < pool.size(); at += bytes) {
    TRIPTYCH_CUDA_CHECK(cudaMemcpy(pool.data() + at, tile.data(), std::min(bytes, pool.size() - at),
                                   cudaMemcpyHostToDevice));
  }
}

int run(int argc, char** argv) {
  const auto devices = query_devices();
  if (!devices.has_value()) {
    std::fprintf(stderr, "triptych_gpu_bench: %s\n", devices.error().message.c_str());
    return 3;
  }
  for (int i = 1; i < argc; ++i) {
    const bool known = std::any_of(cases().begin(), cases().end(), [&](const auto& entry) {
      return std::strcmp(entry.first, argv[i]) == 0;
    });
    if (known) continue;
    std::fprintf(stderr, "triptych_gpu_bench: no case '%s', expected some of:", argv[i]);
    for (const auto& [name, function] : cases()) std::fprintf(stderr, " %s", name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  Bench bench(devices->front());
  for (const auto& [name, function] : cases()) {
    const bool wanted = argc == 1 || std::any_of(argv + 1, argv + argc, [&](const char* arg) {
                          return std::strcmp(arg, name) == 0;
                        });
    if (wanted) function(bench);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int add_case(const char* name, Case run) {
  cases().emplace_back(name, run);
  return static_cast<int>(cases().size());
}

Times measure(cudaStream_t stream, int64_t calls, const std::function<void(cudaStream_t)>& record) {
  const GraphExec graph = capture_graph(stream, record);
  const Event start = make_event();
  const Event stop = make_event();
  std::vector<double> us;
  for (int i = -3; i < kRepeats; ++i) {  // three warm-ups: clocks rise, pages are touched
    TRIPTYCH_CUDA_CHECK(cudaEventRecord(start.get(), stream));
    TRIPTYCH_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream));
    TRIPTYCH_CUDA_CHECK(cudaEventRecord(stop.get(), stream));
    TRIPTYCH_CUDA_CHECK(cudaEventSynchronize(stop.get()));
    float ms = 0;
    TRIPTYCH_CUDA_CHECK(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    if (i >= 0) us.push_back(1e3 * ms / static_cast<double>(calls));
  }
  std::sort(us.begin(), us.end());
  return {us[kRepeats / 2], us[kRepeats / 10], us[kRepeats - 1 - kRepeats / 10]};
}

Bench::Bench(const DeviceInfo& device)
    : device_(device), stream_(make_stream()), pool_(kPoolBytes) {
  fill_with_random_halves(pool_);
  measure_ceilings();
}

void Bench::measure_ceilings() {
  const CudaCeilings ceilings = measure_cuda_ceilings();
  read_ = ceilings.read_bytes_per_s;
  copy_ = ceilings.copy_bytes_per_s;
  f16_ = ceilings.f16_flops_per_s;
  std::printf("%s\nread %.0f GB/s, copy (read + write) %.0f GB/s, f16 product %.0f Tflop/s\n\n",
              device_.to_string().c_str(), read_ / 1e9, copy_ / 1e9, f16_ / 1e12);
  std::printf("%-28s %-34s %-30s %8s %9s %7s\n", "kernel", "shape", "us a call [p10, p90]", "GB/s",
              "Tflop/s", "x floor");
}

int64_t Bench::rotation(int64_t set_bytes) const {
  constexpr int64_t kMinCalls = 20;  // a graph replay is then long against its start
  const int64_t wanted = std::max(kL2Multiple * device_.l2_bytes / set_bytes + 1, kMinCalls);
  return std::max<int64_t>(1, std::min(wanted, pool_bytes() / set_bytes));
}

void Bench::row(const std::string& name, const std::string& shape, const KernelCost& cost,
                int64_t calls, const std::function<void(int64_t, cudaStream_t)>& call) {
  const Times times = measure(stream_.get(), calls, [&](cudaStream_t stream) {
    for (int64_t i = 0; i < calls; ++i) call(i, stream);
  });
  const double bytes = static_cast<double>(cost.bytes());
  const double flops = static_cast<double>(cost.flops);
  const double floor_us = 1e6 * std::max(bytes / read_, flops / f16_);
  char text[64];
  std::snprintf(text, sizeof text, "%.2f [%.2f, %.2f]", times.median_us, times.low_us,
                times.high_us);
  std::printf("%-28s %-34s %-30s %8.0f %9.1f %7.3f\n", name.c_str(), shape.c_str(), text,
              bytes / times.median_us / 1e3, flops / times.median_us / 1e6,
              times.median_us / floor_us);
  std::fflush(stdout);  // a case that fails later takes no row along
}

}  // namespace triptych::bench

int main(int argc, char** argv) {
  try {
    return triptych::bench::run(argc, argv);
  } catch (const triptych::DeviceError& error) {
    std::fprintf(stderr, "triptych_gpu_bench: %s\n", error.what());
    return 1;
  }
}
