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

/// Columns of x that a rank multiplies, and its chunks of them.
struct Columns {
  int first;
  int end;  // k at most
  int chunks;

  __device__ Columns(const StreamShape& shape, int rank, int k) {
    chunks = shape.parts / shape.ranks * shape.chunks_per_part;
    first = min(rank * chunks * kStreamChunkColumns, k);
    end = min(first + chunks * kStreamChunkColumns, k);
  }
};

// The last unit may reach past k, where w arrives as zeros: so must x be.
__device__ inline void clear_past_end(const StreamShape& shape, const Columns& columns, int m,
                                      unsigned char* x) {
  const int used = (columns.end - columns.first) * 2;
  const int vectors = (shape.x_stride - used) / 16;
  for (int i = static_cast<int>(threadIdx.x); i < m * vectors; i += kThreads) {
    *reinterpret_cast<uint4*>(x + i / vectors * shape.x_stride + used + i % vectors * 16) =
        make_uint4(0, 0, 0, 0);
  }
}

// Starts the copies of the rows as they are. A warp has a chunk, a lane a row.
template <class T>
__device__ void copy_rows(const StreamOp<T>& op, const StreamShape& shape, const Columns& columns,
                          uint32_t shared_x, uint32_t barriers, int thread) {
  const int lane = thread % kWarp;
  for (int chunk = thread / kWarp; chunk < columns.chunks; chunk += kFinishWarps) {
    const int column = chunk * kStreamChunkColumns;
    const int bytes = max(min(kStreamChunkColumns, columns.end - columns.first - column), 0) * 2;
    const uint32_t barrier = barriers + chunk * 8;
    if (lane == 0) arrive_and_expect(barrier, static_cast<uint32_t>(bytes * op.m));
    __syncwarp();
    if (lane < op.m && bytes > 0) {
      copy_bulk(shared_x + lane * shape.x_stride + column * 2,
                op.x + static_cast<int64_t>(lane) * op.k + columns.first + column,
                static_cast<uint32_t>(bytes), barrier);
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
                        uint32_t shared, int rank, int thread)
      : op_(op),
        shape_(shape),
        columns_(shape, rank, op.k),
        memory_(memory),
        shared_(shared),
        first_part_(rank * (shape.parts / shape.ranks)),
        warp_(thread / kWarp),
        lane_(thread % kWarp),
        thread_(thread) {}

  /// Waits for the kernels before this one on the way.
  __device__ void run() {
    const uint32_t raw = shared_ + shape_.x_barriers + columns_.chunks * 8;
    int vector = columns_.first / 8 + thread_;
    Vector8<T> gain = load_gain(vector);
    wait_for_previous_kernels();
    copy_rows(op_, shape_, columns_, shared_ + shape_.x, raw, thread_);
    choose_scales();
    int part = first_part_;
    int left = shape_.chunks_per_part;  // of the part
#pragma unroll 1
    for (int chunk = 0; chunk < columns_.chunks; ++chunk) {
      const Vector8<T> next_gain = load_gain(vector + kChunkVectors);
      wait_for_barrier(raw + chunk * 8, 0);
      if (vector < columns_.end / 8) multiply(vector - columns_.first / 8, gain);
      __syncwarp();
      if (lane_ == 0) arrive_at_barrier(shared_ + shape_.x_barriers + chunk * 8);
      vector += kChunkVectors;
      gain = next_gain;
      if (--left == 0) {
        store_squares(part++);
        left = shape_.chunks_per_part;
      }
    }
    if (lane_ < shape_.ranks) arrive<kCluster>(of_rank_of_lane(shared_ + shape_.squares_barrier));
  }
  /// What the sums of a row are multiplied by, when all ranks have sent their squares.
  __device__ float factor(int row) const {
    wait_for_ranks<kCluster>(shared_ + shape_.squares_barrier, 0);
    float scale = 1.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) scale = r == row ? scale_[r] : scale;
    const float* squares = reinterpret_cast<const float*>(memory_ + shape_.squares);
    float sum = 0.0f;
    for (int i = 0; i < shape_.parts * kFinishWarps; ++i) sum += squares[i * op_.m + row];
    return rsqrtf(sum / static_cast<float>(op_.k) + op_.eps) / scale;
  }

 private:
  static constexpr int kRowsTogether = kRows < 4 ? kRows : 4;  // whose loads are in flight at once

  __device__ Vector8<T> load_gain(int vector) const {
    return vector < columns_.end / 8 ? load_shared_by_blocks(op_.norm, vector) : Vector8<T>();
  }
  // Eight lanes look at a row.
  __device__ void choose_scales() {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const int row = min(i + lane_ / 8, op_.m - 1);
      float sum = sum_of_squares(load_once(op_.x + static_cast<int64_t>(row) * op_.k, lane_ % 8));
#pragma unroll
      for (int offset = 1; offset < 8; offset *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, offset);
      }
      const int exponent = (__float_as_int(sum * (1.0f / 64.0f) + op_.eps) >> 23) - 127;
      const float scale = __int_as_float((127 - (exponent >> 1)) << 23);
#pragma unroll
      for (int j = 0; j < 4 && i + j < kRows; ++j) {
        scale_[i + j] = __shfl_sync(kAllLanes, scale, j * 8);
        sum_[i + j] = 0.0f;
      }
    }
  }
  // This thread's vector of every row, in place.
  __device__ void multiply(int vector, const Vector8<T>& gain) {
    float2 g[Vector8<T>::kPairs];
#pragma unroll
    for (int p = 0; p < Vector8<T>::kPairs; ++p) g[p] = unpack<T>(gain.words[p]);
    unsigned char* x = memory_ + shape_.x + vector * 16;
#pragma unroll
    for (int first = 0; first < kRows; first += kRowsTogether) {
      if (first >= op_.m) break;
      Vector8<T> v[kRowsTogether];
#pragma unroll
      for (int i = 0; i < kRowsTogether; ++i) {
        v[i] =
            *reinterpret_cast<const Vector8<T>*>(x + min(first + i, op_.m - 1) * shape_.x_stride);
      }
#pragma unroll
      for (int i = 0; i < kRowsTogether; ++i) {
        const int r = first + i;
        if (r >= op_.m) break;
        sum_[r] += sum_of_squares(v[i]);
        Vector8<T> scaled;
#pragma unroll
        for (int p = 0; p < Vector8<T>::kPairs; ++p) {
          const float2 f = unpack<T>(v[i].words[p]);
          scaled.set(p, f.x * scale_[r] * g[p].x, f.y * scale_[r] * g[p].y);
        }
        *reinterpret_cast<Vector8<T>*>(x + r * shape_.x_stride) = scaled;
      }
    }
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
        store_shared<kCluster>(of_rank_of_lane(shared_ + shape_.squares + index * 4), sum);
      }
    }
  }
  // The same place in the shared memory of the rank that this lane speaks to.
  __device__ uint32_t of_rank_of_lane(uint32_t address) const {
    return kCluster ? shared_address_of_rank(address, static_cast<unsigned>(lane_)) : address;
  }

  const StreamOp<T>& op_;
  const StreamShape& shape_;
  Columns columns_;
  unsigned char* memory_;
  uint32_t shared_;
  int first_part_;
  int warp_;
  int lane_;
  int thread_;
  float scale_[kRows];
  float sum_[kRows];
};

}  // namespace triptych::stream
