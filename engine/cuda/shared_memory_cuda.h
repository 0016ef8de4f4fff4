// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// SharedDeviceMemory: one block of device memory for all engines of a process.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace triptych {

/// Engines take turns, so their arenas and page pools may be the same memory: a comparison of nine
/// stacks then needs the memory of its largest. The block grows at its end and never moves (its
/// addresses are reserved once), so that graphs which were recorded on it stay valid.
class SharedDeviceMemory {
 public:
  /// That of the current device, made on first use, gone with its last user. Throws DeviceError.
  [[nodiscard]] static std::shared_ptr<SharedDeviceMemory> instance();

  SharedDeviceMemory();
  ~SharedDeviceMemory();
  SharedDeviceMemory(const SharedDeviceMemory&) = delete;
  SharedDeviceMemory& operator=(const SharedDeviceMemory&) = delete;

  /// The block's first byte.
  [[nodiscard]] std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }
  /// Makes the block at least so long. Throws DeviceError, also when the device has no more memory.
  void reserve(int64_t bytes);

 private:
  std::mutex mutex_;
  CUmemAllocationProp properties_ = {};
  size_t granularity_ = 0;
  size_t reserved_ = 0;  // bytes of addresses
  size_t mapped_ = 0;    // bytes of memory behind them
  CUdeviceptr base_ = 0;
  struct Part {
    CUmemGenericAllocationHandle handle;
    size_t offset, bytes;
  };
  std::vector<Part> parts_;
};

}  // namespace triptych
