// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/shared_memory_cuda.h"

#include "kernels/common/cuda_handles.h"

namespace triptych {

namespace {

/// The driver's functions, found at run time: a build machine has no driver to link with.
struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_addresses;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
};

template <class Function>
void find(const char* name, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  TRIPTYCH_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) {
    throw DeviceError(__FILE__, __LINE__, name, static_cast<int>(found),
                      "the driver does not have this function");
  }
  function = reinterpret_cast<Function>(address);
}

const Driver& driver() {
  static const Driver functions = [] {
    Driver d{};
    find("cuMemGetAllocationGranularity", d.granularity);
    find("cuMemAddressReserve", d.reserve);
    find("cuMemAddressFree", d.free_addresses);
    find("cuMemCreate", d.create);
    find("cuMemRelease", d.release);
    find("cuMemMap", d.map);
    find("cuMemUnmap", d.unmap);
    find("cuMemSetAccess", d.set_access);
    return d;
  }();
  return functions;
}

void driver_check(CUresult result, int line, const char* call) {
  if (result == CUDA_SUCCESS) return;
  // The driver numbers the errors of the runtime that can happen here as the runtime does.
  const auto status = static_cast<cudaError_t>(result);
  throw DeviceError(__FILE__, line, call, static_cast<int>(status), cuda_error_text(status));
}
#define TRIPTYCH_DRIVER_CHECK(call) driver_check((call), __LINE__, #call)

}  // namespace

std::shared_ptr<SharedDeviceMemory> SharedDeviceMemory::instance() {
  static std::mutex mutex;
  static std::weak_ptr<SharedDeviceMemory> shared;
  const std::lock_guard lock(mutex);
  std::shared_ptr<SharedDeviceMemory> memory = shared.lock();
  if (memory == nullptr) {
    memory = std::make_shared<SharedDeviceMemory>();
    shared = memory;
  }
  return memory;
}

SharedDeviceMemory::SharedDeviceMemory() {
  int device = 0;
  TRIPTYCH_CUDA_CHECK(cudaGetDevice(&device));
  size_t free_bytes = 0;
  size_t total = 0;
  TRIPTYCH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));  // makes the context as well
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  TRIPTYCH_DRIVER_CHECK(
      driver().granularity(&granularity_, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  reserved_ = (total + granularity_ - 1) / granularity_ * granularity_;
  TRIPTYCH_DRIVER_CHECK(driver().reserve(&base_, reserved_, granularity_, 0, 0));
}

SharedDeviceMemory::~SharedDeviceMemory() {
  for (const Part& part : parts_) {
    driver().unmap(base_ + part.offset, part.bytes);
    driver().release(part.handle);
  }
  driver().free_addresses(base_, reserved_);
}

void SharedDeviceMemory::reserve(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto wanted = static_cast<size_t>(bytes);
  if (wanted <= mapped_) return;
  const size_t more = (wanted - mapped_ + granularity_ - 1) / granularity_ * granularity_;
  Part part{0, mapped_, more};
  CUresult created = CUDA_ERROR_OUT_OF_MEMORY;
  if (mapped_ + more <= reserved_) created = driver().create(&part.handle, more, &properties_, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY && mapped_ + more <= reserved_) {
    trim_memory_pool();
    created = driver().create(&part.handle, more, &properties_, 0);
  }
  if (created == CUDA_ERROR_OUT_OF_MEMORY) {
    throw DeviceError(__FILE__, __LINE__, "cuMemCreate", DeviceError::kOutOfMemory,
                      cuda_error_text(cudaErrorMemoryAllocation, more));
  }
  TRIPTYCH_DRIVER_CHECK(created);
  const CUresult mapped = driver().map(base_ + part.offset, more, 0, part.handle, 0);
  if (mapped != CUDA_SUCCESS) driver().release(part.handle);
  TRIPTYCH_DRIVER_CHECK(mapped);
  parts_.push_back(part);
  mapped_ += more;
  CUmemAccessDesc access = {properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  TRIPTYCH_DRIVER_CHECK(driver().set_access(base_ + part.offset, more, &access, 1));
}

}  // namespace triptych
