// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Holds with and without CUDA, with and without a device: what is there works, or the reason is
// given.
#include "engine/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/ops_cuda.h"
#include "engine/memory_need.h"
#include "kernels/device_info.h"
#include "tests/support/random_model.h"

namespace triptych {
namespace {

using ::testing::HasSubstr;

EngineOptions options(DeviceKind device) {
  EngineOptions o;
  o.device = device;
  o.max_sequence = 32;
  return o;
}

TEST(Device, TheCpuRunsEveryModelWhoseHeadsItCanRotate) {
  const auto weights = random_model(tiny_config(), DType::kF32, 1);
  EXPECT_TRUE(check_device(*weights, options(DeviceKind::kCpu)));
  ModelWeights wide;
  wide.config = tiny_config();
  wide.config.head_dim = 1024;
  EXPECT_TRUE(check_device(wide, options(DeviceKind::kCpu)));
  wide.config.head_dim = 1026;
  const Status refused = check_device(wide, options(DeviceKind::kCpu));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("head_dim is 1026"));
}

TEST(Device, OperationsAreThoseOfTheDeviceAskedFor) {
  const auto weights = random_model(tiny_config(), DType::kF32, 1);
  cpu::ThreadPool pool(1);
  EXPECT_EQ(make_ops(*weights, options(DeviceKind::kCpu), pool)->device(), DeviceKind::kCpu);
  EXPECT_EQ(device_memory_bytes(DeviceKind::kCpu), machine_memory_bytes());
}

TEST(Device, CudaIsThereOrTheReasonIs) {
  const auto weights = random_model(tiny_config(), DType::kF16, 1);
  const auto devices = query_devices();
  const Status status = check_device(*weights, options(DeviceKind::kCuda));
  if (devices) {
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_EQ(cuda_memory_bytes(), static_cast<double>(devices->front().memory_bytes));
    return;
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().message, devices.error().message);
  EXPECT_EQ(device_memory_bytes(DeviceKind::kCuda), 0);
}

}  // namespace
}  // namespace triptych
