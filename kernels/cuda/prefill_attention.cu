// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Prefill attention on any device from sm_80 on, after FlashAttention-2 (Dao 2023): a block holds a
// tile of queries and passes over the keys with a running softmax. The rows of a tile are pairs of
// a token and a query head of one KV head, so that each key is loaded once for the whole group and
// a chunk of few tokens fills a tile as far as it can.
#include "kernels/common/cp_async.cuh"
#include "kernels/common/exp2.cuh"
#include "kernels/common/grid_dependency.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/cuda/kv_rows.cuh"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/shared_limit.h"

namespace triptych {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

template <class T>
struct Params {
  AttentionArgs<T> args;
  float scale_log2;  // the softmax works in powers of 2
  int group;         // query heads of a KV head
  int dim;           // head_dim
};

// kDim: head_dim rounded up to 64, 128 or 256, chunks past it are zeros. 32 rows a warp read each
// key from shared memory half as often as 16; at 256 their sums would not fit the registers.
template <int kDim>
struct Tile {
  static constexpr int kRowTiles = kDim <= 128 ? 2 : 1;  // of 16 rows, for each warp
  static constexpr int kRows = kWarps * kRowTiles * 16;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  static constexpr int kKeyBytes = kKeys * kDim * 2;
  static constexpr int kKeysAt = kRows * kDim * 2;  // behind the queries
  static constexpr int kValuesAt = kKeysAt + kKeyBytes;
  static constexpr int kBytes = kValuesAt + kKeyBytes;
  static constexpr int kChunks = kDim / kChunk;  // of a row
};

// The part of the launch that a block works on.
struct Work {
  int sequence = -1;  // none: more blocks than tiles were launched
  int first_row = 0;  // of the tile, counted in the sequence's pairs of token and head
};

// Tiles of `tile_rows` rows are numbered through all sequences; each warp finds tile `index`.
__device__ Work find_work(const int32_t* row_starts, int num_sequences, int group, int tile_rows,
                          int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int base = 0; base < num_sequences; base += 32) {
    const int sequence = base + lane;
    int tiles = 0;
    if (sequence < num_sequences) {
      const int rows = (row_starts[sequence + 1] - row_starts[sequence]) * group;
      tiles = (rows + tile_rows - 1) / tile_rows;
    }
    int end = tiles;  // of this sequence's tiles
    for (int offset = 1; offset < 32; offset *= 2) {
      const int before = __shfl_up_sync(kAllLanes, end, offset);
      if (lane >= offset) end += before;
    }
    const unsigned reached = __ballot_sync(kAllLanes, end > index);
    if (reached != 0) {
      const int found = __ffs(static_cast<int>(reached)) - 1;
      const int begin = __shfl_sync(kAllLanes, end - tiles, found);
      return {base + found, (index - begin) * tile_rows};
    }
    index -= __shfl_sync(kAllLanes, end, 31);
  }
  return {};
}

// Copies of tiles of keys and values into shared memory, by the whole block.
template <class T, int kDim>
class KeyTiles {
 public:
  __device__ KeyTiles(const Params<T>& p, int sequence, int kv_head, int length, TokenRange tokens)
      : rows_(p.args.kv, sequence, kv_head, length), tokens_(tokens), dim_(p.dim) {
    const int chunk = static_cast<int>(threadIdx.x) % L::kChunks;
    k_ = p.args.kv.k + chunk * kChunk;
    v_ = p.args.kv.v + chunk * kChunk;
    in_dim_ = chunk * kChunk < dim_;
  }

  // Lane l gets the row of group l of the tile.
  [[nodiscard]] __device__ int look_up(int tile) const {
    const int group = static_cast<int>(threadIdx.x) % 32;
    const int token = tile * L::kKeys + group * kTokenGroup;
    const bool needed = group < L::kKeys / kTokenGroup && token < tokens_.end &&
                        token + kTokenGroup > tokens_.begin;
    return needed ? rows_.row(static_cast<unsigned>(token / kTokenGroup)) : 0;
  }
  __device__ void copy_keys(int tile, int rows, uint32_t shared) const {
    copy(k_, tile, rows, shared);
  }
  __device__ void copy_values(int tile, int rows, uint32_t shared) const {
    copy(v_, tile, rows, shared);
  }

 private:
  using L = Tile<kDim>;

  __device__ void copy(const T* base, int tile, int rows, uint32_t shared) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int token0 = tile * L::kKeys;
    const bool whole = token0 >= tokens_.begin && token0 + L::kKeys <= tokens_.end;
    constexpr int kStep = kThreads / L::kChunks;  // keys that the block copies at once
    const uint32_t first = shared + tile_byte<L::kKeys>(thread / L::kChunks,
                                                        static_cast<unsigned>(thread % L::kChunks));
#pragma unroll
    for (int i = 0; i < L::kKeys; i += kStep) {
      const int key = i + thread / L::kChunks;
      const int row = __shfl_sync(kAllLanes, rows, key / kTokenGroup) + key % kTokenGroup;
      // Where a step is not a multiple of 8 keys, the chunks change places by another number.
      const uint32_t place =
          kStep % 8 == 0
              ? first + i * 128
              : shared + tile_byte<L::kKeys>(key, static_cast<unsigned>(thread % L::kChunks));
      copy_async_16(place, base + int64_t{row} * dim_,
                    in_dim_ && (whole || tokens_.contains(token0 + key)));
    }
  }

  KvRows rows_;
  TokenRange tokens_;
  int dim_;
  bool in_dim_;
  const T* k_;
  const T* v_;
};

// The rows of one warp: scores, running softmax, sums of the values.
template <class T, int kDim>
class WarpRows {
 public:
  using L = Tile<kDim>;
  static constexpr int kRowTiles = L::kRowTiles;
  static constexpr int kKeyTiles = L::kKeys / 8;

  __device__ WarpRows() {
    for (float(&max)[2] : max_) max[0] = max[1] = -INFINITY;
  }

  __device__ void multiply_keys(uint32_t queries, uint32_t keys) {
    const unsigned lane = threadIdx.x % 32;
    const uint32_t first_query = queries + tile_byte<L::kRows>(lane % 16, lane / 16);
    const uint32_t first_key = keys + tile_byte<L::kKeys>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (float& value : scores_[m][n]) value = 0.0f;
      }
    }
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        load_matrices(q[m], further_chunk<L::kRows>(first_query, 2 * c) + m * 16 * 128);
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        uint32_t k[4];
        load_matrices(k, further_chunk<L::kKeys>(first_key, 2 * c) + n * 8 * 128);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma_m16n8k16<T>(scores_[m][n], q[m][0], q[m][1], q[m][2], q[m][3], k[0], k[1]);
          mma_m16n8k16<T>(scores_[m][n + 1], q[m][0], q[m][1], q[m][2], q[m][3], k[2], k[3]);
        }
      }
    }
  }

  // Row r of the warp sees keys (position - window, position] of its token's position.
  __device__ void mask(int token0, int first_row, int group, int past, int window) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int position = past + (first_row + 16 * m + 8 * h + g()) / group;
        const int begin = window > 0 ? position - window + 1 : 0;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int token = token0 + 8 * n + 2 * t + i;
            if (token > position || token < begin) scores_[m][n][2 * h + i] = -INFINITY;
          }
        }
      }
    }
  }

  __device__ void update(float scale_log2) {
    float shrink[kRowTiles][2];
    bool grew = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          max = fmaxf(max, fmaxf(scores_[m][n][2 * h], scores_[m][n][2 * h + 1]));
        }
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
        max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
        max = fmaxf(max_[m][h], max * scale_log2);
        const float base = max == -INFINITY ? 0.0f : max;  // a row that has seen no key yet
        shrink[m][h] = exp2_flushed(max_[m][h] - base);
        grew |= max > max_[m][h];
        max_[m][h] = max;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            scores_[m][n][i] = exp2_flushed(fmaf(scores_[m][n][i], scale_log2, -base));
            sum += scores_[m][n][i];
          }
        }
        sum_[m][h] = sum_[m][h] * shrink[m][h] + sum;
      }
    }
    // Maxima seldom grow; where none does, all factors are 1.
    if (!__any_sync(kAllLanes, grew)) return;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[m][d][i] *= shrink[m][i / 2];
      }
    }
  }

  __device__ void add_values(uint32_t values) {
    const unsigned lane = threadIdx.x % 32;
    const uint32_t first_value = values + tile_byte<L::kKeys>(lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < kKeyTiles / 2; ++k) {
      uint32_t p[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&score)[4] = scores_[m][2 * k + i / 2];
          p[m][i] = pack_pair<T>(score[i % 2 * 2], score[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        load_matrices_transposed(v, further_chunk<L::kKeys>(first_value, 2 * d) + k * 16 * 128);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma_m16n8k16<T>(out_[m][2 * d], p[m][0], p[m][1], p[m][2], p[m][3], v[0], v[1]);
          mma_m16n8k16<T>(out_[m][2 * d + 1], p[m][0], p[m][1], p[m][2], p[m][3], v[2], v[3]);
        }
      }
    }
  }

  // Writes the quotients over the warp's queries in shared memory.
  __device__ void store(unsigned char* shared) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = sum_[m][h];
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2);
        const float scale = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
        for (int d = 0; d < kDim / 8; ++d) {
          *reinterpret_cast<uint32_t*>(shared + tile_byte<L::kRows>(16 * m + 8 * h + g(), d) +
                                       4 * t) =
              pack_pair<T>(out_[m][d][2 * h] * scale, out_[m][d][2 * h + 1] * scale);
        }
      }
    }
  }

 private:
  static __device__ int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }

  float scores_[kRowTiles][kKeyTiles][4];
  float out_[kRowTiles][kDim / 8][4] = {};
  float max_[kRowTiles][2];
  float sum_[kRowTiles][2] = {};
};

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 1) prefill_attention(const Params<T> p) {
  using L = Tile<kDim>;
  extern __shared__ __align__(128) unsigned char shared[];
  allow_next_kernel();
  // The last tiles of a sequence see the most keys: they come first, so that short work fills the
  // end. All KV heads of a tile are neighbours.
  const int index = static_cast<int>(gridDim.y - 1 - blockIdx.y);
  const Work work = find_work(p.args.row_starts, static_cast<int>(p.args.num_sequences), p.group,
                              L::kRows, index);
  wait_for_previous_kernels();
  if (work.sequence < 0) return;

  const int kv_head = static_cast<int>(blockIdx.x);
  const int row_start = p.args.row_starts[work.sequence];
  const int new_tokens = p.args.row_starts[work.sequence + 1] - row_start;
  const int length = p.args.kv_lengths[work.sequence];
  const int past = length - new_tokens;
  const int window = static_cast<int>(p.args.window);
  const int rows = new_tokens * p.group - work.first_row;  // of the tile, and perhaps more

  // What the tile as a whole may see, and what each warp must and may see.
  const auto position_of = [&](int row) {
    return past + min(work.first_row + row, new_tokens * p.group - 1) / p.group;
  };
  const auto begin_of = [&](int position) {
    return window > 0 ? max(position - window + 1, 0) : 0;
  };
  const TokenRange tokens = {begin_of(position_of(0)), position_of(L::kRows - 1) + 1};
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * L::kRowTiles * 16;
  const int warp_first = position_of(warp_row);
  const int warp_last = position_of(warp_row + L::kRowTiles * 16 - 1);
  const bool warp_works = warp_row < rows;

  const uint32_t queries = shared_address(shared);
  const uint32_t keys = queries + L::kKeysAt;
  const uint32_t values = queries + L::kValuesAt;
  KeyTiles<T, kDim> tiles(p, work.sequence, kv_head, length, tokens);
  int tile = tokens.begin / L::kKeys;
  const int last_tile = (tokens.end - 1) / L::kKeys;
  int tile_rows = tiles.look_up(tile);

  const int64_t head0 = int64_t{kv_head} * p.group;
  for (int i = static_cast<int>(threadIdx.x); i < L::kRows * L::kChunks; i += kThreads) {
    const int row = i / L::kChunks;
    const int chunk = i % L::kChunks;
    const int pair = work.first_row + row;
    const T* source = p.args.q + (row_start + pair / p.group) * p.args.q_stride +
                      (head0 + pair % p.group) * p.dim + chunk * kChunk;
    copy_async_16(queries + tile_byte<L::kRows>(row, chunk), source,
                  row < rows && chunk * kChunk < p.dim);
  }
  tiles.copy_keys(tile, tile_rows, keys);
  commit_copies();

  WarpRows<T, kDim> state;
  const uint32_t warp_queries = queries + warp_row * 128;
  for (; tile <= last_tile; ++tile) {
    const int token0 = tile * L::kKeys;
    // Does any row of the warp see any key of the tile, and does each row see all?
    const bool some = warp_works && token0 <= warp_last && token0 + L::kKeys > begin_of(warp_first);
    const bool all = token0 + L::kKeys - 1 <= warp_first && token0 >= begin_of(warp_last);
    wait_for_all_copies();
    __syncthreads();  // the keys are there, and the values before are used up
    tiles.copy_values(tile, tile_rows, values);
    commit_copies();
    if (tile < last_tile) tile_rows = tiles.look_up(tile + 1);
    if (some) {
      state.multiply_keys(warp_queries, keys);
      if (!all) state.mask(token0, work.first_row + warp_row, p.group, past, window);
      state.update(p.scale_log2);
    }
    wait_for_all_copies();
    __syncthreads();  // the values are there, and the keys are used up
    if (tile < last_tile) tiles.copy_keys(tile + 1, tile_rows, keys);
    commit_copies();
    if (some) state.add_values(values);
  }

  if (!warp_works) return;
  unsigned char* result = shared + warp_row * 128;
  state.store(result);
  __syncwarp();
  for (int i = static_cast<int>(threadIdx.x) % 32; i < L::kRowTiles * 16 * L::kChunks; i += 32) {
    const int row = i / L::kChunks;
    const int chunk = i % L::kChunks;
    if (warp_row + row >= rows || chunk * kChunk >= p.dim) continue;
    const int pair = work.first_row + warp_row + row;
    T* out = p.args.out +
             ((row_start + pair / p.group) * p.args.num_q_heads + head0 + pair % p.group) * p.dim;
    *reinterpret_cast<uint4*>(out + chunk * kChunk) =
        *reinterpret_cast<const uint4*>(result + tile_byte<L::kRows>(row, chunk));
  }
}

template <class T, int kDim>
cudaError_t launch(const Params<T>& p, cudaStream_t stream) {
  using L = Tile<kDim>;
  static SharedLimit limit;
  const auto kernel = prefill_attention<T, kDim>;
  const cudaError_t status = limit.raise(reinterpret_cast<const void*>(kernel), L::kBytes);
  if (status != cudaSuccess) return status;
  // Each sequence ends in at most one tile that is not full.
  const int64_t tiles = p.args.rows * p.group / L::kRows + p.args.num_sequences;
  const dim3 grid(static_cast<unsigned>(p.args.kv.num_kv_heads), static_cast<unsigned>(tiles));
  return launch_kernel(kernel, grid, dim3(kThreads), L::kBytes, stream, p.args.order, 1, p);
}

}  // namespace

template <class T>
cudaError_t launch_prefill_attention_general(const AttentionArgs<T>& args, cudaStream_t stream) {
  constexpr float kLog2E = 1.4426950408889634f;
  const Params<T> p = {args, args.scale * kLog2E,
                       static_cast<int>(args.num_q_heads / args.kv.num_kv_heads),
                       static_cast<int>(args.kv.head_dim)};
  if (p.dim <= 64) return launch<T, 64>(p, stream);
  if (p.dim <= 128) return launch<T, 128>(p, stream);
  return launch<T, 256>(p, stream);
}
template cudaError_t launch_prefill_attention_general(const AttentionArgs<__half>&, cudaStream_t);
template cudaError_t launch_prefill_attention_general(const AttentionArgs<__nv_bfloat16>&,
                                                      cudaStream_t);

}  // namespace triptych
