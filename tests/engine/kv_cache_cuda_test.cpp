// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kv_cache_cuda.h"

#include "tests/support/cuda_ops.h"

namespace triptych {
namespace {

class KvCacheCuda : public CudaOpsTest {};

TEST_F(KvCacheCuda, APoolHoldsKeysAndValuesOfEveryLayerApart) {
  const int64_t plane = 10 * 16 * kShape.kv_columns * 2;
  CudaPagedCache cache(*ops_, kShape, 16, 10);
  EXPECT_EQ(cache.peak_bytes(), 2 * 3 * plane);
  for (int64_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(cache.values(layer) - cache.keys(layer), plane);
    EXPECT_EQ(cache.keys(layer) - cache.keys(0), 2 * layer * plane);
    TRIPTYCH_CUDA_CHECK(cudaMemset(cache.keys(layer), static_cast<int>(layer) + 1, plane));
    TRIPTYCH_CUDA_CHECK(cudaMemset(cache.values(layer), static_cast<int>(layer) + 11, plane));
  }
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (const int64_t at : {int64_t{0}, plane - 1}) {
      EXPECT_EQ(from_device(cache.keys(layer) + at, 1)[0], static_cast<std::byte>(layer + 1));
      EXPECT_EQ(from_device(cache.values(layer) + at, 1)[0], static_cast<std::byte>(layer + 11));
    }
  }
  cache.extend(3, 17);
  EXPECT_EQ(cache.length(3), 17);
  EXPECT_EQ(cache.table().ids(3).size(), 2u);
  cache.reset_peak();
  EXPECT_EQ(cache.peak_bytes(), 2 * 3 * plane) << "a pool counts whole";
  cache.clear(3);
  EXPECT_EQ(cache.length(3), 0);
  EXPECT_EQ(cache.table().free_pages(), 10);
}

TEST_F(KvCacheCuda, AGroupsPartsAreCountedWhileTheyAreHeld) {
  CudaConcatCache cache(*ops_, kShape);
  const int64_t token = cache.token_bytes();
  EXPECT_EQ(token, kShape.kv_columns * 2);
  EXPECT_EQ(cache.place(2).group, nullptr);
  cache.extend(2, 7);
  auto group = cache.make_group(7);
  EXPECT_EQ(cache.peak_bytes(), 0) << "parts are allocated one by one";
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (const int which : {0, 1}) {
      std::byte* const part = group->allocate(layer, which);
      EXPECT_EQ(part, group->data(layer, which));
      TRIPTYCH_CUDA_CHECK(cudaMemset(part, 1, static_cast<size_t>(7 * token)));
    }
  }
  EXPECT_EQ(cache.peak_bytes(), 6 * 7 * token);
  cache.move(2, group, 0);
  EXPECT_EQ(cache.place(2).cached, 7);
  cache.extend(2, 1);
  EXPECT_EQ(cache.length(2), 8);
  EXPECT_EQ(cache.place(2).cached, 7) << "of before this step";

  auto next = cache.make_group(8);
  cache.move(2, next, 0);
  static_cast<void>(next->allocate(0, 0));
  EXPECT_EQ(cache.peak_bytes(), (6 * 7 + 8) * token) << "old and new exist side by side";
  group->release(0, 0);
  group->release(0, 0);  // once is enough
  static_cast<void>(next->allocate(0, 1));
  EXPECT_EQ(cache.peak_bytes(), (5 * 7 + 2 * 8) * token);
  group.reset();
  cache.reset_peak();
  EXPECT_EQ(cache.peak_bytes(), 2 * 8 * token);
  next.reset();
  cache.clear(2);
  cache.reset_peak();
  EXPECT_EQ(cache.peak_bytes(), 0);
  EXPECT_EQ(cache.length(2), 0);
}

TEST_F(KvCacheCuda, ASequenceKeepsTheGroupAliveThatOthersHaveLeft) {
  CudaConcatCache cache(*ops_, kShape);
  std::weak_ptr<CudaConcatCache::Group> watched;
  {
    auto group = cache.make_group(5);
    watched = group;
    static_cast<void>(group->allocate(1, 1));
    cache.extend(0, 2);
    cache.extend(1, 3);
    cache.move(0, group, 0);
    cache.move(1, group, 2);
  }
  EXPECT_EQ(cache.place(1).start, 2);
  EXPECT_EQ(cache.place(1).cached, 3);
  cache.clear(0);
  EXPECT_FALSE(watched.expired());
  cache.clear(1);
  EXPECT_TRUE(watched.expired());
  cache.reset_peak();
  EXPECT_EQ(cache.peak_bytes(), 0);
}

}  // namespace
}  // namespace triptych
