// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_threads.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace triptych {
namespace {

TEST(RankThreads, RunsEveryRankOnItsOwnThreadEachTime) {
  for (const int num_ranks : {1, 2, 4}) {
    RankThreads threads(num_ranks, num_ranks);
    ASSERT_EQ(threads.num_ranks(), num_ranks);
    std::vector<std::thread::id> ids(static_cast<size_t>(num_ranks));
    std::vector<int> runs(static_cast<size_t>(num_ranks));  // plain: run() orders its writes
    for (int round = 1; round <= 200; ++round) {
      threads.run([&](int rank) {
        if (round == 1) ids[static_cast<size_t>(rank)] = std::this_thread::get_id();
        EXPECT_EQ(ids[static_cast<size_t>(rank)], std::this_thread::get_id());
        ++runs[static_cast<size_t>(rank)];
      });
      for (const int count : runs) ASSERT_EQ(count, round);
      if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // asleep
    }
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

TEST(RankThreads, EveryRankUsesItsPoolAtTheSameTime) {
  RankThreads threads(2, 4);
  std::array<int64_t, 2> sums{};
  threads.run([&](int rank) {
    for (int region = 0; region < 100; ++region) {
      std::array<int64_t, 100> values{};
      auto body = [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] = i;
      };
      threads.pool(rank).parallel_for(100, 1, body);
      for (const int64_t value : values) sums[static_cast<size_t>(rank)] += value;
    }
  });
  EXPECT_EQ(sums, (std::array<int64_t, 2>{495000, 495000}));
}

TEST(RankThreads, DividesTheThreadsAndGivesEveryRankOne) {
  const auto sizes = [](int num_ranks, int num_threads) {
    RankThreads threads(num_ranks, num_threads);
    std::vector<int> counts;
    for (int rank = 0; rank < num_ranks; ++rank) {
      counts.push_back(threads.pool(rank).num_threads());
    }
    return counts;
  };
  EXPECT_EQ(sizes(1, 3), (std::vector<int>{3}));
  EXPECT_EQ(sizes(2, 4), (std::vector<int>{2, 2}));
  EXPECT_EQ(sizes(3, 4), (std::vector<int>{1, 1, 2}));
  EXPECT_EQ(sizes(3, 1), (std::vector<int>{1, 1, 1}));
}

TEST(SharedRankThreads, AreSharedByShapeAndGoneWithTheirLastUser) {
  const auto two = shared_rank_threads(1, 2);
  EXPECT_EQ(shared_rank_threads(1, 2), two);
  EXPECT_NE(shared_rank_threads(2, 2), two);
  EXPECT_NE(shared_rank_threads(1, 1), two);
  EXPECT_EQ(two->pool(0).num_threads(), 2);
  const std::weak_ptr<RankThreads> one = shared_rank_threads(1, 1);
  EXPECT_TRUE(one.expired());
}

}  // namespace
}  // namespace triptych
