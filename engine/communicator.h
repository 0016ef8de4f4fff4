// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Communicator: how the ranks of one tensor-parallel engine exchange activations.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "base/result.h"
#include "engine/ops.h"
#include "profiler/phase.h"

namespace triptych {

/// The `allreduce` axis.
enum class AllReduceKind : uint8_t {
  kAuto,     ///< One-shot for small messages, two-shot for large ones.
  kOneShot,  ///< Every rank reads the whole message of every rank: one meeting of the ranks.
  kTwoShot,  ///< Reduce-scatter and all-gather, a part of the message a rank: two meetings.
  kStub,     ///< Keeps shapes and exchanges nothing. Results are wrong by intent; the time that is
             ///< left is that of a stack without communication.
};

[[nodiscard]] std::string_view all_reduce_name(AllReduceKind kind);  ///< "oneshot"
/// Errors: kInvalidArgument listing the names.
[[nodiscard]] Result<AllReduceKind> parse_all_reduce(std::string_view text);

/// Thrown out of a collective when another rank has failed. The engine catches it where it catches
/// std::bad_alloc; no other room sees it.
class CommunicationAborted : public std::runtime_error {
 public:
  CommunicationAborted() : std::runtime_error("another rank failed") {}
};

/// One rank's end. Every rank calls the same collectives in the same order with the same shapes,
/// each from its own thread. Tensors are dense, in the device's element type (f32 on the CPU).
///
/// Reported to the sink, if there is one, for the collective NAME ("all_reduce", "all_gather"):
///   sync NAME_wait         until the last rank has arrived: what the other ranks cost this one
///   sync NAME_sync         from then until this rank runs again, and until all ranks are done
///   collective NAME_stage  copies into memory that the other ranks read, where the method needs it
///   collective NAME        the exchange; `bytes` is the message: that of `x`, or of `whole`
/// so that algorithm bandwidth is bytes / time; an all-reduce of n ranks moves 2 (n - 1) / n of it
/// over each rank's link (bus bandwidth).
class Communicator {
 public:
  virtual ~Communicator() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  virtual void set_sink(ActivitySink* sink) = 0;

  /// x = x of rank 0 + x of rank 1 + ..., element by element, in place, summed in that order for
  /// every kind but kStub: all ranks get the same bits, every time. `x` must be aligned to 64
  /// bytes. Throws CommunicationAborted.
  virtual void all_reduce(Tensor x) = 0;
  /// whole = the ranks' shards side by side, in order of rank, on every rank.
  /// shard: [rows, columns of this rank], whole: [rows, sum of the ranks' columns]; no overlap.
  /// Throws CommunicationAborted.
  virtual void all_gather(Tensor shard, Tensor whole) = 0;
};

/// Ranks that are threads of this process and exchange through its memory, in f32. A rank waits as
/// the workers of a thread pool do: it spins, yields, then sleeps.
class CommunicatorGroup {
 public:
  /// world_size >= 1.
  CommunicatorGroup(int world_size, AllReduceKind kind);
  ~CommunicatorGroup();
  CommunicatorGroup(const CommunicatorGroup&) = delete;
  CommunicatorGroup& operator=(const CommunicatorGroup&) = delete;

  [[nodiscard]] int world_size() const;
  /// The end of `rank`; lives as long as this object.
  [[nodiscard]] Communicator& communicator(int rank);

  /// Every collective, now waiting or called later, throws CommunicationAborted. From any thread.
  void abort() noexcept;
  /// Undoes abort(). Precondition: no rank is in a collective.
  void reset() noexcept;

 private:
  class Rank;
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace triptych
