// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/host_copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/support/device_numbers.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

class HostCopyCuda : public GpuTest {};

// Less than a vector, a tail behind vectors, more than all blocks copy at once.
TEST_F(HostCopyCuda, CopiesTheWordsAskedForAndNoMore) {
  const Stream stream = make_stream();
  for (const size_t words : {0, 1, 3, 4, 7, 1000, 4097, 300001}) {
    const PinnedBuffer<int32_t> from(words + 8);
    std::iota(from.span().begin(), from.span().end(), 1);
    const auto to = to_device(std::vector<int32_t>(words + 8, -7));
    TRIPTYCH_CUDA_CHECK(cudaDeviceSynchronize());  // the stream does not wait for the copy above
    launch_copy_from_host(from.data(), to.data(), static_cast<int64_t>(4 * words), stream.get());
    TRIPTYCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    std::vector<int32_t> want(from.span().begin(), from.span().end());
    std::fill(want.begin() + static_cast<int64_t>(words), want.end(), -7);
    EXPECT_EQ(to_host(to), want) << words << " words";
  }
}

}  // namespace
}  // namespace triptych
