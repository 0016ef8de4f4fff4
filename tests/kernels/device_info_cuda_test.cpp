// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>

#include "kernels/common/cuda_check.h"
#include "kernels/common/cuda_handles.h"
#include "kernels/device_info.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

class DeviceInfoCuda : public GpuTest {};

TEST_F(DeviceInfoCuda, FieldsArePlausible) {
  const auto devices = query_devices();
  ASSERT_TRUE(devices.has_value());
  for (const DeviceInfo& device : *devices) {
    SCOPED_TRACE(device.to_string());
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.compute_major, 8);  // the lowest architecture that is compiled
    EXPECT_GT(device.memory_bytes, 1LL << 30);
    EXPECT_GT(device.l2_bytes, 1 << 20);
    EXPECT_GE(device.driver_cuda_version, device.runtime_cuda_version);
  }
}

TEST(CudaCheck, NamesFileLineCallCodeAndText) {
  try {
    TRIPTYCH_CUDA_CHECK(cudaErrorInvalidValue);
    FAIL() << "did not throw";
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), static_cast<int>(cudaErrorInvalidValue));
    EXPECT_EQ(error.call(), "cudaErrorInvalidValue");
    EXPECT_EQ(error.text(), cudaGetErrorString(cudaErrorInvalidValue));
    EXPECT_NE(std::string(error.what()).find("device_info_cuda_test.cpp:"), std::string::npos);
  }
  TRIPTYCH_CUDA_CHECK(cudaSuccess);
}

TEST(CudaCheck, LoggingFormOnlyPrints) {
  testing::internal::CaptureStderr();
  TRIPTYCH_CUDA_LOG(cudaErrorInvalidValue);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cudaErrorInvalidValue"),
            std::string::npos);
}

class CudaHandles : public GpuTest {};

TEST_F(CudaHandles, PinnedAndDeviceMemoryRoundTrip) {
  const Stream stream = make_stream();
  const PinnedBuffer<int> in(1000);
  const PinnedBuffer<int> out(1000);
  const DeviceBuffer<int> device(1000);
  std::iota(in.span().begin(), in.span().end(), 7);
  TRIPTYCH_CUDA_CHECK(cudaMemcpyAsync(device.data(), in.data(), in.size_bytes(),
                                      cudaMemcpyHostToDevice, stream.get()));
  TRIPTYCH_CUDA_CHECK(cudaMemcpyAsync(out.data(), device.data(), device.size_bytes(),
                                      cudaMemcpyDeviceToHost, stream.get()));
  TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  EXPECT_TRUE(std::equal(in.span().begin(), in.span().end(), out.span().begin()));
}

TEST_F(CudaHandles, AnAllocationThatDoesNotFitThrowsAndIsNotSticky) {
  EXPECT_THROW(DeviceBuffer<std::byte>(size_t{1} << 50), DeviceError);
  static_cast<void>(cudaGetLastError());
  EXPECT_EQ(DeviceBuffer<std::byte>(16).size(), 16u);
  EXPECT_EQ(DeviceBuffer<std::byte>(0).data(), nullptr);
}

}  // namespace
}  // namespace triptych
