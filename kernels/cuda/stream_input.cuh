// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// How x comes in: rows in shared memory, as they are or times the weight of the norm. The finishing
// warps bring it in chunks of columns, and the streaming warps begin when the first one is there.
#pragma once

#include "kernels/common/grid_dependency.cuh"
#include "kernels/cuda/stream_ring.cuh"

namespace triptych::stream {

inline constexpr int kFinishThreads = kFinishWarps * kWarp;
inline constexpr int kChunkVectors = kStreamChunkColumns / 8;
static_assert(kChunkVectors == kFinishThreads, "a thread has one vector of each row of a chunk");
inline constexpr int kBatchRows = 8;  // of x, whose vectors a thread holds at a time

/// Columns of a part of k, at most.
struct PartColumns {
  int first;
  int end;

  __device__ PartColumns(const StreamShape& shape, int part, int k) {
    const int columns = shape.units_per_part * kStreamUnitColumns;
    first = min(part * columns, k);
    end = min(first + columns, k);
  }
};

// The last unit may reach past k, where w arrives as zeros: so must x be.
__device__ inline void clear_past_end(const StreamShape& shape, int first_part, const int m, int k,
                                      unsigned char* x) {
  const PartColumns last(shape, first_part + shape.parts / shape.ranks - 1, k);
  const int used = (last.end - PartColumns(shape, first_part, k).first) * 2;
  const int vectors = (shape.x_stride - used) / 16;
  for (int i = static_cast<int>(threadIdx.x); i < m * vectors; i += kThreads) {
    *reinterpret_cast<uint4*>(x + i / vectors * shape.x_stride + used + i % vectors * 16) =
        make_uint4(0, 0, 0, 0);
  }
}

// Starts the copies of the rows as they are: a thread has a chunk.
template <class T>
__device__ void copy_rows(const StreamOp<T>& op, const StreamShape& shape, int first_part,
                          uint32_t shared, int thread) {
  const int chunks = shape.parts / shape.ranks * shape.chunks_per_part;
  const int first_column = PartColumns(shape, first_part, op.k).first;
  for (int chunk = thread; chunk < chunks; chunk += kFinishThreads) {
    const PartColumns part(shape, first_part + chunk / shape.chunks_per_part, op.k);
    const int begin = part.first + chunk % shape.chunks_per_part * kStreamChunkColumns;
    const int bytes = max(min(kStreamChunkColumns, part.end - begin), 0) * 2;
    const uint32_t barrier = shared + shape.x_barriers + chunk * 8;
    arrive_and_expect(barrier, static_cast<uint32_t>(bytes * op.m));
    for (int r = 0; r < op.m && bytes > 0; ++r) {
      copy_bulk(shared + shape.x + r * shape.x_stride + (begin - first_column) * 2,
                op.x + static_cast<int64_t>(r) * op.k + begin, static_cast<uint32_t>(bytes),
                barrier);
    }
  }
}

// As VectorOf::get, but for bf16 by bit operations: from a pair of 16-bit numbers the compiler
// makes two registers where one is enough.
template <class T>
__device__ float2 unpack(uint32_t word) {
  return PairType<T>::to_float(reinterpret_cast<const typename PairType<T>::Type&>(word));
}
template <>
__device__ inline float2 unpack<__nv_bfloat16>(uint32_t word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000u));
}
template <class T>
__device__ float sum_of_squares(const Vector8<T>& v) {
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < Vector8<T>::kPairs; ++p) {
    const float2 f = unpack<T>(v.words[p]);
    sum += f.x * f.x + f.y * f.y;
  }
  return sum;
}

/// The RMS norm of x in two steps, because 1 / RMS is known only when all of x has been read:
/// rows x * gain * 2^e, rounded to T once, are multiplied with w, and the sums are multiplied by
/// 1 / (RMS 2^e). e brings the row near 1 by its first 64 columns: f16 neither overflows nor loses
/// bits. All finishing threads share every row, whatever m is: the order of the sum of squares
/// depends on k alone.
template <class T, int kRows, bool kCluster>
class NormedRows {
 public:
  __device__ NormedRows(const StreamOp<T>& op, const StreamShape& shape, unsigned char* memory,
                        uint32_t shared, int first_part, int thread)
      : op_(op),
        shape_(shape),
        x_(memory + shape.x),
        squares_(reinterpret_cast<const float*>(memory + shape.squares)),
        shared_squares_(shared + shape.squares),
        x_barriers_(shared + shape.x_barriers),
        squares_barrier_(shared + shape.squares_barrier),
        first_part_(first_part),
        own_parts_(shape.parts / shape.ranks),
        first_vector_(PartColumns(shape, first_part, op.k).first / 8),
        warp_(thread / kWarp),
        lane_(thread % kWarp),
        thread_(thread) {}

  /// Waits for the kernels before this one on the way. One batch is on its way while another is
  /// multiplied: the next chunks, or the other half of the rows.
  __device__ void run() {
    Batch a;
    Batch b;
    Position at;
    load_gain(a, at);
    wait_for_previous_kernels();
    Vector8<T> samples[kSamples];
    load_samples(samples);
    load_rows<0>(a, at);
    choose_scales(samples);
    while (at.part < own_parts_) {
      const Position at_b = kHalves > 1 ? at : after(at);
      load_gain(b, at_b);
      load_rows<kHalves - 1>(b, at_b);
      multiply<0>(a, at);
      at = after(at_b);
      load_gain(a, at);
      load_rows<0>(a, at);
      multiply<kHalves - 1>(b, at_b);
    }
    if (lane_ < shape_.ranks) arrive<kCluster>(of_rank_of_lane(squares_barrier_));
  }
  /// What the sums of a row are multiplied by, when all ranks have sent their squares.
  __device__ float factor(int row) const {
    wait_for_ranks<kCluster>(squares_barrier_, 0);
    float scale = 1.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) scale = r == row ? scale_[r] : scale;
    float sum = 0.0f;
    for (int i = 0; i < shape_.parts * kFinishWarps; ++i) sum += squares_[i * op_.m + row];
    return rsqrtf(sum / static_cast<float>(op_.k) + op_.eps) / scale;
  }

 private:
  static constexpr int kHalves = kRows > kBatchRows ? 2 : 1;
  static constexpr int kRowsLoaded = kRows / kHalves;
  static constexpr int kChunks = kRows == 1 ? 4 : kRows <= 4 ? 2 : 1;  // loaded together
  static constexpr int kSamples = (kRows + 3) / 4;
  struct Batch {
    Vector8<T> gain[kChunks];
    Vector8<T> v[kChunks][kRowsLoaded];
  };
  struct Position {
    int part = 0;  // of the rank's own
    int chunk = 0;
  };

  __device__ Position after(Position at) const {
    at.chunk += kChunks;
    if (at.chunk >= shape_.chunks_per_part) {
      at.chunk = 0;
      ++at.part;
    }
    return at;
  }
  // This thread's vector of chunk c of the batch; -1: none.
  __device__ int vector_of(const Position& at, int c) const {
    if (at.part >= own_parts_ || at.chunk + c >= shape_.chunks_per_part) return -1;
    const PartColumns columns(shape_, first_part_ + at.part, op_.k);
    const int vector = columns.first / 8 + (at.chunk + c) * kChunkVectors + thread_;
    return vector < columns.end / 8 ? vector : -1;
  }
  __device__ void load_gain(Batch& in, const Position& at) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int vector = vector_of(at, c);
      if (vector >= 0) in.gain[c] = load_shared_by_blocks(op_.norm, vector);
    }
  }
  template <int kHalf>
  __device__ void load_rows(Batch& in, const Position& at) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int vector = vector_of(at, c);
#pragma unroll
      for (int i = 0; i < kRowsLoaded; ++i) {
        const int r = kHalf * kBatchRows + i;
        if (vector >= 0 && r < op_.m) in.v[c][i] = load_once(row(r), vector);
      }
    }
  }

  // Eight lanes look at a row.
  __device__ void load_samples(Vector8<T> (&samples)[kSamples]) const {
#pragma unroll
    for (int i = 0; i < kSamples; ++i) {
      samples[i] = load_once(row(min(i * 4 + lane_ / 8, op_.m - 1)), lane_ % 8);
    }
  }
  __device__ void choose_scales(const Vector8<T> (&samples)[kSamples]) {
#pragma unroll
    for (int i = 0; i < kSamples; ++i) {
      float sum = sum_of_squares(samples[i]);
#pragma unroll
      for (int offset = 1; offset < 8; offset *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      const int exponent = (__float_as_int(sum * (1.0f / 64.0f) + op_.eps) >> 23) - 127;
      const float scale = __int_as_float((127 - (exponent >> 1)) << 23);
#pragma unroll
      for (int j = 0; j < 4 && i * 4 + j < kRows; ++j) {
        const int r = i * 4 + j;
        scale_[r] = __shfl_sync(kAllLanes, scale, j * 8);
        sum_[r] = 0.0f;
      }
    }
  }

  template <int kHalf>
  __device__ void multiply(const Batch& in, const Position& at) {
    if (at.part >= own_parts_) return;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int vector = vector_of(at, c);
#pragma unroll
      for (int i = 0; i < kRowsLoaded; ++i) {
        const int r = kHalf * kBatchRows + i;
        if (vector < 0 || r >= op_.m) continue;
        sum_[r] += sum_of_squares(in.v[c][i]);
        store_scaled(r, vector, in.v[c][i], in.gain[c]);
      }
      if (kHalf != kHalves - 1 || at.chunk + c >= shape_.chunks_per_part) continue;
      __syncwarp();
      if (lane_ == 0) {
        arrive_at_barrier(x_barriers_ + (at.part * shape_.chunks_per_part + at.chunk + c) * 8);
      }
    }
    if (kHalf == kHalves - 1 && after(at).part != at.part) store_squares(first_part_ + at.part);
  }
  __device__ void store_scaled(int r, int vector, const Vector8<T>& v, const Vector8<T>& gain) {
    Vector8<T> scaled;
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) {
      const float2 f = unpack<T>(v.words[p]);
      const float2 g = unpack<T>(gain.words[p]);
      scaled.set(p, f.x * scale_[r] * g.x, f.y * scale_[r] * g.y);
    }
    store(reinterpret_cast<T*>(x_ + r * shape_.x_stride), vector - first_vector_, scaled);
  }
  __device__ void store_squares(int part) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= op_.m) break;
      float sum = sum_[r];
      sum_[r] = 0.0f;
#pragma unroll
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      if (lane_ < shape_.ranks) {
        const int index = (part * kFinishWarps + warp_) * op_.m + r;
        store_shared<kCluster>(of_rank_of_lane(shared_squares_ + index * 4), sum);
      }
    }
  }
  // The same place in the shared memory of the rank that this lane speaks to.
  __device__ uint32_t of_rank_of_lane(uint32_t address) const {
    return kCluster ? shared_address_of_rank(address, static_cast<unsigned>(lane_)) : address;
  }
  __device__ const T* row(int r) const { return op_.x + static_cast<int64_t>(r) * op_.k; }

  const StreamOp<T>& op_;
  const StreamShape& shape_;
  unsigned char* x_;
  const float* squares_;  // [parts * kFinishWarps, m]
  uint32_t shared_squares_;
  uint32_t x_barriers_;
  uint32_t squares_barrier_;
  int first_part_;
  int own_parts_;
  int first_vector_;
  int warp_;
  int lane_;
  int thread_;
  float scale_[kRows];
  float sum_[kRows];
};

}  // namespace triptych::stream
