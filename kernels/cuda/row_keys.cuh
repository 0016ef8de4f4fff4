// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RowKeys: the keys of one row of logits, shared by a group of blocks, and sums over them.
#pragma once

#include <cstdint>

#include "kernels/common/block_group.cuh"
#include "kernels/common/order_key.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/sample_math.h"
#include "kernels/cuda/sample_rows.cuh"

namespace triptych::sampling {

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kRoundBytes = kThreads * static_cast<int>(sizeof(uint4));
// 80 KiB: with Shared below what a block gets on any device.
inline constexpr int kMaxHeldRounds = 10;
inline constexpr int kMaxRounds = static_cast<int>(kMaxSampleVocab / kVectorWidth / kThreads);
inline constexpr int kMaxBlocks = 8;
inline constexpr int kInFlight = 4;      // vectors of a thread
inline constexpr int kValues = 3;        // reduced together
inline constexpr int kMaxFew = 256;      // largest top_k of the short way
inline constexpr int kMaxListed = 1024;  // candidates; more go the long way

struct Sum {
  static __device__ uint64_t of(uint64_t a, uint64_t b) { return a + b; }
};
struct Max {
  static __device__ uint64_t of(uint64_t a, uint64_t b) { return max(a, b); }
};
struct Values {
  uint64_t v[kValues] = {};
};

struct Few {
  uint64_t listed[kMaxListed];  // candidates, packed, in no order
  uint64_t ranked[kMaxFew];     // the first top_k of them, the likeliest first
  uint64_t weights[kMaxFew];
};

struct Shared {
  uint64_t warps[kWarps][kValues];
  uint64_t blocks[2][kMaxBlocks][kValues];  // of reductions with even and odd numbers
  union {
    uint64_t parts[kMaxRounds * kWarps];  // sums of a warp in a round, in order of index
    Few few;
  };
  int num_listed;
  uint64_t rest;  // of a target within the part that has it
  int part;
  int found;
};

template <class T, int kBlocks>
class RowKeys {
 protected:
  using Group = BlockGroup<kBlocks>;

  // held: [held_rounds, kThreads], shared memory.
  __device__ RowKeys(const SampleArgs<T>& args, int64_t row, Shared& shared, uint4* held,
                     int held_rounds)
      : logits_(args.logits + row * args.vocab_size, args.vocab_size),
        shared_(shared),
        held_(held + threadIdx.x),
        held_rounds_(held_rounds) {
    const int vectors = (static_cast<int>(args.vocab_size) + kVectorWidth - 1) / kVectorWidth;
    const int share = (vectors + kBlocks - 1) / kBlocks;
    first_ = Group::rank() * share;
    count_ = max(0, min(share, vectors - first_));
    rounds_ = (share + kThreads - 1) / kThreads;  // the same in every block
    for (int r = 0; r < held_rounds; r += kInFlight) {
      Vector8<T> loaded[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) loaded[u] = load(r + u);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (r + u >= held_rounds) break;
        const Vector8<T> keys = to_keys(loaded[u]);
        held_[(r + u) * kThreads] =
            make_uint4(keys.words[0], keys.words[1], keys.words[2], keys.words[3]);
      }
    }
    if (threadIdx.x == 0) shared_.num_listed = 0;
    Group::barrier();  // the others run: their shared memory can be written
  }

  // The vector of this thread in round r; those beyond its share are NaN.
  __device__ Vector8<T> load(int r) const {
    const int i = r * kThreads + static_cast<int>(threadIdx.x);
    if (i < count_) return logits_.load(first_ + i);
    constexpr uint32_t kTwoNans = 0xFFFFFFFF;
    return {{kTwoNans, kTwoNans, kTwoNans, kTwoNans}};
  }
  // Two keys a word.
  static __device__ Vector8<T> to_keys(const Vector8<T>& vector) {
    Vector8<T> keys;
#pragma unroll
    for (int w = 0; w < kVectorWidth / 2; ++w) {
      keys.words[w] = order_key<T>(vector.words[w] & 0xFFFF) | order_key<T>(vector.words[w] >> 16)
                                                                   << 16;
    }
    return keys;
  }

  __device__ Vector8<T> keys_of(int r) const {
    if (r >= held_rounds_) return to_keys(load(r));
    const uint4 raw = held_[r * kThreads];
    return {{raw.x, raw.y, raw.z, raw.w}};
  }

  // body(round, keys) for every round of this thread. Not unrolled: the weights of many keys
  // together need more registers than there are.
  template <class Body>
  __device__ void for_each_round(const Body& body) const {
#pragma unroll 1
    for (int r = 0; r < rounds_; ++r) body(r, keys_of(r));
  }
  // body(key, index) for the keys of one vector.
  template <class Body>
  __device__ void for_each_in(int r, const Vector8<T>& keys, const Body& body) const {
    const int index = (first_ + r * kThreads + static_cast<int>(threadIdx.x)) * kVectorWidth;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      body((keys.words[i / 2] >> (16 * (i % 2))) & 0xFFFF, index + i);
    }
  }
  template <class Body>
  __device__ void for_each_key(const Body& body) const {
    for_each_round([&](int r, const Vector8<T>& keys) { for_each_in(r, keys, body); });
  }
  // The same for a body of a few instructions: what is not held is loaded several vectors at once.
  template <class Body>
  __device__ void for_each_key_of_many(const Body& body) const {
    const int held = min(held_rounds_, rounds_);
#pragma unroll 1
    for (int r = 0; r < held; ++r) for_each_in(r, keys_of(r), body);
#pragma unroll 1
    for (int r = held; r < rounds_; r += kInFlight) {
      Vector8<T> loaded[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) loaded[u] = load(r + u);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) for_each_in(r + u, to_keys(loaded[u]), body);
    }
  }

  // Every block's values to every block; all threads of the group come here.
  __device__ void exchange(const Values& mine) {
    parity_ ^= 1;  // a block may be a reduction ahead of one that still reads, not two
    if (threadIdx.x < kBlocks) {
      Shared* other = Group::in_block(&shared_, static_cast<int>(threadIdx.x));
#pragma unroll
      for (int j = 0; j < kValues; ++j) other->blocks[parity_][Group::rank()][j] = mine.v[j];
    }
    Group::barrier();
  }

  // Over all threads of the group; each gets the result.
  template <class Op>
  __device__ Values reduce(Values value) {
#pragma unroll
    for (int j = 0; j < kValues; ++j) value.v[j] = warp_reduce<Op>(value.v[j]);
    if (threadIdx.x % kWarpSize == 0) {
#pragma unroll
      for (int j = 0; j < kValues; ++j) shared_.warps[threadIdx.x / kWarpSize][j] = value.v[j];
    }
    __syncthreads();
    Values block;
    if (threadIdx.x < kWarpSize) {
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        block.v[j] = warp_reduce<Op>(threadIdx.x < kWarps ? shared_.warps[threadIdx.x][j] : 0);
      }
    }
    exchange(block);
    Values all;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      for (int b = 0; b < kBlocks; ++b) {
        all.v[j] = Op::of(all.v[j], shared_.blocks[parity_][b][j]);
      }
    }
    return all;
  }
  template <class Op>
  static __device__ uint64_t warp_reduce(uint64_t value) {
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      const uint64_t other = __shfl_xor_sync(kWholeWarp, value, offset);
      value = Op::of(value, other);
    }
    return value;
  }

  // Inclusive sums over the threads of the block.
  __device__ uint64_t scan_block(uint64_t value, uint64_t* total) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    uint64_t sum = inclusive_scan(value);
    if (threadIdx.x % kWarpSize == kWarpSize - 1) shared_.warps[warp][0] = sum;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      const uint64_t other = shared_.warps[w][0];
      *total += other;
      sum += w < warp ? other : 0;
    }
    return sum;
  }

  static __device__ uint64_t inclusive_scan(uint64_t value) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
      const uint64_t lower = __shfl_up_sync(kWholeWarp, value, offset);
      if (lane >= offset) value += lower;
    }
    return value;
  }

  LogitRow<T> logits_;
  Shared& shared_;
  uint4* held_;  // of this thread
  int held_rounds_;
  int first_ = 0;  // vector of this block
  int count_ = 0;
  int rounds_ = 0;
  int parity_ = 0;
};

}  // namespace triptych::sampling
