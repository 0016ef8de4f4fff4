// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/communicator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/strings.h"
#include "base/units.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/wait.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 4> kKindNames = {"auto", "oneshot", "twoshot", "stub"};

constexpr size_t kCacheLine = 64;
constexpr int64_t kLineFloats = kCacheLine / sizeof(float);
// Beyond this a message is worth a second meeting. For n ranks a rank moves n + 2 messages one-shot
// (stage, read all, write) and 2 two-shot, so that 16 KiB more or less equal the microsecond or so
// that a meeting takes. A decode step of a small batch stays below.
constexpr int64_t kOneShotFloats = 4096;
// What one rank sums before it writes it to all others: stays in the first-level cache.
constexpr int64_t kBlockFloats = 1024;

float* f32(const Tensor& tensor) { return static_cast<float*>(tensor.data); }

/// What a collective's records are called.
struct CollectiveNames {
  std::string_view exchange, stage, wait, sync;
};
constexpr CollectiveNames kAllReduce = {"all_reduce", "all_reduce_stage", "all_reduce_wait",
                                        "all_reduce_sync"};
constexpr CollectiveNames kAllGather = {"all_gather", "all_gather_stage", "all_gather_wait",
                                        "all_gather_sync"};

/// Where all ranks meet: nobody leaves before everybody has come. Each meeting is an epoch, so that
/// a rank that is already at the next one is not let through by the end of this one.
class Barrier {
 public:
  Barrier(int world_size, bool spin)
      : world_size_(static_cast<uint32_t>(world_size)), spin_(spin) {}

  /// Returns when the last rank came: now_ns(), if that rank asked for the time.
  int64_t meet(bool timed) {
    const uint32_t epoch = epoch_.load();
    if (aborted_.load()) throw CommunicationAborted();
    if (arrived_.fetch_add(1) + 1 == world_size_) {
      if (timed) last_arrival_ns_ = now_ns();
      arrived_.store(0, std::memory_order_relaxed);  // published by the epoch
      next_epoch();
    } else {
      cpu::wait_while_equal(epoch_, epoch, spin_);
    }
    if (aborted_.load()) throw CommunicationAborted();
    return last_arrival_ns_;
  }

  // The flag comes before the epoch: a rank that sees no flag still sees the epoch it waits on end.
  void abort() noexcept {
    aborted_.store(true);
    next_epoch();
  }
  void reset() noexcept {
    arrived_.store(0);
    aborted_.store(false);
  }

 private:
  void next_epoch() noexcept {
    epoch_.fetch_add(1);
    epoch_.notify_all();
  }

  const uint32_t world_size_;
  const bool spin_;
  alignas(kCacheLine) std::atomic<uint32_t> arrived_{0};
  int64_t last_arrival_ns_ = 0;  // written by the last to come, read by all before they come again
  alignas(kCacheLine) std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> aborted_{false};
};

/// The first element of part `part` out of `parts` of `count` floats, in whole cache lines, so that
/// no line has two writers.
int64_t part_begin(int64_t count, int parts, int part) {
  const int64_t lines = (count + kLineFloats - 1) / kLineFloats;
  return std::min(lines * part / parts * kLineFloats, count);
}

struct alignas(kCacheLine) Line {
  std::array<float, kLineFloats> values;
};

}  // namespace

struct CommunicatorGroup::Shared {
  Shared(int size, AllReduceKind all_reduce)
      : world_size(size),
        kind(all_reduce),
        barrier(size, size <= cpu::available_cores()),
        published(static_cast<size_t>(size)),
        slots(static_cast<size_t>(2 * size * kOneShotFloats / kLineFloats)) {}

  /// Two slots a rank: a rank fills one while a slow peer may still read the other. It comes back
  /// to the first after a meeting that the peer reached with its reading done.
  float* slot(int parity, int rank) {
    const auto lines = static_cast<size_t>(kOneShotFloats / kLineFloats);
    return slots[static_cast<size_t>(parity * world_size + rank) * lines].values.data();
  }

  const int world_size;
  const AllReduceKind kind;
  Barrier barrier;
  std::vector<Tensor> published;  // [rank]; written before a meeting, read after it
  std::vector<Line> slots;        // [2][rank][kOneShotFloats]
  std::deque<Rank> ranks;
};

class CommunicatorGroup::Rank final : public Communicator {
 public:
  Rank(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return shared_.world_size; }
  void set_sink(ActivitySink* sink) override { sink_ = sink; }
  void reset() noexcept { parity_ = 0; }

  void all_reduce(Tensor x) override {
    TRIPTYCH_CHECK(reinterpret_cast<uintptr_t>(x.data) % kCacheLine == 0, "x must be aligned");
    const int64_t count = x.rows * x.columns;
    if (world_size() == 1 || count == 0 || shared_.kind == AllReduceKind::kStub) return;
    const bool small = shared_.kind == AllReduceKind::kAuto && count <= kOneShotFloats;
    if (!small && shared_.kind != AllReduceKind::kOneShot) return two_shot(f32(x), count);
    for (int64_t at = 0; at < count; at += kOneShotFloats) {
      one_shot(f32(x) + at, std::min(kOneShotFloats, count - at));
    }
  }

  void all_gather(Tensor shard, Tensor whole) override {
    TRIPTYCH_CHECK(shard.rows == whole.rows, "a shard has all rows");
    if (world_size() == 1 || shared_.kind == AllReduceKind::kStub) return gather_own(shard, whole);
    shared_.published[rank_] = shard;
    meet(kAllGather);
    const int64_t start_ns = time();
    int64_t column = 0;
    for (const Tensor& part : shared_.published) {
      TRIPTYCH_CHECK(column + part.columns <= whole.columns, "more columns than the whole has");
      copy_columns(part, whole, column);
      column += part.columns;
    }
    TRIPTYCH_CHECK(column == whole.columns, "the shards do not fill the whole");
    report(ActivityKind::kCollective, kAllGather.exchange, start_ns, time(), whole.bytes());
    meet_again(kAllGather);
  }

 private:
  static void copy_columns(const Tensor& from, const Tensor& to, int64_t first_column) {
    for (int64_t row = 0; row < from.rows; ++row) {
      std::memcpy(f32(to) + row * to.columns + first_column, f32(from) + row * from.columns,
                  static_cast<size_t>(from.columns) * sizeof(float));
    }
  }

  // What a rank that talks to nobody knows: its own shard, where even parts would put it.
  void gather_own(const Tensor& shard, const Tensor& whole) {
    std::memset(whole.data, 0, static_cast<size_t>(whole.bytes()));
    const int64_t last = whole.columns - shard.columns;
    copy_columns(shard, whole, std::min(whole.columns * rank_ / world_size(), last));
  }

  void one_shot(float* x, int64_t count) {
    const int64_t start_ns = time();
    std::memcpy(shared_.slot(parity_, rank_), x, static_cast<size_t>(count) * sizeof(float));
    report(ActivityKind::kCollective, kAllReduce.stage, start_ns, time(), 0);
    meet(kAllReduce);
    const int64_t met_ns = time();
    cpu::add(shared_.slot(parity_, 0), shared_.slot(parity_, 1), x, count);
    for (int r = 2; r < world_size(); ++r) cpu::add(x, shared_.slot(parity_, r), x, count);
    parity_ ^= 1;
    report(ActivityKind::kCollective, kAllReduce.exchange, met_ns, time(), message_bytes(count));
  }

  // Between the two meetings part r of every rank's x belongs to rank r alone.
  void two_shot(float* x, int64_t count) {
    shared_.published[rank_].data = x;
    meet(kAllReduce);
    const int64_t start_ns = time();
    const int64_t end = part_begin(count, world_size(), rank_ + 1);
    for (int64_t at = part_begin(count, world_size(), rank_); at < end; at += kBlockFloats) {
      const int64_t block = std::min(kBlockFloats, end - at);
      alignas(kCacheLine) std::array<float, kBlockFloats> sum;
      cpu::add(of_rank(0) + at, of_rank(1) + at, sum.data(), block);
      for (int r = 2; r < world_size(); ++r) {
        cpu::add(sum.data(), of_rank(r) + at, sum.data(), block);
      }
      for (int r = 0; r < world_size(); ++r) {
        std::memcpy(of_rank(r) + at, sum.data(), static_cast<size_t>(block) * sizeof(float));
      }
    }
    report(ActivityKind::kCollective, kAllReduce.exchange, start_ns, time(), message_bytes(count));
    meet_again(kAllReduce);
  }

  float* of_rank(int rank) { return f32(shared_.published[rank]); }
  static int64_t message_bytes(int64_t count) {
    return count * static_cast<int64_t>(sizeof(float));
  }

  // The meeting before an exchange: until the last rank comes this rank waits for another one's
  // work, and after that for its own turn.
  void meet(const CollectiveNames& names) {
    const int64_t start_ns = time();
    const int64_t last_ns = std::max(shared_.barrier.meet(sink_ != nullptr), start_ns);
    report(ActivityKind::kSync, names.wait, start_ns, last_ns, 0);
    report(ActivityKind::kSync, names.sync, last_ns, time(), 0);
  }

  // The meeting after an exchange: part of what a collective costs, however early the ranks came.
  void meet_again(const CollectiveNames& names) {
    const int64_t start_ns = time();
    shared_.barrier.meet(sink_ != nullptr);
    report(ActivityKind::kSync, names.sync, start_ns, time(), 0);
  }

  [[nodiscard]] int64_t time() const { return sink_ != nullptr ? now_ns() : 0; }
  void report(ActivityKind kind, std::string_view name, int64_t start_ns, int64_t end_ns,
              int64_t bytes) {
    if (sink_ == nullptr || end_ns <= start_ns) return;
    sink_->record(
        {.kind = kind, .name = name, .start_ns = start_ns, .end_ns = end_ns, .bytes = bytes});
  }

  Shared& shared_;
  int rank_;
  int parity_ = 0;
  ActivitySink* sink_ = nullptr;
};

CommunicatorGroup::CommunicatorGroup(int world_size, AllReduceKind kind) {
  TRIPTYCH_CHECK(world_size >= 1, "a group has at least one rank");
  shared_ = std::make_unique<Shared>(world_size, kind);
  for (int rank = 0; rank < world_size; ++rank) shared_->ranks.emplace_back(*shared_, rank);
}

CommunicatorGroup::~CommunicatorGroup() = default;

int CommunicatorGroup::world_size() const { return shared_->world_size; }

Communicator& CommunicatorGroup::communicator(int rank) {
  TRIPTYCH_CHECK(rank >= 0 && rank < shared_->world_size, "no such rank");
  return shared_->ranks[static_cast<size_t>(rank)];
}

void CommunicatorGroup::abort() noexcept { shared_->barrier.abort(); }

void CommunicatorGroup::reset() noexcept {
  shared_->barrier.reset();
  for (Rank& rank : shared_->ranks) rank.reset();
}

std::string_view all_reduce_name(AllReduceKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

Result<AllReduceKind> parse_all_reduce(std::string_view text) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == text) return static_cast<AllReduceKind>(i);
  }
  const std::vector<std::string> names(kKindNames.begin(), kKindNames.end());
  return fail(
      ErrorCode::kInvalidArgument,
      "\"" + std::string(text) + "\" is no all-reduce, expected one of " + join(names, ", "));
}

}  // namespace triptych
