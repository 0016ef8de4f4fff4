// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych_gpu_check: the bandwidth that RMS norm reaches, beside what the device can read and copy
// in the same run. Each time is a median of kRepeats with its 10th and 90th percentile; buffers
// rotate over several times the L2 cache, so that every call reads from memory.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "base/random.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/common/half.h"
#include "kernels/device_info.h"
#include "kernels/rms_norm.h"

namespace triptych {
namespace {

constexpr int kRepeats = 31;
constexpr size_t kPoolBytes = size_t{4} << 30;  // far above the L2 cache of any device
constexpr int64_t kL2Multiple = 4;              // bytes that rotate, in units of the L2 cache
constexpr int64_t kMinCalls = 20;               // a graph replay is then long against its start

void destroy_graph(cudaGraph_t g) noexcept { TRIPTYCH_CUDA_LOG(cudaGraphDestroy(g)); }
void destroy_graph_exec(cudaGraphExec_t g) noexcept { TRIPTYCH_CUDA_LOG(cudaGraphExecDestroy(g)); }
using Graph = UniqueHandle<cudaGraph_t, destroy_graph>;
using GraphExec = UniqueHandle<cudaGraphExec_t, destroy_graph_exec>;

struct Times {
  double median_us, low_us, high_us;
};

// What one call of the graph that `record(stream)` fills costs, divided by `calls`.
template <class Record>
Times measure(cudaStream_t stream, int64_t calls, Record record) {
  TRIPTYCH_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  record(stream);
  cudaGraph_t captured = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaStreamEndCapture(stream, &captured));
  const Graph graph(captured);
  cudaGraphExec_t instance = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaGraphInstantiate(&instance, graph.get(), 0));
  const GraphExec exec(instance);

  const Event start = make_event();
  const Event stop = make_event();
  std::vector<double> us;
  for (int i = -3; i < kRepeats; ++i) {  // three warm-ups: clocks rise, pages are touched
    TRIPTYCH_CUDA_CHECK(cudaEventRecord(start.get(), stream));
    TRIPTYCH_CUDA_CHECK(cudaGraphLaunch(exec.get(), stream));
    TRIPTYCH_CUDA_CHECK(cudaEventRecord(stop.get(), stream));
    TRIPTYCH_CUDA_CHECK(cudaEventSynchronize(stop.get()));
    float ms = 0;
    TRIPTYCH_CUDA_CHECK(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    if (i >= 0) us.push_back(1e3 * ms / static_cast<double>(calls));
  }
  std::sort(us.begin(), us.end());
  return {us[kRepeats / 2], us[kRepeats / 10], us[kRepeats - 1 - kRepeats / 10]};
}

constexpr int kLoadsInFlight = 8;  // 16-byte loads a thread issues before it uses the first

// The loads cannot be dropped: the sum is written if it takes one value of 2^32.
__global__ void __launch_bounds__(1024) read_only(const uint4* in, size_t count, uint32_t* out) {
  uint32_t sum = 0;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  const size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (size_t i = first; i + (kLoadsInFlight - 1) * stride < count; i += kLoadsInFlight * stride) {
    uint4 v[kLoadsInFlight];
#pragma unroll
    for (int k = 0; k < kLoadsInFlight; ++k) v[k] = __ldcs(in + i + k * stride);
#pragma unroll
    for (int k = 0; k < kLoadsInFlight; ++k) sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (sum == 0x9E3779B9u) *out = sum;
}

// A kernel, not cudaMemcpyAsync: as a graph node that one runs on a copy engine, which moved 2.8 of
// the 4.2 TB/s that kernels reach on an H200, and would be no ceiling for a kernel.
// Each block moves one piece and ends: blocks that stay and stride over memory reached 3.9 TB/s.
__global__ void __launch_bounds__(1024) copy(const uint4* in, uint4* out) {
  const size_t first = size_t{blockIdx.x} * kLoadsInFlight * blockDim.x + threadIdx.x;
  uint4 v[kLoadsInFlight];
#pragma unroll
  for (int k = 0; k < kLoadsInFlight; ++k) v[k] = __ldcs(in + first + k * blockDim.x);
#pragma unroll
  for (int k = 0; k < kLoadsInFlight; ++k) __stcs(out + first + k * blockDim.x, v[k]);
}

double gb_per_s(double bytes, const Times& times) { return bytes / times.median_us / 1e3; }

void fill_with_random_halves(const DeviceBuffer<std::byte>& pool) {
  std::vector<Half> tile(size_t{1} << 22);
  for (size_t i = 0; i < tile.size(); ++i) {
    tile[i] = half_from_float(static_cast<float>(random_normal(1, i)));
  }
  const size_t bytes = tile.size() * sizeof(Half);
  for (size_t at = 0; at < pool.size(); at += bytes) {
    TRIPTYCH_CUDA_CHECK(cudaMemcpy(pool.data() + at, tile.data(), std::min(bytes, pool.size() - at),
                                   cudaMemcpyHostToDevice));
  }
}

struct Ceilings {
  double read = 0, copy = 0;  // GB/s
};

Ceilings measure_ceilings(const DeviceInfo& device, const DeviceBuffer<std::byte>& pool,
                          cudaStream_t stream) {
  const DeviceBuffer<uint32_t> sink(1);
  const auto* words = reinterpret_cast<const uint4*>(pool.data());
  // Several passes in one graph, so that the start of a replay does not count.
  constexpr int kPasses = 4;
  // Whole rounds of the grid only: what is counted is what is moved.
  const auto blocks = static_cast<unsigned>(2 * device.num_sms);
  const size_t round = size_t{blocks} * 1024 * kLoadsInFlight;
  const size_t read_words = pool.size() / sizeof(uint4) / round * round;
  const auto copy_blocks =
      static_cast<unsigned>(pool.size() / 2 / sizeof(uint4) / 1024 / kLoadsInFlight);
  const size_t copy_words = size_t{copy_blocks} * 1024 * kLoadsInFlight;
  const Times read = measure(stream, kPasses, [&](cudaStream_t s) {
    for (int pass = 0; pass < kPasses; ++pass) {
      read_only<<<blocks, 1024, 0, s>>>(words, read_words, sink.data());
      TRIPTYCH_CUDA_CHECK(cudaGetLastError());
    }
  });
  auto* const target = reinterpret_cast<uint4*>(pool.data() + pool.size() / 2);
  const Times copied = measure(stream, kPasses, [&](cudaStream_t s) {
    for (int pass = 0; pass < kPasses; ++pass) {
      copy<<<copy_blocks, 1024, 0, s>>>(words, target);
      TRIPTYCH_CUDA_CHECK(cudaGetLastError());
    }
  });
  return {gb_per_s(static_cast<double>(read_words * sizeof(uint4)), read),
          gb_per_s(2.0 * static_cast<double>(copy_words * sizeof(uint4)), copied)};
}

void measure_rms_norm(const DeviceInfo& device, const Ceilings& ceilings, int64_t tokens,
                      int64_t hidden, bool with_residual, const DeviceBuffer<std::byte>& pool,
                      cudaStream_t stream) {
  const int64_t elements = tokens * hidden;
  const int64_t set_bytes = 3 * elements * int64_t{sizeof(__half)};  // x, residual, y
  const int64_t fitting = (static_cast<int64_t>(pool.size()) - hidden * 2) / set_bytes;
  const int64_t wanted = std::max(kL2Multiple * device.l2_bytes / set_bytes + 1, kMinCalls);
  const int64_t calls = std::min(wanted, fitting);
  auto* memory = reinterpret_cast<__half*>(pool.data());
  RmsNormArgs<__half> args{
      .weight = memory, .num_tokens = tokens, .hidden_size = hidden, .eps = 1e-5f};
  const Times times = measure(stream, calls, [&](cudaStream_t s) {
    for (int64_t call = 0; call < calls; ++call) {
      __half* const set = memory + hidden + call * 3 * elements;
      args.x = set;
      args.residual = with_residual ? set + elements : nullptr;
      args.y = set + 2 * elements;
      launch_rms_norm(args, s);
    }
  });
  const double rate = gb_per_s(static_cast<double>(rms_norm_cost(args).bytes()), times);
  std::printf("%6lld  %6lld  %-8s  %8.2f [%.2f, %.2f]  %6.0f  %5.2f  %5.2f\n",
              static_cast<long long>(tokens), static_cast<long long>(hidden),
              with_residual ? "yes" : "no", times.median_us, times.low_us, times.high_us, rate,
              rate / ceilings.copy, rate / ceilings.read);
}

int run() {
  const auto devices = query_devices();
  if (!devices.has_value()) {
    std::fprintf(stderr, "triptych_gpu_check: %s\n", devices.error().message.c_str());
    return 3;
  }
  const DeviceInfo& device = devices->front();
  const Stream stream = make_stream();
  const DeviceBuffer<std::byte> pool(kPoolBytes);
  fill_with_random_halves(pool);
  const Ceilings ceilings = measure_ceilings(device, pool, stream.get());
  std::printf("%s\nread %.0f GB/s, copy (read + write) %.0f GB/s\n\n", device.to_string().c_str(),
              ceilings.read, ceilings.copy);
  std::printf("rms_norm f16, median [p10, p90] of %d\n", kRepeats);
  std::printf("tokens  hidden  residual  us a call             GB/s    /copy  /read\n");
  for (const int64_t hidden : {4096, 8192, 16384}) {
    for (const int64_t tokens : {1, 32, 128, 4096}) {
      for (const bool residual : {false, true}) {
        measure_rms_norm(device, ceilings, tokens, hidden, residual, pool, stream.get());
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main() {
  try {
    return triptych::run();
  } catch (const triptych::DeviceError& error) {
    std::fprintf(stderr, "triptych_gpu_check: %s\n", error.what());
    return 1;
  }
}
