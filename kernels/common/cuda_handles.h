// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA objects: streams, events, device and pinned host memory. All are move-only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/handle.h"
#include "kernels/common/cuda_check.h"

namespace triptych {

inline void destroy_stream(cudaStream_t s) noexcept { TRIPTYCH_CUDA_LOG(cudaStreamDestroy(s)); }
inline void destroy_event(cudaEvent_t e) noexcept { TRIPTYCH_CUDA_LOG(cudaEventDestroy(e)); }
inline void free_device(void* memory) noexcept { TRIPTYCH_CUDA_LOG(cudaFree(memory)); }
inline void free_pinned(void* memory) noexcept { TRIPTYCH_CUDA_LOG(cudaFreeHost(memory)); }

using Stream = UniqueHandle<cudaStream_t, destroy_stream>;
using Event = UniqueHandle<cudaEvent_t, destroy_event>;

/// A stream that does not synchronise with the default stream. Throws DeviceError.
[[nodiscard]] inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

/// An event that records time. Throws DeviceError.
[[nodiscard]] inline Event make_event() {
  cudaEvent_t event = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaEventCreate(&event));
  return Event(event);
}

/// An event that only orders: recording it is cheaper. Throws DeviceError.
[[nodiscard]] inline Event make_marker() {
  cudaEvent_t event = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

/// `size` elements of uninitialised memory from Allocate, given back through Free.
template <class T, auto Allocate, auto Free>
class CudaBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "device memory runs no constructors");

 public:
  CudaBuffer() = default;
  /// Throws DeviceError, with what is free, when the memory cannot be had. 0 elements allocate
  /// nothing.
  explicit CudaBuffer(size_t size) : size_(size) {
    TRIPTYCH_CHECK(size <= std::numeric_limits<size_t>::max() / sizeof(T), "size overflows");
    if (size == 0) return;
    void* memory = nullptr;
    const cudaError_t status = Allocate(&memory, size * sizeof(T));
    if (status != cudaSuccess) {
      throw DeviceError(__FILE__, __LINE__, "allocate", static_cast<int>(status),
                        cuda_error_text(status, size * sizeof(T)));
    }
    memory_.reset(memory);
  }

  [[nodiscard]] T* data() const { return static_cast<T*>(memory_.get()); }
  [[nodiscard]] size_t size() const { return memory_ ? size_ : 0; }
  [[nodiscard]] size_t size_bytes() const { return size() * sizeof(T); }
  [[nodiscard]] std::span<T> span() const { return {data(), size()}; }

 private:
  struct Deleter {
    void operator()(void* memory) const noexcept { Free(memory); }
  };
  std::unique_ptr<void, Deleter> memory_;
  size_t size_ = 0;
};

/// Gives the system what stream-ordered allocation has kept of freed memory.
inline void trim_memory_pool() {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());  // what is freed on a stream is free after it
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  TRIPTYCH_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
  TRIPTYCH_CUDA_CHECK(cudaMemPoolTrimTo(pool, 0));
}

inline cudaError_t allocate_device(void** memory, size_t bytes) {
  const cudaError_t status = cudaMalloc(memory, bytes);
  if (status != cudaErrorMemoryAllocation) return status;
  static_cast<void>(cudaGetLastError());
  trim_memory_pool();
  return cudaMalloc(memory, bytes);
}
inline cudaError_t allocate_pinned(void** memory, size_t bytes) {
  return cudaMallocHost(memory, bytes);
}

/// Device memory: the pointers are not for the host.
template <class T>
using DeviceBuffer = CudaBuffer<T, allocate_device, free_device>;
/// Page-locked host memory, which copies to and from the device asynchronously.
template <class T>
using PinnedBuffer = CudaBuffer<T, allocate_pinned, free_pinned>;

}  // namespace triptych
