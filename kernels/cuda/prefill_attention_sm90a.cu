// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Prefill attention on sm_90: products of a warpgroup, which read queries, keys and values from
// shared memory by themselves. Two blocks share an SM, so that the softmax of one runs beside the
// products of the other.
#include "kernels/common/proxy_fence.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/common/wgmma_products.cuh"
#include "kernels/cuda/prefill_attention.cuh"

namespace triptych {
namespace {

using prefill::kThreads;
using prefill::Params;

constexpr int kRowTiles = 2;  // of 64 rows, 16 in each warp
template <int kDim>
using TileOf = prefill::Tile<kDim, kRowTiles * 64, 64>;
template <int kDim>
using StateOf = prefill::RowState<TileOf<kDim>, kRowTiles, 16, 64>;

template <class T, int kDim>
__device__ void multiply_keys(StateOf<kDim>& state, uint32_t queries, uint32_t keys) {
  using L = TileOf<kDim>;
  begin_products();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
      const int piece = c / 4;
      const int within = c % 4 * 32;  // bytes
      multiply_64x64<T>(
          state.scores[m],
          describe_operand(queries + piece * L::kRows * 128 + m * 64 * 128 + within, 0),
          describe_operand(keys + piece * L::kKeys * 128 + within, 0), c > 0);
    }
  }
  commit_products();
  wait_for_products();
  pin(state.scores);
}

template <class T, int kDim>
__device__ void add_values(StateOf<kDim>& state, uint32_t values) {
  using L = TileOf<kDim>;
  uint32_t weights[kRowTiles][L::kKeys / 16][4];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int k = 0; k < L::kKeys / 16; ++k) {
      state.template pack_weights<T>(m, k, weights[m][k]);
    }
  }
  pin(weights);
  pin(state.out);
  begin_products();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int k = 0; k < L::kKeys / 16; ++k) {
      const uint64_t v = describe_operand(values + k * 16 * 128, L::kKeys * 128);
      if constexpr (kDim == 64) {
        multiply_values_64<T>(state.out[m], weights[m][k], v);
      } else {
        multiply_values_128<T>(state.out[m], weights[m][k], v);
      }
    }
  }
  commit_products();
  wait_for_products();
  pin(state.out);
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, 2) prefill_attention_sm90a(const Params<T> p) {
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
  const int first_position = queries.position(0);
  const int last_begin = queries.begin(queries.position(L::kRows - 1));

  StateOf<kDim> state;
  int tile = tiles.first();
  const int last_tile = tiles.last();
  int rows = tiles.look_up(tile);
  queries.template copy_queries<L>(query_tile);
  tiles.copy_keys(tile, rows, key_tile);
  commit_copies();
  for (; tile <= last_tile; ++tile) {
    const int token0 = tile * L::kKeys;
    wait_for_all_copies();
    order_before_bulk_copies();  // products read shared memory as bulk copies do
    __syncthreads();             // the keys are there, and the values before are used up
    tiles.copy_values(tile, rows, value_tile);
    commit_copies();
    if (tile < last_tile) rows = tiles.look_up(tile + 1);
    multiply_keys<T, kDim>(state, query_tile, key_tile);
    if (token0 + L::kKeys - 1 > first_position || token0 < last_begin) {
      state.mask(queries, token0);
    }
    state.update(p.scale_log2);
    wait_for_all_copies();
    order_before_bulk_copies();
    __syncthreads();  // the values are there, and the keys are used up
    if (tile < last_tile) tiles.copy_keys(tile + 1, rows, key_tile);
    commit_copies();
    add_values<T, kDim>(state, value_tile);
  }
  state.template store<T>(shared);
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    queries.template write_rows<L>(shared, state.warp_row(m), 16);
  }
}

template <class T, int kDim>
cudaError_t launch(const Params<T>& p, cudaStream_t stream) {
  static SharedLimit limit;
  return prefill::launch<TileOf<kDim>>(prefill_attention_sm90a<T, kDim>, limit, p, stream);
}

}  // namespace

template <class T>
cudaError_t launch_prefill_attention_sm90a(const AttentionArgs<T>& args, cudaStream_t stream) {
  const Params<T> p = prefill::make_params(args);
  return p.dim <= 64 ? launch<T, 64>(p, stream) : launch<T, 128>(p, stream);
}
template cudaError_t launch_prefill_attention_sm90a(const AttentionArgs<__half>&, cudaStream_t);
template cudaError_t launch_prefill_attention_sm90a(const AttentionArgs<__nv_bfloat16>&,
                                                    cudaStream_t);

}  // namespace triptych
