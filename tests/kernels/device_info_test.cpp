// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_info.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

TEST(DeviceInfo, TextOfCudaVersions) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
  EXPECT_EQ(cuda_version_text(0), "0.0");
}

TEST(DeviceInfo, TextNamesEveryField) {
  const DeviceInfo device{.name = "Example 1",
                          .compute_major = 9,
                          .compute_minor = 0,
                          .num_sms = 132,
                          .memory_bytes = 139LL << 30,
                          .l2_bytes = 60 << 20,
                          .driver = "1.2.3",
                          .driver_cuda_version = 13000};
  EXPECT_EQ(device.to_string(),
            "Example 1, sm_90, 132 SMs, 139 GiB, L2 60.0 MiB, driver 1.2.3 (CUDA 13.0)");
  EXPECT_NE(DeviceInfo{}.to_string().find("driver unknown"), std::string::npos);
}

// Holds with and without a GPU: either every device is described, or the reason is given.
TEST(DeviceInfo, QueryGivesDevicesOrAReason) {
  const auto devices = query_devices();
  if (!devices.has_value()) {
    EXPECT_EQ(devices.error().code, ErrorCode::kUnsupported);
    EXPECT_GT(devices.error().message.size(), 20u);
    return;
  }
  ASSERT_FALSE(devices->empty());
  for (const DeviceInfo& device : *devices) EXPECT_GT(device.num_sms, 0);
}

TEST(DeviceInfo, AnArchitectureWithoutCodeIsRefused) {
  DeviceInfo device;
  device.name = "Old";
  device.compute_major = 7;
  device.compute_minor = 5;
  const Status status = check_architecture(device);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().message,
            "Old is an sm_75 device; this build has code for sm_80 and later");
  for (const int major : {8, 9, 10, 12}) {
    device.compute_major = major;
    EXPECT_TRUE(check_architecture(device)) << major;
  }
}

}  // namespace
}  // namespace triptych
