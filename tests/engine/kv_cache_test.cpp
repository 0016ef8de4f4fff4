// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "engine/ops_cpu.h"
#include "tests/support/random_model.h"
#include "tests/support/record_sink.h"

namespace triptych {
namespace {

constexpr KvShape kShape{.num_layers = 2, .kv_columns = 6, .max_batch = 3, .max_sequence = 23};

class KvCacheTest : public ::testing::Test {
 protected:
  cpu::ThreadPool pool_{1};
  std::unique_ptr<Ops> ops_ = make_cpu_ops(tiny_config(), pool_);
};

uint16_t tag(int64_t stamp, int64_t layer, int64_t which, int64_t token, int64_t column) {
  return static_cast<uint16_t>(
      mix64(static_cast<uint64_t>((((stamp * 4 + layer) * 2 + which) * 64 + token) * 8 + column)));
}

int64_t pages_for_all(int64_t page_size) {
  return kShape.max_batch * ((kShape.max_sequence + page_size - 1) / page_size);
}

Half* row_of(Half* const* pages, int64_t page_size, int64_t token) {
  return pages[token / page_size] + token % page_size * kShape.kv_columns;
}

/// Grows and clears sequences at random; every value written must be read back at any later time.
void churn(HostKvCache& cache, uint64_t seed) {
  RandomStream random(seed);
  std::vector<int64_t> stamps(kShape.max_batch, 0);
  for (int64_t step = 1; step < 150; ++step) {
    const auto slot = static_cast<int64_t>(random.below(kShape.max_batch));
    const int64_t length = cache.length(slot);
    if (length == kShape.max_sequence || random.below(6) == 0) {
      cache.clear(slot);
      ASSERT_EQ(cache.length(slot), 0);
      continue;
    }
    if (length == 0) stamps[slot] = step;
    const auto count =
        1 + static_cast<int64_t>(random.below(std::min<uint64_t>(5, kShape.max_sequence - length)));
    cache.extend(slot, count);
    ASSERT_EQ(cache.length(slot), length + count);
    for (int64_t layer = 0; layer < kShape.num_layers; ++layer) {
      cache.prepare_layer(slot, layer);
      const KvPages pages = cache.pages(slot, layer);
      for (int64_t t = length; t < length + count; ++t) {
        for (int64_t c = 0; c < kShape.kv_columns; ++c) {
          row_of(pages.k, pages.page_size, t)[c].bits = tag(stamps[slot], layer, 0, t, c);
          row_of(pages.v, pages.page_size, t)[c].bits = tag(stamps[slot], layer, 1, t, c);
        }
      }
    }
    for (int64_t s = 0; s < kShape.max_batch; ++s) {
      for (int64_t layer = 0; layer < kShape.num_layers; ++layer) {
        const KvPages pages = cache.pages(s, layer);
        for (int64_t t = 0; t < cache.length(s); ++t) {
          for (int64_t c = 0; c < kShape.kv_columns; ++c) {
            ASSERT_EQ(row_of(pages.k, pages.page_size, t)[c].bits, tag(stamps[s], layer, 0, t, c));
            ASSERT_EQ(row_of(pages.v, pages.page_size, t)[c].bits, tag(stamps[s], layer, 1, t, c));
          }
        }
      }
    }
  }
}

TEST_F(KvCacheTest, PagedKeepsEveryTokenOfEverySequence) {
  for (const int64_t page_size : {1, 3, 16, 23, 64}) {
    PagedKvCache cache(*ops_, kShape, page_size, pages_for_all(page_size));
    churn(cache, static_cast<uint64_t>(page_size));
  }
}

TEST_F(KvCacheTest, ContiguousKeepsEveryTokenOfEverySequence) {
  ContiguousKvCache cache(*ops_, kShape);
  churn(cache, 5);
}

TEST_F(KvCacheTest, PagesAreTakenAsNeededAndOwnedByOneSequence) {
  PagedKvCache cache(*ops_, kShape, 4, pages_for_all(4));
  const int64_t all = pages_for_all(4);
  EXPECT_EQ(all, 3 * 6);
  EXPECT_EQ(cache.free_pages(), all);
  cache.extend(0, 5);
  cache.extend(1, 4);
  cache.extend(2, 23);
  EXPECT_EQ(cache.page_ids(0).size(), 2u);
  EXPECT_EQ(cache.page_ids(1).size(), 1u);
  EXPECT_EQ(cache.page_ids(2).size(), 6u);
  cache.extend(0, 3);  // the eighth token still fits the second page
  EXPECT_EQ(cache.page_ids(0).size(), 2u);
  std::set<int32_t> ids;
  for (int64_t slot = 0; slot < 3; ++slot) {
    ids.insert(cache.page_ids(slot).begin(), cache.page_ids(slot).end());
  }
  EXPECT_EQ(ids.size(), 9u);
  EXPECT_EQ(cache.free_pages(), all - 9);
  cache.clear(2);
  EXPECT_EQ(cache.free_pages(), all - 3);
}

TEST_F(KvCacheTest, ThePoolCountsWholeFromTheStart) {
  const PagedKvCache cache(*ops_, kShape, 4, pages_for_all(4));
  EXPECT_EQ(cache.peak_bytes(), 18 * 4 * kShape.token_bytes());
  EXPECT_EQ(kShape.token_bytes(), 2 * 2 * 6 * 2);
}

TEST_F(KvCacheTest, ConcatenationHoldsOldAndNewAndMovesTheOldOnce) {
  ContiguousKvCache cache(*ops_, kShape);
  RecordSink sink;
  ops_->set_sink(&sink);
  const int64_t row = kShape.kv_columns * 2;
  cache.extend(1, 10);
  for (int64_t layer = 0; layer < 2; ++layer) cache.prepare_layer(1, layer);
  EXPECT_EQ(cache.peak_bytes(), 4 * 10 * row);
  EXPECT_EQ(sink.count("kv_concat"), 0);  // nothing to concatenate with
  cache.extend(1, 1);
  for (int64_t layer = 0; layer < 2; ++layer) cache.prepare_layer(1, layer);
  // The last to grow: three buffers of 11 and the old one of 10, and its successor of 11.
  EXPECT_EQ(cache.peak_bytes(), (3 * 11 + 10 + 11) * row);
  EXPECT_EQ(sink.count("kv_concat"), 4);
  for (const RecordSink::Record& record : sink.records()) {
    if (record.name == "kv_concat") {
      EXPECT_EQ(record.kind, ActivityKind::kMemcpy);
      EXPECT_EQ(record.bytes, 2 * 10 * row);  // read and written
    }
  }
  cache.clear(1);
  cache.reset_peak();
  EXPECT_EQ(cache.peak_bytes(), 0);
  EXPECT_EQ(sink.count("alloc"), sink.count("free"));
  ops_->set_sink(nullptr);
}

TEST_F(KvCacheTest, OutgrowingTheCacheIsABug) {
  PagedKvCache paged(*ops_, kShape, 4, pages_for_all(4));
  EXPECT_DEATH(paged.extend(0, 24), "longer than its cache");
  PagedKvCache small(*ops_, kShape, 4, 2);
  small.extend(0, 8);
  EXPECT_DEATH(small.extend(1, 1), "more tokens than the pool has pages for");
  ContiguousKvCache contiguous(*ops_, kShape);
  EXPECT_DEATH(contiguous.extend(0, 24), "longer than its cache");
}

}  // namespace
}  // namespace triptych
