// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/shared_memory_cuda.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/common/cuda_check.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

class SharedMemoryCuda : public GpuTest {
 protected:
  static void fill(std::byte* memory, int64_t bytes, int value) {
    TRIPTYCH_CUDA_CHECK(cudaMemset(memory, value, static_cast<size_t>(bytes)));
  }
  static bool holds(const std::byte* memory, int64_t bytes, int value) {
    std::vector<std::byte> host(static_cast<size_t>(bytes));
    TRIPTYCH_CUDA_CHECK(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost));
    for (const std::byte b : host) {
      if (b != static_cast<std::byte>(value)) return false;
    }
    return true;
  }
};

TEST_F(SharedMemoryCuda, GrowsAtItsEndAndNeverMoves) {
  SharedDeviceMemory memory;
  std::byte* const base = memory.base();
  int64_t filled = 0;
  int value = 1;
  // Below, at and beyond the unit that the driver maps.
  for (const int64_t bytes : {int64_t{1000}, int64_t{2} << 20, (int64_t{2} << 20) + 1,
                              int64_t{30} << 20, int64_t{5} << 20}) {
    memory.reserve(bytes);
    EXPECT_EQ(memory.base(), base);
    if (bytes <= filled) continue;
    fill(base + filled, bytes - filled, value);
    EXPECT_TRUE(holds(base + filled, bytes - filled, value));
    filled = bytes;
    ++value;
  }
  EXPECT_TRUE(holds(base, 1000, 1)) << "what was there when the block grew";
  EXPECT_TRUE(holds(base + 1000, (2 << 20) - 1000, 2));
}

TEST_F(SharedMemoryCuda, MoreThanTheDeviceHasIsRefusedAndWhatIsThereStays) {
  SharedDeviceMemory memory;
  memory.reserve(4096);
  fill(memory.base(), 4096, 7);
  size_t free_bytes = 0;
  size_t total = 0;
  TRIPTYCH_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
  // A context takes some of all that there is.
  for (const size_t bytes : {2 * total, total}) {
    try {
      memory.reserve(static_cast<int64_t>(bytes));
      ADD_FAILURE() << bytes << " bytes fit";
    } catch (const DeviceError& error) {
      EXPECT_TRUE(error.out_of_memory()) << error.what();
    }
  }
  EXPECT_TRUE(holds(memory.base(), 4096, 7));
  memory.reserve(8 << 20);
  fill(memory.base() + 4096, (8 << 20) - 4096, 8);
  EXPECT_TRUE(holds(memory.base(), 4096, 7));
}

TEST_F(SharedMemoryCuda, AllUsersHaveOneBlockAndTheLastTakesItAlong) {
  auto first = SharedDeviceMemory::instance();
  auto second = SharedDeviceMemory::instance();
  EXPECT_EQ(first, second);
  first->reserve(1 << 20);
  fill(first->base(), 1 << 20, 3);
  first.reset();
  EXPECT_TRUE(holds(second->base(), 1 << 20, 3));
  const std::weak_ptr<SharedDeviceMemory> gone = second;
  second.reset();
  EXPECT_TRUE(gone.expired());
  const auto again = SharedDeviceMemory::instance();
  again->reserve(1 << 20);
  fill(again->base(), 1 << 20, 4);
  EXPECT_TRUE(holds(again->base(), 1 << 20, 4));
}

}  // namespace
}  // namespace triptych
