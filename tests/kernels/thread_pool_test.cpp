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
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
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

TEST(ThreadPool, ChunksCoverTheCountOnceAndInGrains) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (uint64_t i = 0; i < 100; ++i) {
      const auto count = static_cast<int64_t>(random_bits(1, i) % 200 + 1);
      const auto grain = static_cast<int64_t>(random_bits(2, i) % 17 + 1);
      const auto ranges = ranges_of(pool, count, grain);
      const int64_t grains = (count + grain - 1) / grain;
      ASSERT_GE(ranges.size(), static_cast<size_t>(std::min<int64_t>(threads, grains)) / 2);
      ASSERT_LE(ranges.size(), static_cast<size_t>(grains));
      int64_t next = 0;
      for (const Range& range : ranges) {
        ASSERT_EQ(range.begin, next);
        ASSERT_EQ(range.begin % grain, 0);
        ASSERT_LT(range.begin, range.end);
        ASSERT_GE(range.worker, 0);
        ASSERT_LT(range.worker, threads);
        next = range.end;
      }
      ASSERT_EQ(next, count);
      const auto again = ranges_of(pool, count, grain);
      ASSERT_EQ(again.size(), ranges.size());
      for (size_t r = 0; r < ranges.size(); ++r) ASSERT_EQ(again[r].begin, ranges[r].begin);
    }
  }
}

// The chunk that is held up keeps only itself: the other thread does all the rest meanwhile.
TEST(ThreadPool, AStalledThreadHoldsUpOneChunk) {
  ThreadPool pool(2);
  std::atomic<int> others{0};
  std::atomic<int> chunks{0};
  auto body = [&](int64_t begin, int64_t, int) {
    ++chunks;
    if (begin != 0) {
      ++others;
      return;
    }
    const int64_t deadline = now_ns() + 10'000'000'000;
    while (others < 7 && now_ns() < deadline) std::this_thread::yield();
  };
  pool.parallel_for(8, 1, body);
  EXPECT_EQ(others, 7);
  EXPECT_EQ(chunks, 8);
}

// Short regions of changing size, so that threads late from one meet the start of the next.
TEST(ThreadPool, EveryElementRunsOnceWhateverTheSizeOfTheLastRegion) {
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::vector<int> runs(64);
    int64_t expected = 0;
    for (uint64_t region = 0; region < 20000; ++region) {
      const auto count = static_cast<int64_t>(random_bits(3, region) % 64 + 1);
      auto body = [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
      };
      pool.parallel_for(count, 1, body);
      expected += count;
      ASSERT_EQ(std::accumulate(runs.begin(), runs.end(), int64_t{0}), expected) << region;
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
  const auto ranges = ranges_of(pool, 3, 100);
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_EQ(ranges[0].end, 3);
  EXPECT_EQ(ranges[0].worker, 0);
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

/// Runs two chunks that each wait for the other to have begun, so that two threads must take part.
void meet(ThreadPool& pool, int64_t sleep_ns) {
  std::atomic<int> begun{0};
  auto body = [&](int64_t, int64_t, int worker) {
    ++begun;
    const int64_t deadline = now_ns() + 10'000'000'000;
    while (begun < 2 && now_ns() < deadline) std::this_thread::yield();
    if (worker == 1) std::this_thread::sleep_for(std::chrono::nanoseconds(sleep_ns));
  };
  pool.parallel_for(2, 1, body);
  EXPECT_EQ(begun, 2);
}

// A pause far longer than the spin puts the workers to sleep; the next region must wake them.
TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2);
  for (int region = 0; region < 5; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    meet(pool, 0);
  }
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, MeasuresTheCallersWaitOnlyWhenAsked) {
  ThreadPool pool(2);
  constexpr int64_t kSleepNs = 20'000'000;
  meet(pool, kSleepNs);
  EXPECT_EQ(pool.last_wait().start_ns, pool.last_wait().end_ns);
  pool.set_measure_wait(true);
  const int64_t before = now_ns();
  meet(pool, kSleepNs);
  const int64_t after = now_ns();
  const ThreadPool::Wait wait = pool.last_wait();
  EXPECT_LE(before, wait.start_ns);
  EXPECT_LE(wait.end_ns, after);
  // The worker's sleep starts before the caller's wait does only by what starting it took; half of
  // the sleep leaves room for a caller that was scheduled late.
  EXPECT_GE(wait.end_ns - wait.start_ns, kSleepNs / 2);
  auto nothing = [](int64_t, int64_t, int) {};
  pool.parallel_for(1, 1, nothing);  // one range: the caller's own, nobody to wait for
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
