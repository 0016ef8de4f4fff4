// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/units.h"

namespace triptych::cpu {
namespace {

struct Range {
  int64_t begin;
  int64_t end;
  int worker;
  bool operator==(const Range&) const = default;
};

std::vector<Range> ranges_of(ThreadPool& pool, int64_t count, int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  auto body = [&](int64_t begin, int64_t end, int worker) {
    const std::lock_guard lock(mutex);
    ranges.push_back({begin, end, worker});
  };
  pool.parallel_for(count, grain, body);
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.worker < b.worker; });
  return ranges;
}

TEST(ThreadPool, SumsOverManyRegions) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    std::vector<int64_t> values(1000);
    for (int region = 1; region <= 300; ++region) {
      // Plain stores: what a worker writes must be visible to the caller afterwards, and what the
      // caller wrote before must be visible to the worker.
      auto body = [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
      };
      pool.parallel_for(1000, 1, body);
      ASSERT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 499500 * region);
    }
  }
}

TEST(ThreadPool, RangesCoverTheCountOnceInOrderAndInGrains) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (uint64_t i = 0; i < 100; ++i) {
      const auto count = static_cast<int64_t>(random_bits(1, i) % 200 + 1);
      const auto grain = static_cast<int64_t>(random_bits(2, i) % 17 + 1);
      const auto ranges = ranges_of(pool, count, grain);
      const int64_t chunks = (count + grain - 1) / grain;
      ASSERT_EQ(static_cast<int64_t>(ranges.size()), std::min<int64_t>(threads, chunks));
      int64_t next = 0;
      int64_t least = count;
      int64_t most = 0;
      for (size_t w = 0; w < ranges.size(); ++w) {
        ASSERT_EQ(ranges[w].worker, static_cast<int>(w));
        ASSERT_EQ(ranges[w].begin, next);
        ASSERT_EQ(ranges[w].begin % grain, 0);
        const int64_t size = (ranges[w].end - ranges[w].begin + grain - 1) / grain;
        least = std::min(least, size);
        most = std::max(most, size);
        next = ranges[w].end;
      }
      ASSERT_EQ(next, count);
      ASSERT_LE(most - least, 1);  // no worker has more than one chunk above another
      ASSERT_EQ(ranges_of(pool, count, grain), ranges);
    }
  }
}

TEST(ThreadPool, NothingToDoCallsNobody) {
  ThreadPool pool(3);
  EXPECT_TRUE(ranges_of(pool, 0, 1).empty());
  EXPECT_TRUE(ranges_of(pool, -5, 1).empty());
}

TEST(ThreadPool, MoreThreadsThanWork) {
  ThreadPool pool(16);
  EXPECT_EQ(ranges_of(pool, 3, 1).size(), 3u);
  EXPECT_EQ(ranges_of(pool, 3, 100), (std::vector<Range>{{0, 3, 0}}));
}

// More threads than cores: sleeping must work, since spinning would keep the last one from running.
TEST(ThreadPool, ManyMoreThreadsThanCores) {
  ThreadPool pool(4 * available_cores() + 5);
  std::atomic<int64_t> sum{0};
  for (int region = 0; region < 100; ++region) {
    auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    };
    pool.parallel_for(100, 1, body);
  }
  EXPECT_EQ(sum, 100 * 4950);
}

// A pause far longer than the spin puts the workers to sleep; the next region must wake them.
TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2);
  for (int region = 0; region < 5; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(ranges_of(pool, 2, 1).size(), 2u);
  }
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, MeasuresTheCallersWaitOnlyWhenAsked) {
  ThreadPool pool(2);
  static constexpr int64_t kSleepNs = 20'000'000;
  auto body = [](int64_t, int64_t, int worker) {
    if (worker == 1) std::this_thread::sleep_for(std::chrono::nanoseconds(kSleepNs));
  };
  pool.parallel_for(2, 1, body);
  EXPECT_EQ(pool.last_wait().start_ns, pool.last_wait().end_ns);
  pool.set_measure_wait(true);
  const int64_t before = now_ns();
  pool.parallel_for(2, 1, body);
  const int64_t after = now_ns();
  const ThreadPool::Wait wait = pool.last_wait();
  EXPECT_LE(before, wait.start_ns);
  EXPECT_LE(wait.end_ns, after);
  // The worker's sleep starts before the caller's wait does only by what starting it took; half of
  // the sleep leaves room for a caller that was scheduled late.
  EXPECT_GE(wait.end_ns - wait.start_ns, kSleepNs / 2);
  pool.parallel_for(1, 1, body);  // one range: the caller's own, nobody to wait for
  EXPECT_EQ(pool.last_wait().start_ns, pool.last_wait().end_ns);
}

TEST(ThreadPoolDeathTest, MisuseIsCaught) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(ThreadPool(0), "at least the calling thread");
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        auto inner = [](int64_t, int64_t, int) {};
        auto outer = [&](int64_t, int64_t, int) { pool.parallel_for(1, 1, inner); };
        pool.parallel_for(1, 1, outer);
      },
      "inside a region");
}

TEST(ThreadPool, AvailableCores) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace triptych::cpu
