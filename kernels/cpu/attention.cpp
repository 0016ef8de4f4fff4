// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Two kernels. Few queries (decode): vectors run over head_dim, one pass for the scores, one for
// the values, and the query heads that share a KV head read it once. Many queries (prefill): rows
// (query, head of the group) become the lanes of a small GEMM over blocks of keys with an online
// softmax, whose maximum and sum are then lane-wise.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/math-inl.h"

#ifndef TRIPTYCH_KERNELS_CPU_ATTENTION_ONCE_
#define TRIPTYCH_KERNELS_CPU_ATTENTION_ONCE_
namespace triptych::cpu {

// Query heads that one pass over K and V serves in the decode kernel.
constexpr int64_t kHeadsPerPass = 4;
// Up to this many queries the decode kernel runs once per query: a tile of the prefill kernel would
// be mostly padding.
constexpr int64_t kMaxDecodeQueries = 2;

// Heads [first_head, first_head + heads) of one query; all share kv_head. heads <= kHeadsPerPass.
struct DecodeUnit {
  const AttentionSequence* sequence = nullptr;
  int64_t query = 0;
  int64_t first_head = 0;
  int64_t heads = 0;
};

// Rows [first_row, ...) of the (query, head of the group) rows of one KV head, one tile of lanes.
struct PrefillUnit {
  const AttentionSequence* sequence = nullptr;
  int64_t kv_head = 0;
  int64_t first_row = 0;
};

inline const Half* kv_row(const Half* const* pages, const AttentionSequence& sequence,
                          const AttentionArgs& args, int64_t t, int64_t kv_head) {
  const int64_t page_size = sequence.kv.page_size;
  return pages[t / page_size] + (t % page_size * args.num_kv_heads + kv_head) * args.head_dim;
}

// The first key that a query at `position` sees.
inline int64_t first_key(const AttentionArgs& args, int64_t position) {
  return args.window > 0 ? std::max<int64_t>(0, position - args.window + 1) : 0;
}

}  // namespace triptych::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace triptych::cpu::HWY_NAMESPACE {

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr DF kF;
constexpr size_t kLanes = hn::MaxLanes(DF());

HWY_INLINE VF load_half(const Half* from) {
  const hn::Rebind<hwy::float16_t, DF> dh;
  const hn::Repartition<uint8_t, decltype(dh)> du8;
  return hn::PromoteTo(kF, hn::BitCast(dh, hn::LoadU(du8, reinterpret_cast<const uint8_t*>(from))));
}

// Elements past the last whole vector of a head, padded with zeros.
HWY_INLINE VF load_half_tail(const Half* from, size_t count) {
  HWY_ALIGN Half padded[kLanes] = {};
  std::copy_n(from, count, padded);
  return load_half(padded);
}

HWY_INLINE size_t round_up(size_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// f(offset, load) for each vector of a head of `dim` elements.
template <class F>
HWY_INLINE void for_each_half_vector(size_t dim, const F& f) {
  size_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    f(d, [d](const Half* from) HWY_ATTR { return load_half(from + d); });
  }
  if (d < dim) {
    f(d, [d, dim](const Half* from) HWY_ATTR { return load_half_tail(from + d, dim - d); });
  }
}

// The keys that a query sees: `length` of them from `first` on.
struct KeyRange {
  int64_t first = 0;
  int64_t length = 0;
};

// scores[h * score_stride + t] = dot(q[h], k[keys.first + t]). q: [kHeads, padded dim].
template <size_t kHeads>
HWY_INLINE void decode_scores(const AttentionArgs& args, const DecodeUnit& unit, const float* q,
                              KeyRange keys, float* scores, size_t score_stride) {
  const auto dim = static_cast<size_t>(args.head_dim);
  const size_t padded = round_up(dim);
  const int64_t kv_head = unit.first_head / (args.num_q_heads / args.num_kv_heads);
  for (int64_t t = 0; t < keys.length; ++t) {
    const Half* k =
        kv_row(unit.sequence->kv.k_pages, *unit.sequence, args, keys.first + t, kv_head);
    VF sum[kHeads];
    TRIPTYCH_UNROLL for (size_t h = 0; h < kHeads; ++h) sum[h] = hn::Zero(kF);
    for_each_half_vector(dim, [&](size_t d, auto load) HWY_ATTR {
      const VF kv = load(k);
      TRIPTYCH_UNROLL for (size_t h = 0; h < kHeads; ++h) {
        sum[h] = hn::MulAdd(kv, hn::Load(kF, q + h * padded + d), sum[h]);
      }
    });
    TRIPTYCH_UNROLL for (size_t h = 0; h < kHeads; ++h) {
      scores[h * score_stride + static_cast<size_t>(t)] = hn::GetLane(hn::SumOfLanes(kF, sum[h]));
    }
  }
}

// scores = exp(scores - max), padded with zeros to whole vectors; returns their sum.
float softmax_numerators(float* scores, size_t length) {
  const size_t padded = round_up(length);
  std::fill(scores + length, scores + padded, -std::numeric_limits<float>::infinity());
  VF max = hn::Load(kF, scores);
  for (size_t t = kLanes; t < padded; t += kLanes) max = hn::Max(max, hn::Load(kF, scores + t));
  max = hn::MaxOfLanes(kF, max);
  VF sum = hn::Zero(kF);
  for (size_t t = 0; t < padded; t += kLanes) {
    const VF p = hn::Exp(kF, hn::Sub(hn::Load(kF, scores + t), max));
    hn::Store(p, kF, scores + t);
    sum = hn::Add(sum, p);
  }
  return hn::GetLane(hn::SumOfLanes(kF, sum));
}

// out[h] += sum over t of p[h][t] * v[keys.first + t] for up to 4 vectors of head_dim at offset d,
// so that the sums (4 heads x 4 vectors) stay in registers.
template <size_t kHeads, size_t kVectors>
HWY_INLINE void decode_values(const AttentionArgs& args, const DecodeUnit& unit, const float* p,
                              size_t score_stride, KeyRange keys, size_t d, float* out,
                              size_t out_stride) {
  const auto dim = static_cast<size_t>(args.head_dim);
  const int64_t kv_head = unit.first_head / (args.num_q_heads / args.num_kv_heads);
  VF sum[kHeads][kVectors];
  TRIPTYCH_UNROLL for (size_t h = 0; h < kHeads; ++h) {
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) sum[h][v] = hn::Zero(kF);
  }
  for (int64_t t = 0; t < keys.length; ++t) {
    const Half* row =
        kv_row(unit.sequence->kv.v_pages, *unit.sequence, args, keys.first + t, kv_head) + d;
    VF value[kVectors];
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      const size_t rest = dim - d - v * kLanes;
      value[v] =
          rest >= kLanes ? load_half(row + v * kLanes) : load_half_tail(row + v * kLanes, rest);
    }
    TRIPTYCH_UNROLL for (size_t h = 0; h < kHeads; ++h) {
      const VF weight = hn::Set(kF, p[h * score_stride + static_cast<size_t>(t)]);
      TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
        sum[h][v] = hn::MulAdd(weight, value[v], sum[h][v]);
      }
    }
  }
  TRIPTYCH_UNROLL for (size_t h = 0; h < kHeads; ++h) {
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(sum[h][v], kF, out + h * out_stride + d + v * kLanes);
    }
  }
}

template <size_t kHeads>
HWY_NOINLINE void decode(const AttentionArgs& args, const DecodeUnit& unit) {
  thread_local Scratch scratch;
  const auto dim = static_cast<size_t>(args.head_dim);
  const size_t padded = round_up(dim);
  const AttentionSequence& sequence = *unit.sequence;
  const int64_t position = sequence.first_position + unit.query;
  const int64_t first = first_key(args, position);
  const KeyRange keys{first, position + 1 - first};
  const size_t stride = round_up(static_cast<size_t>(keys.length));
  float* q = scratch.floats(kHeads * (2 * padded + stride));
  float* out = q + kHeads * padded;
  float* scores = out + kHeads * padded;
  const int64_t offset = (unit.query * args.num_q_heads + unit.first_head) * args.head_dim;
  for (size_t h = 0; h < kHeads; ++h) {
    const float* from = sequence.q + offset + static_cast<int64_t>(h * dim);
    for (size_t d = 0; d < dim; ++d) q[h * padded + d] = from[d] * args.scale;
    std::fill(q + h * padded + dim, q + (h + 1) * padded, 0.0f);
  }
  decode_scores<kHeads>(args, unit, q, keys, scores, stride);
  float total[kHeads];
  for (size_t h = 0; h < kHeads; ++h) {
    total[h] = softmax_numerators(scores + h * stride, static_cast<size_t>(keys.length));
  }
  size_t d = 0;
  for (; d + 4 * kLanes <= padded; d += 4 * kLanes) {
    decode_values<kHeads, 4>(args, unit, scores, stride, keys, d, out, padded);
  }
  for (; d < padded; d += kLanes) {
    decode_values<kHeads, 1>(args, unit, scores, stride, keys, d, out, padded);
  }
  for (size_t h = 0; h < kHeads; ++h) {
    float* to = sequence.out + offset + static_cast<int64_t>(h * dim);
    for (size_t i = 0; i < dim; ++i) to[i] = out[h * padded + i] / total[h];
  }
}

void Decode(const AttentionArgs& args, const DecodeUnit& unit) {
  switch (unit.heads) {
    case 1:
      return decode<1>(args, unit);
    case 2:
      return decode<2>(args, unit);
    case 3:
      return decode<3>(args, unit);
    default:
      return decode<4>(args, unit);
  }
}

// ---------------------------------------------------------------------------------------------
// Prefill: a tile of kRows rows against blocks of kKeys keys.

constexpr size_t kVectorsPerTile = 2;
constexpr size_t kRows = kVectorsPerTile * kLanes;
constexpr size_t kKeys = 64;  // a block of K and V in f32 is 2 x 16 KiB for head_dim 64
// Register tile: kStep x 2 sums, 2 vectors and a broadcast; 32 registers with AVX-512, else 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr size_t kStep = 8;
#else
constexpr size_t kStep = 4;
#endif
static_assert(kKeys % kStep == 0);
// With a window the first block of keys starts where that of a tile's first row does, and the
// windows of its other rows start less than kRows later: every row sees a key in the first block,
// so that its running maximum is finite from then on.
static_assert(kRows <= kKeys);

// c[i][lane] = c[i][lane] * (scale ? scale[lane] : 0) + sum over k < depth of
// a[i * a_row + k * a_column] * b[k][lane], for i < kStep.
HWY_INLINE void multiply_step(const float* a, size_t a_row, size_t a_column, const float* b,
                              size_t depth, const float* scale, float* c) {
  VF sum[kStep][kVectorsPerTile];
  TRIPTYCH_UNROLL for (size_t v = 0; v < kVectorsPerTile; ++v) {
    TRIPTYCH_UNROLL for (size_t i = 0; i < kStep; ++i) {
      sum[i][v] = scale == nullptr ? hn::Zero(kF)
                                   : hn::Mul(hn::Load(kF, c + i * kRows + v * kLanes),
                                             hn::Load(kF, scale + v * kLanes));
    }
  }
  for (size_t k = 0; k < depth; ++k) {
    VF bv[kVectorsPerTile];
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectorsPerTile; ++v) {
      bv[v] = hn::Load(kF, b + k * kRows + v * kLanes);
    }
    TRIPTYCH_UNROLL for (size_t i = 0; i < kStep; ++i) {
      const VF av = hn::Set(kF, a[i * a_row + k * a_column]);
      TRIPTYCH_UNROLL for (size_t v = 0; v < kVectorsPerTile; ++v) {
        sum[i][v] = hn::MulAdd(av, bv[v], sum[i][v]);
      }
    }
  }
  TRIPTYCH_UNROLL for (size_t i = 0; i < kStep; ++i) {
    TRIPTYCH_UNROLL for (size_t v = 0; v < kVectorsPerTile; ++v) {
      hn::Store(sum[i][v], kF, c + i * kRows + v * kLanes);
    }
  }
}

// What one tile works on; all in scratch, all aligned.
struct TileBuffers {
  size_t dim;            // head_dim rounded up to whole vectors, so also to kStep
  float* q;              // [dim, kRows], scaled
  float* out;            // [dim, kRows]
  float* k;              // [kKeys, dim]
  float* v;              // [kKeys, dim]
  float* p;              // [kKeys, kRows] scores, then numerators
  float* max;            // [kRows]
  float* sum;            // [kRows]
  float* correction;     // [kRows] exp(old max - new max)
  int32_t first[kRows];  // first and last visible position of each row
  int32_t last[kRows];
};

void load_keys(const AttentionArgs& args, const PrefillUnit& unit, int64_t first, size_t count,
               const Half* const* pages, size_t stride, float* out) {
  const auto dim = static_cast<size_t>(args.head_dim);
  for (size_t j = 0; j < count; ++j) {
    const Half* from =
        kv_row(pages, *unit.sequence, args, first + static_cast<int64_t>(j), unit.kv_head);
    float* to = out + j * stride;
    for_each_half_vector(dim,
                         [=](size_t d, auto load) HWY_ATTR { hn::Store(load(from), kF, to + d); });
  }
  std::fill(out + count * stride, out + kKeys * stride, 0.0f);
}

// Turns scores of keys [first, first + count) into numerators under the running maximum.
void update_softmax(TileBuffers& tile, int64_t first, size_t count) {
  const hn::RebindToSigned<DF> di;
  const VF lowest = hn::Set(kF, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < kRows; i += kLanes) {
    const auto oldest = hn::LoadU(di, tile.first + i);
    const auto last = hn::LoadU(di, tile.last + i);
    const VF old_max = hn::Load(kF, tile.max + i);
    VF max = old_max;
    for (size_t j = 0; j < count; ++j) {
      float* at = tile.p + j * kRows + i;
      const auto position = hn::Set(di, static_cast<int32_t>(first + static_cast<int64_t>(j)));
      const auto outside = hn::Or(hn::Gt(position, last), hn::Lt(position, oldest));
      const auto hidden = hn::RebindMask(kF, outside);
      const VF score = hn::IfThenElse(hidden, lowest, hn::Load(kF, at));
      hn::Store(score, kF, at);
      max = hn::Max(max, score);
    }
    // Key 0 is visible to every row, so after the first block the maximum is finite.
    const VF correction = hn::Exp(kF, hn::Sub(old_max, max));
    VF sum = hn::Mul(hn::Load(kF, tile.sum + i), correction);
    for (size_t j = 0; j < count; ++j) {
      float* at = tile.p + j * kRows + i;
      const VF p = hn::Exp(kF, hn::Sub(hn::Load(kF, at), max));
      hn::Store(p, kF, at);
      sum = hn::Add(sum, p);
    }
    hn::Store(max, kF, tile.max + i);
    hn::Store(sum, kF, tile.sum + i);
    hn::Store(correction, kF, tile.correction + i);
  }
}

// Row r of a group of `group` heads is query r / group, head r % group. Offset of its q and out.
int64_t row_offset(const AttentionArgs& args, const PrefillUnit& unit, int64_t row) {
  const int64_t group = args.num_q_heads / args.num_kv_heads;
  const int64_t head = unit.kv_head * group + row % group;
  return (row / group * args.num_q_heads + head) * args.head_dim;
}

// Fills q, last and the initial maximum and sum; rows past the end repeat the last one.
void start_tile(const AttentionArgs& args, const PrefillUnit& unit, int64_t rows,
                TileBuffers& tile) {
  const int64_t group = args.num_q_heads / args.num_kv_heads;
  for (size_t i = 0; i < kRows; ++i) {
    const int64_t row = std::min(unit.first_row + static_cast<int64_t>(i), rows - 1);
    const float* q = unit.sequence->q + row_offset(args, unit, row);
    for (int64_t d = 0; d < args.head_dim; ++d) {
      tile.q[static_cast<size_t>(d) * kRows + i] = q[d] * args.scale;
    }
    const int64_t position = unit.sequence->first_position + row / group;
    tile.first[i] = static_cast<int32_t>(first_key(args, position));
    tile.last[i] = static_cast<int32_t>(position);
    tile.max[i] = -std::numeric_limits<float>::infinity();
    tile.sum[i] = 0.0f;
  }
}

void finish_tile(const AttentionArgs& args, const PrefillUnit& unit, int64_t rows,
                 const TileBuffers& tile) {
  const int64_t count = std::min<int64_t>(kRows, rows - unit.first_row);
  for (int64_t i = 0; i < count; ++i) {
    float* out = unit.sequence->out + row_offset(args, unit, unit.first_row + i);
    for (int64_t d = 0; d < args.head_dim; ++d) {
      out[d] = tile.out[static_cast<size_t>(d) * kRows + static_cast<size_t>(i)] / tile.sum[i];
    }
  }
}

TileBuffers make_tile(size_t dim, Scratch& scratch) {
  TileBuffers tile;
  tile.dim = dim;
  float* next = scratch.floats(2 * dim * kRows + 2 * kKeys * dim + kKeys * kRows + 3 * kRows);
  const auto take = [&next](size_t count) { return std::exchange(next, next + count); };
  tile.q = take(dim * kRows);
  tile.out = take(dim * kRows);
  tile.k = take(kKeys * dim);
  tile.v = take(kKeys * dim);
  tile.p = take(kKeys * kRows);
  tile.max = take(kRows);
  tile.sum = take(kRows);
  tile.correction = take(kRows);
  return tile;
}

void Prefill(const AttentionArgs& args, const PrefillUnit& unit) {
  thread_local Scratch scratch;
  const auto head_dim = static_cast<size_t>(args.head_dim);
  const size_t multiple = std::max(kLanes, kStep);
  TileBuffers tile = make_tile((head_dim + multiple - 1) / multiple * multiple, scratch);
  const int64_t rows = unit.sequence->num_queries * (args.num_q_heads / args.num_kv_heads);
  start_tile(args, unit, rows, tile);
  const int64_t length = tile.last[kRows - 1] + 1;
  const int64_t oldest = tile.first[0];
  for (int64_t first = oldest; first < length; first += static_cast<int64_t>(kKeys)) {
    const size_t count = std::min(kKeys, static_cast<size_t>(length - first));
    const KvView& kv = unit.sequence->kv;
    load_keys(args, unit, first, count, kv.k_pages, tile.dim, tile.k);
    load_keys(args, unit, first, count, kv.v_pages, tile.dim, tile.v);
    for (size_t j = 0; j < count; j += kStep) {
      multiply_step(tile.k + j * tile.dim, tile.dim, 1, tile.q, head_dim, nullptr,
                    tile.p + j * kRows);
    }
    update_softmax(tile, first, count);
    for (size_t d = 0; d < tile.dim; d += kStep) {
      multiply_step(tile.v + d, 1, tile.dim, tile.p, count,
                    first == oldest ? nullptr : tile.correction, tile.out + d * kRows);
    }
  }
  finish_tile(args, unit, rows, tile);
}

int64_t RowsPerTile() { return static_cast<int64_t>(kRows); }

}  // namespace triptych::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::cpu {
namespace {

HWY_EXPORT(Decode);
HWY_EXPORT(Prefill);
HWY_EXPORT(RowsPerTile);

// Work items of one sequence: (query, query head) or (KV head, tile of rows).
int64_t count_units(const AttentionArgs& args, const AttentionSequence& sequence,
                    int64_t tile_rows) {
  if (sequence.num_queries <= kMaxDecodeQueries) return sequence.num_queries * args.num_q_heads;
  const int64_t rows = sequence.num_queries * (args.num_q_heads / args.num_kv_heads);
  return args.num_kv_heads * ((rows + tile_rows - 1) / tile_rows);
}

// Units are single heads, so that any number of threads gets an even share; neighbours of one group
// that fall to the same thread are served together. A head's result does not depend on that.
void decode_units(const AttentionArgs& args, const AttentionSequence& sequence, int64_t begin,
                  int64_t end) {
  const int64_t group = args.num_q_heads / args.num_kv_heads;
  for (int64_t unit = begin; unit < end;) {
    const int64_t head = unit % args.num_q_heads;
    const int64_t heads = std::min({group - head % group, end - unit, kHeadsPerPass});
    HWY_DYNAMIC_DISPATCH(Decode)(args, {&sequence, unit / args.num_q_heads, head, heads});
    unit += heads;
  }
}

// Later tiles see more keys, so tiles are taken alternately from both ends: every contiguous range
// of units then costs about the same.
void prefill_units(const AttentionArgs& args, const AttentionSequence& sequence, int64_t begin,
                   int64_t end, int64_t tile_rows) {
  const int64_t tiles = count_units(args, sequence, tile_rows) / args.num_kv_heads;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t i = unit % tiles;
    const int64_t tile = i % 2 == 0 ? i / 2 : tiles - 1 - i / 2;
    HWY_DYNAMIC_DISPATCH(Prefill)(args, {&sequence, unit / tiles, tile * tile_rows});
  }
}

}  // namespace

void attention(const AttentionArgs& args, ThreadPool& pool) {
  TRIPTYCH_CHECK(args.num_kv_heads > 0 && args.num_q_heads % args.num_kv_heads == 0,
                 "query heads must be a multiple of KV heads");
  const int64_t tile_rows = HWY_DYNAMIC_DISPATCH(RowsPerTile)();
  int64_t total = 0;
  for (const AttentionSequence& s : args.sequences) total += count_units(args, s, tile_rows);
  auto body = [&](int64_t begin, int64_t end, int) {
    int64_t base = 0;
    for (const AttentionSequence& s : args.sequences) {
      const int64_t units = count_units(args, s, tile_rows);
      const int64_t first = std::max<int64_t>(begin - base, 0);
      const int64_t last = std::min(end - base, units);
      base += units;
      if (first >= last) continue;
      s.num_queries <= kMaxDecodeQueries ? decode_units(args, s, first, last)
                                         : prefill_units(args, s, first, last, tile_rows);
    }
  };
  pool.parallel_for(total, 1, body);
}

}  // namespace triptych::cpu
#endif
