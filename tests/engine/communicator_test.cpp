// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

constexpr std::array kRealKinds = {AllReduceKind::kAuto, AllReduceKind::kOneShot,
                                   AllReduceKind::kTwoShot};

/// Floats on a cache line of their own, as activations are.
class Floats {
 public:
  explicit Floats(int64_t rows, int64_t columns)
      : rows_(rows),
        columns_(columns),
        data_(static_cast<float*>(
            ::operator new (static_cast<size_t>(rows* columns + 1) * 4, std::align_val_t{64}))) {}
  ~Floats() { ::operator delete (data_, std::align_val_t{64}); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  [[nodiscard]] Tensor tensor() { return {data_, rows_, columns_, columns_ * 4}; }
  [[nodiscard]] float& operator[](int64_t i) { return data_[i]; }
  [[nodiscard]] int64_t size() const { return rows_ * columns_; }

 private:
  int64_t rows_;
  int64_t columns_;
  float* data_;
};

void on_every_rank(CommunicatorGroup& ranks, const std::function<void(int, Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.world_size(); ++rank) {
    threads.emplace_back([&, rank] { body(rank, ranks.communicator(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

float value_of(uint64_t round, int rank, int64_t i) {
  return static_cast<float>(
      random_normal(round * 64 + static_cast<uint64_t>(rank), static_cast<uint64_t>(i)));
}

// Summed in order of rank in f32, which is what the communicator promises to the bit.
float sum_of(uint64_t round, int ranks, int64_t i) {
  float sum = value_of(round, 0, i);
  for (int rank = 1; rank < ranks; ++rank) sum += value_of(round, rank, i);
  return sum;
}

TEST(Communicator, AllReduceGivesEveryRankTheSumInOrderOfRank) {
  // Around a cache line, around what is exchanged at once, and a message of several pieces.
  const std::vector<int64_t> sizes = {1, 15, 16, 17, 1023, 1025, 4095, 4096, 4097, 10007};
  for (const AllReduceKind kind : kRealKinds) {
    for (const int world_size : {1, 2, 3, 5}) {
      CommunicatorGroup ranks(world_size, kind);
      std::atomic<int> wrong{0};
      on_every_rank(ranks, [&](int rank, Communicator& communicator) {
        EXPECT_EQ(communicator.rank(), rank);
        EXPECT_EQ(communicator.world_size(), world_size);
        for (const int64_t size : sizes) {
          Floats x(1, size);
          const auto round = static_cast<uint64_t>(size);
          for (int64_t i = 0; i < size; ++i) x[i] = value_of(round, rank, i);
          communicator.all_reduce(x.tensor());
          for (int64_t i = 0; i < size; ++i) wrong += x[i] != sum_of(round, world_size, i);
        }
      });
      EXPECT_EQ(wrong.load(), 0) << all_reduce_name(kind) << " of " << world_size;
    }
  }
}

TEST(Communicator, ManyRoundsWithRandomDelaysStayInStep) {
  constexpr int kRounds = 400;
  for (const AllReduceKind kind : kRealKinds) {
    CommunicatorGroup ranks(3, kind);
    std::atomic<int> wrong{0};
    on_every_rank(ranks, [&](int rank, Communicator& communicator) {
      RandomStream random(static_cast<uint64_t>(rank));  // each rank is late at other times
      RandomStream shape(99);                            // but all have the same messages
      for (uint64_t round = 0; round < kRounds; ++round) {
        const auto rows = static_cast<int64_t>(1 + shape.below(3));
        const auto columns = static_cast<int64_t>(1 + shape.below(3000));
        if (random.below(20) == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random.below(300)));
        }
        if (shape.below(4) == 0) {
          Floats shard(rows, rank + 1);
          Floats whole(rows, 6);
          for (int64_t i = 0; i < shard.size(); ++i) shard[i] = value_of(round, rank, i);
          communicator.all_gather(shard.tensor(), whole.tensor());
          for (int64_t row = 0; row < rows; ++row) {
            for (int64_t c = 0; c < 6; ++c) {
              const int owner = c == 0 ? 0 : c < 3 ? 1 : 2;
              const int64_t first = owner == 0 ? 0 : owner == 1 ? 1 : 3;
              wrong += whole[row * 6 + c] != value_of(round, owner, row * (owner + 1) + c - first);
            }
          }
          continue;
        }
        Floats x(rows, columns);
        for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(rank) + 1.0f;
        communicator.all_reduce(x.tensor());
        for (int64_t i = 0; i < x.size(); ++i) wrong += x[i] != 6.0f;
      }
    });
    EXPECT_EQ(wrong.load(), 0) << all_reduce_name(kind);
  }
}

TEST(Communicator, StubKeepsEveryRankToItself) {
  CommunicatorGroup ranks(2, AllReduceKind::kStub);
  RecordSink sink;
  Communicator& communicator = ranks.communicator(1);  // the other rank never comes
  communicator.set_sink(&sink);
  Floats x(2, 3);
  for (int64_t i = 0; i < 6; ++i) x[i] = static_cast<float>(i);
  communicator.all_reduce(x.tensor());
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(x[i], static_cast<float>(i));
  Floats whole(2, 7);
  communicator.all_gather(x.tensor(), whole.tensor());
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t c = 0; c < 7; ++c) {
      const bool own = c >= 3 && c < 6;
      EXPECT_EQ(whole[row * 7 + c], own ? static_cast<float>(row * 3 + c - 3) : 0.0f);
    }
  }
  EXPECT_TRUE(sink.records().empty());
}

TEST(Communicator, AbortWakesTheWaitingAndRefusesTheLate) {
  for (const AllReduceKind kind : kRealKinds) {
    for (const int delay_us : {0, 30, 3000}) {  // while they spin, yield, sleep
      CommunicatorGroup ranks(3, kind);
      std::atomic<int> aborted{0};
      on_every_rank(ranks, [&](int rank, Communicator& communicator) {
        Floats x(1, 9000);
        for (int64_t i = 0; i < x.size(); ++i) x[i] = 1.0f;
        if (rank == 1) {
          std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
          ranks.abort();
        }
        try {
          communicator.all_reduce(x.tensor());
        } catch (const CommunicationAborted&) {
          ++aborted;
        }
      });
      EXPECT_EQ(aborted.load(), 3);

      ranks.reset();
      on_every_rank(ranks, [&](int, Communicator& communicator) {
        Floats x(1, 9000);
        for (int64_t i = 0; i < x.size(); ++i) x[i] = 1.0f;
        communicator.all_reduce(x.tensor());
        EXPECT_EQ(x[8999], 3.0f);
      });
    }
  }
}

TEST(Communicator, ReportsWaitTransferAndSyncOfEveryRank) {
  constexpr auto kLate = std::chrono::milliseconds(20);
  for (const AllReduceKind kind : {AllReduceKind::kOneShot, AllReduceKind::kTwoShot}) {
    CommunicatorGroup ranks(2, kind);
    std::array<RecordSink, 2> sinks;
    std::array<int64_t, 2> starts{};
    std::array<int64_t, 2> ends{};
    std::atomic<bool> first_is_there{false};
    on_every_rank(ranks, [&](int rank, Communicator& communicator) {
      communicator.set_sink(&sinks[static_cast<size_t>(rank)]);
      Floats x(1, 1000);
      for (int64_t i = 0; i < x.size(); ++i) x[i] = 1.0f;
      if (rank == 1) {
        while (!first_is_there) std::this_thread::yield();
        std::this_thread::sleep_for(kLate);
      }
      starts[static_cast<size_t>(rank)] = now_ns();
      if (rank == 0) first_is_there = true;
      communicator.all_reduce(x.tensor());
      ends[static_cast<size_t>(rank)] = now_ns();
    });
    std::array<int64_t, 2> waits_end{};
    for (size_t rank = 0; rank < 2; ++rank) {
      int64_t bytes = 0;
      int64_t at = starts[rank];
      for (const RecordSink::Record& record : sinks[rank].records()) {
        EXPECT_GE(record.start_ns, at) << record.name << " overlaps the one before";
        EXPECT_GT(record.end_ns, record.start_ns);
        at = record.end_ns;
        bytes += record.bytes;
        const bool sync = record.name == "all_reduce_wait" || record.name == "all_reduce_sync";
        EXPECT_EQ(record.kind, sync ? ActivityKind::kSync : ActivityKind::kCollective);
        if (record.name == "all_reduce_wait") waits_end[rank] = record.end_ns;
      }
      EXPECT_LE(at, ends[rank]);
      EXPECT_EQ(bytes, 4000) << "the message, once";
      EXPECT_EQ(sinks[rank].count("all_reduce"), 1);
      EXPECT_EQ(sinks[rank].count("all_reduce_stage"), kind == AllReduceKind::kOneShot ? 1 : 0);
    }
    // Waiting ends for both when the late one comes; that the early one must then be woken is sync.
    EXPECT_EQ(waits_end[0], waits_end[1]);
    EXPECT_GE(waits_end[0], starts[1]);
    EXPECT_GE(sinks[0].count("all_reduce_sync"), 1);
  }
}

TEST(AllReduceKind, NamesRoundTrip) {
  for (const AllReduceKind kind : {AllReduceKind::kAuto, AllReduceKind::kOneShot,
                                   AllReduceKind::kTwoShot, AllReduceKind::kStub}) {
    const Result<AllReduceKind> parsed = parse_all_reduce(all_reduce_name(kind));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, kind);
  }
  const Result<AllReduceKind> unknown = parse_all_reduce("ring");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, testing::HasSubstr("auto, oneshot, twoshot, stub"));
}

}  // namespace
}  // namespace triptych
