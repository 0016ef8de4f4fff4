// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// RowHistogram: how often each key occurs in a row of logits that a group of blocks shares, and
// sums over the threads of the group.
#pragma once

#include <cstdint>

#include "kernels/common/block_group.cuh"
#include "kernels/common/order_key.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/cuda/sample_rows.cuh"

namespace triptych::histogram {

inline constexpr int kThreads = 1024;
inline constexpr int kWarps = kThreads / kWarpSize;
inline constexpr int kMaxBlocks = 16;
inline constexpr int kWords = 32768;  // two keys each, 16 bits of count a key
inline constexpr int kHistogramBytes = kWords * static_cast<int>(sizeof(uint32_t));
inline constexpr int kUnroll = 4;  // vectors of a thread in flight
// Counts that left their 16 bits: 2^19 logits do so 8 times, and a neighbour's carry may add a
// pair of notes that cancel to each.
inline constexpr int kMaxNotes = 32;

/// Two sums that are formed together.
struct Pair {
  uint64_t a;
  uint64_t b;
};

struct Shared {
  Pair warps[kWarps];
  Pair blocks[2][kMaxBlocks];  // of exchanges with even and odd numbers
  uint64_t told[2][3];         // what the owners of the two thresholds tell all blocks
  uint32_t max_key;
  int num_notes;
  int32_t notes[kMaxNotes];  // key + 1: 65536 more of it; -(key + 1): as many fewer
  Pair before;               // of the part that has the token
  int part;
};

template <class T, int kBlocks>
class RowHistogram {
 protected:
  using Group = BlockGroup<kBlocks>;
  // Keys and words that a thread looks after once the counts are there: neighbours, so that the
  // threads of the group are in the order of the keys.
  static constexpr int kThreadWords = kWords / kThreads / kBlocks;

  __device__ RowHistogram(const SampleArgs<T>& args, int64_t row, Shared& shared, uint32_t* counts)
      : logits_(args.logits + row * args.vocab_size, args.vocab_size),
        shared_(shared),
        counts_(counts) {
    const int vectors = (static_cast<int>(args.vocab_size) + kVectorWidth - 1) / kVectorWidth;
    const int share = (vectors + kBlocks - 1) / kBlocks;
    first_ = Group::rank() * share;
    count_ = max(0, min(share, vectors - first_));
    rounds_ = (share + kThreads - 1) / kThreads;  // the same in every block
  }

  // Needs no logits. counted: there will be counts.
  __device__ void clear(bool counted) {
    auto* const vectors = reinterpret_cast<uint4*>(counts_);
    const int end = counted ? kHistogramBytes / static_cast<int>(sizeof(uint4)) : 0;
    for (int i = static_cast<int>(threadIdx.x); i < end; i += kThreads) {
      vectors[i] = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) {
      shared_.max_key = kNanKey;
      shared_.num_notes = 0;
    }
    __syncthreads();
  }

  // Where the word of a key lies: a thread's words are kThreads apart, free of bank conflicts.
  static __device__ int place(uint32_t key) {
    const uint32_t word = key / 2;
    const uint32_t thread = word / kThreadWords;  // of the group
    const uint32_t j = thread / kThreads * kThreadWords + word % kThreadWords;
    return static_cast<int>(j * kThreads + thread % kThreads);
  }

  // body(round, vector) for this thread's vectors, several in flight; those past its share are NaN.
  template <class Body>
  __device__ void for_each_vector(const Body& body) const {
#pragma unroll 1
    for (int r = 0; r < rounds_; r += kUnroll) {
      Vector8<T> loaded[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) loaded[u] = load(r + u);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (r + u < rounds_) body(r + u, loaded[u]);
      }
    }
  }
  __device__ Vector8<T> load(int r) const {
    const int i = r * kThreads + static_cast<int>(threadIdx.x);
    if (i < count_) return logits_.load(first_ + i);
    constexpr uint32_t kTwoNans = 0xFFFFFFFF;
    return {{kTwoNans, kTwoNans, kTwoNans, kTwoNans}};
  }
  // Of the vector that this thread has in round r.
  __device__ int index_of(int r) const {
    return (first_ + r * kThreads + static_cast<int>(threadIdx.x)) * kVectorWidth;
  }

  // Counts the row. When it returns, the largest key is known and every block's counts can be read.
  __device__ void count_keys() {
    uint32_t highest = kNanKey;
    for_each_vector([&](int, const Vector8<T>& vector) {
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i) {
        const uint32_t key = order_key<T>(vector.words[i / 2] >> (16 * (i % 2)) & 0xFFFF);
        if (key == kNanKey) continue;
        highest = max(highest, key);
        add_one(key);
      }
    });
    share_largest(highest);
    int notes = 0;
    for (int b = 0; b < kBlocks; ++b) notes += Group::in_block(&shared_, b)->num_notes;
    noted_ = notes > 0;
  }
  // Finds the largest key alone. __hmax2 and fmaxf give the number where one operand is NaN.
  __device__ void find_largest() {
    float value = nanf("");
    for_each_vector([&](int, const Vector8<T>& vector) {
      const auto pair =
          __hmax2(__hmax2(vector.pair(0), vector.pair(1)), __hmax2(vector.pair(2), vector.pair(3)));
      const float2 both = PairType<T>::to_float(pair);
      value = fmaxf(value, fmaxf(both.x, both.y));
    });
    Vector8<T> holder;
    holder.set(0, value, value);
    share_largest(order_key<T>(holder.words[0] & 0xFFFF));
  }
  __device__ void share_largest(uint32_t mine) {
    mine = __reduce_max_sync(kWholeWarp, mine);
    if (threadIdx.x % kWarpSize == 0) atomicMax(&shared_.max_key, mine);
    Group::barrier();
    for (int b = 0; b < kBlocks; ++b) {
      max_key_ = max(max_key_, Group::in_block(&shared_, b)->max_key);
    }
  }

  // A count that leaves its 16 bits is noted, and what it carries into its neighbour taken back.
  __device__ void add_one(uint32_t key) {
    uint32_t* const word = counts_ + place(key);
    const uint32_t shift = 16 * (key % 2);
    const uint32_t old = atomicAdd(word, 1u << shift);
    if ((old >> shift & 0xFFFF) != 0xFFFF) [[likely]]
      return;
    note(static_cast<int32_t>(key) + 1);
    if (shift != 0) return;
    const int32_t neighbour = static_cast<int32_t>(key) + 2;
    if (old >> 16 == 0xFFFF) note(neighbour);
    if (atomicSub(word, 0x10000u) >> 16 == 0) note(-neighbour);
  }
  __device__ void note(int32_t entry) { shared_.notes[atomicAdd(&shared_.num_notes, 1)] = entry; }

  // body(key, count) for the two keys of word j of thread `thread` of this block, counted over the
  // logits of all blocks.
  template <class Body>
  __device__ void for_each_in_word(int thread, int j, const Body& body) const {
    const int word = (Group::rank() * kThreads + thread) * kThreadWords + j;
    const int at = (Group::rank() * kThreadWords + j) * kThreads + thread;
    uint32_t low = 0;
    uint32_t high = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint32_t counts = *Group::in_block(counts_ + at, b);
      low += counts & 0xFFFF;
      high += counts >> 16;
    }
    for (int b = 0; b < kBlocks; ++b) add_notes(b, 2 * word, &low, &high);
    body(static_cast<uint32_t>(2 * word), low);
    body(static_cast<uint32_t>(2 * word + 1), high);
  }
  __device__ void add_notes(int block, int low_key, uint32_t* low, uint32_t* high) const {
    if (!noted_) return;
    const Shared* const shared = Group::in_block(&shared_, block);
    for (int n = 0; n < shared->num_notes; ++n) {
      const int32_t entry = shared->notes[n];
      const int key = abs(entry) - 1;
      const uint32_t amount = entry > 0 ? 65536u : 0u - 65536u;
      if (key == low_key) *low += amount;
      if (key == low_key + 1) *high += amount;
    }
  }
  // Every block's sums to every block; all threads of the group come here with the block's sums.
  __device__ const Pair* exchange(const Pair& mine) {
    parity_ ^= 1;  // a block may be an exchange ahead of one that still reads, not two
    if (threadIdx.x < kBlocks) {
      Group::in_block(&shared_, static_cast<int>(threadIdx.x))->blocks[parity_][Group::rank()] =
          mine;
    }
    Group::barrier();
    return shared_.blocks[parity_];
  }

  static __device__ Pair warp_scan(Pair value) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
      const uint64_t a = __shfl_up_sync(kWholeWarp, value.a, offset);
      const uint64_t b = __shfl_up_sync(kWholeWarp, value.b, offset);
      value.a += lane >= offset ? a : 0;
      value.b += lane >= offset ? b : 0;
    }
    return value;
  }
  static __device__ Pair from_lane(const Pair& value, int lane) {
    return {__shfl_sync(kWholeWarp, value.a, lane), __shfl_sync(kWholeWarp, value.b, lane)};
  }

  // Inclusive sums over the threads of the block, and those of the whole block.
  __device__ Pair scan_block(const Pair& value, Pair* total) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    Pair sum = warp_scan(value);
    if (lane == kWarpSize - 1) shared_.warps[warp] = sum;
    __syncthreads();
    const Pair warps = warp_scan(shared_.warps[lane]);
    *total = from_lane(warps, kWarpSize - 1);
    const Pair lower = from_lane(warps, max(warp - 1, 0));
    if (warp > 0) sum = {sum.a + lower.a, sum.b + lower.b};
    __syncthreads();  // the warps' sums were read
    return sum;
  }

  LogitRow<T> logits_;
  Shared& shared_;
  uint32_t* counts_;  // [kWords], shared memory
  int first_ = 0;     // vector of this block
  int count_ = 0;
  int rounds_ = 0;
  int parity_ = 0;
  uint32_t max_key_ = kNanKey;
  bool noted_ = false;
};

}  // namespace triptych::histogram
