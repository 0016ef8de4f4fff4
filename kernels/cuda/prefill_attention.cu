// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Prefill attention on any device from sm_80 on: products of single warps.
#include "kernels/cuda/prefill_attention.cuh"

namespace triptych {
namespace {

using prefill::kThreads;
using prefill::kWarps;
using prefill::Params;

// 32 rows a warp read each key from shared memory half as often as 16; at 256 their sums would not
// fit the registers.
template <int kDim>
inline constexpr int kRowTiles = kDim <= 128 ? 2 : 1;
template <int kDim>
using TileOf = prefill::Tile<kDim, kWarps * kRowTiles<kDim> * 16, kDim <= 128 ? 64 : 32>;
template <int kDim>
using StateOf = prefill::RowState<TileOf<kDim>, kRowTiles<kDim>, kRowTiles<kDim> * 16, 16>;

template <class T, int kDim>
__device__ void multiply_keys(StateOf<kDim>& state, uint32_t queries, uint32_t keys) {
  using L = TileOf<kDim>;
  const unsigned lane = threadIdx.x % 32;
  const uint32_t first_query = queries + tile_byte<L::kRows>(lane % 16, lane / 16);
  const uint32_t first_key = keys + tile_byte<L::kKeys>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (auto& tile : state.scores) {
#pragma unroll
    for (auto& sums : tile) {
#pragma unroll
      for (float& sum : sums) sum = 0.0f;
    }
  }
#pragma unroll
  for (int c = 0; c < kDim / 16; ++c) {
    uint32_t q[kRowTiles<kDim>][4];
#pragma unroll
    for (int m = 0; m < kRowTiles<kDim>; ++m) {
      load_matrices(q[m], further_chunk<L::kRows>(first_query, 2 * c) + m * 16 * 128);
    }
#pragma unroll
    for (int n = 0; n < state.kKeyTiles; n += 2) {
      uint32_t k[4];
      load_matrices(k, further_chunk<L::kKeys>(first_key, 2 * c) + n * 8 * 128);
#pragma unroll
      for (int m = 0; m < kRowTiles<kDim>; ++m) {
        auto& scores = state.scores[m];
        mma_m16n8k16<T>(scores[n], q[m][0], q[m][1], q[m][2], q[m][3], k[0], k[1]);
        mma_m16n8k16<T>(scores[n + 1], q[m][0], q[m][1], q[m][2], q[m][3], k[2], k[3]);
      }
    }
  }
}

template <class T, int kDim>
__device__ void add_values(StateOf<kDim>& state, uint32_t values) {
  using L = TileOf<kDim>;
  const unsigned lane = threadIdx.x % 32;
  const uint32_t first_value = values + tile_byte<L::kKeys>(lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < L::kKeys / 16; ++k) {
    uint32_t p[kRowTiles<kDim>][4];
#pragma unroll
    for (int m = 0; m < kRowTiles<kDim>; ++m) state.template pack_weights<T>(m, k, p[m]);
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t v[4];
      load_matrices_transposed(v, further_chunk<L::kKeys>(first_value, 2 * d) + k * 16 * 128);
#pragma unroll
      for (int m = 0; m < kRowTiles<kDim>; ++m) {
        auto& out = state.out[m];
        mma_m16n8k16<T>(out[2 * d], p[m][0], p[m][1], p[m][2], p[m][3], v[0], v[1]);
        mma_m16n8k16<T>(out[2 * d + 1], p[m][0], p[m][1], p[m][2], p[m][3], v[2], v[3]);
      }
    }
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 1) prefill_attention(const Params<T> p) {
  using L = TileOf<kDim>;
  extern __shared__ __align__(1024) unsigned char shared[];
  allow_next_kernel();
  const prefill::Work work = prefill::find_work(p, L::kRows);
  wait_for_previous_kernels();
  if (work.sequence < 0) return;
  const prefill::Queries<T> queries(p, work, L::kRows);
  const prefill::KeyTiles<T, L> tiles(p, work.sequence, queries.length(), queries.tokens());
  const uint32_t query_tile = shared_address(shared);
  const uint32_t key_tile = query_tile + L::kKeysAt;
  const uint32_t value_tile = query_tile + L::kValuesAt;

  // A warp without rows, or beside all keys of a tile, only copies.
  StateOf<kDim> state;
  constexpr int kWarpRows = kRowTiles<kDim> * 16;
  const int warp_row = state.warp_row(0);
  const int first_position = queries.position(warp_row);
  const int last_position = queries.position(warp_row + kWarpRows - 1);
  const bool works = warp_row < queries.rows();

  int tile = tiles.first();
  const int last_tile = tiles.last();
  int rows = tiles.look_up(tile);
  queries.template copy_queries<L>(query_tile);
  tiles.copy_keys(tile, rows, key_tile);
  commit_copies();
  for (; tile <= last_tile; ++tile) {
    const int token0 = tile * L::kKeys;
    const bool some =
        works && token0 <= last_position && token0 + L::kKeys > queries.begin(first_position);
    const bool all =
        token0 + L::kKeys - 1 <= first_position && token0 >= queries.begin(last_position);
    wait_for_all_copies();
    __syncthreads();  // the keys are there, and the values before are used up
    tiles.copy_values(tile, rows, value_tile);
    commit_copies();
    if (tile < last_tile) rows = tiles.look_up(tile + 1);
    if (some) {
      multiply_keys<T, kDim>(state, query_tile + warp_row * 128, key_tile);
      if (!all) state.mask(queries, token0);
      state.update(p.scale_log2);
    }
    wait_for_all_copies();
    __syncthreads();  // the values are there, and the keys are used up
    if (tile < last_tile) tiles.copy_keys(tile + 1, rows, key_tile);
    commit_copies();
    if (some) add_values<T, kDim>(state, value_tile);
  }
  if (!works) return;
  state.template store<T>(shared);
  __syncwarp();
  queries.template write_rows<L>(shared, warp_row, kWarpRows);
}

template <class T, int kDim>
cudaError_t launch(const Params<T>& p, cudaStream_t stream) {
  static SharedLimit limit;
  return prefill::launch<TileOf<kDim>>(prefill_attention<T, kDim>, limit, p, stream);
}

}  // namespace

template <class T>
cudaError_t launch_prefill_attention_general(const AttentionArgs<T>& args, cudaStream_t stream) {
  const Params<T> p = prefill::make_params(args);
  if (p.dim <= 64) return launch<T, 64>(p, stream);
  if (p.dim <= 128) return launch<T, 128>(p, stream);
  return launch<T, 256>(p, stream);
}
template cudaError_t launch_prefill_attention_general(const AttentionArgs<__half>&, cudaStream_t);
template cudaError_t launch_prefill_attention_general(const AttentionArgs<__nv_bfloat16>&,
                                                      cudaStream_t);

}  // namespace triptych
