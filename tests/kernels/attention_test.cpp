// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cpu/ops.h"
#include "tests/support/random_weights.h"
#include "tests/support/simd_targets.h"

namespace triptych::cpu {
namespace {

struct Shape {
  int64_t num_q_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t page_size;
};

// One sequence with its cache in pages that lie in shuffled order, the rest of the last page filled
// with NaN: a read past the visible tokens would show.
class Sequence {
 public:
  Sequence(uint64_t seed, const Shape& shape, int64_t first_position, int64_t num_queries)
      : q(random_floats(seed, num_queries * shape.num_q_heads * shape.head_dim)), out(q.size()) {
    const int64_t tokens = first_position + num_queries;
    const int64_t pages = (tokens + shape.page_size - 1) / shape.page_size;
    const int64_t token_size = shape.num_kv_heads * shape.head_dim;
    token_size_ = token_size;
    const int64_t page_floats = shape.page_size * token_size;
    for (auto [storage, table] : {std::pair{&k_, &k_pages_}, std::pair{&v_, &v_pages_}}) {
      storage->assign(static_cast<size_t>(pages * page_floats), Half{0x7E00});
      for (int64_t page = 0; page < pages; ++page) {
        table->push_back(storage->data() + (pages - 1 - page) * page_floats);
      }
      ++seed;
      for (int64_t t = 0; t < tokens; ++t) {
        Half* to = const_cast<Half*>((*table)[static_cast<size_t>(t / shape.page_size)]) +
                   t % shape.page_size * token_size;
        for (int64_t i = 0; i < token_size; ++i) {
          const auto value = random_normal(seed + 100, static_cast<uint64_t>(t * token_size + i));
          to[i] = half_from_float(static_cast<float>(value));
        }
      }
    }
    view = {q.data(),
            out.data(),
            num_queries,
            first_position,
            {k_pages_.data(), v_pages_.data(), shape.page_size}};
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// Makes tokens [0, count) NaN and takes away the pages that hold only such tokens.
  void spoil(int64_t count) {
    for (auto* table : {&k_pages_, &v_pages_}) {
      for (int64_t t = 0; t < count; ++t) {
        const Half*& page = (*table)[static_cast<size_t>(t / view.kv.page_size)];
        if ((t / view.kv.page_size + 1) * view.kv.page_size <= count) {
          page = nullptr;
          continue;
        }
        std::fill_n(const_cast<Half*>(page) + t % view.kv.page_size * token_size_, token_size_,
                    Half{0x7E00});
      }
    }
  }

  std::vector<float> q, out;
  AttentionSequence view;

 private:
  int64_t token_size_ = 0;
  std::vector<Half> k_, v_;
  std::vector<const Half*> k_pages_, v_pages_;
};

AttentionArgs make_args(const Shape& shape, std::span<const AttentionSequence> sequences,
                        int64_t window = 0) {
  return {sequences,
          shape.num_q_heads,
          shape.num_kv_heads,
          shape.head_dim,
          1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
          window};
}

// out is a weighted mean of values of about 1. A score of magnitude s has an error of about
// sqrt(head_dim) roundings of s, at most 16 * 6e-8 * s, which exp turns into a relative error of
// the weight; |s| stays below 5 for normal q and k with the usual scale. exp adds 1 ulp, sums over
// up to 700 keys a random walk of 4 * 26 roundings: 1.2e-5 together, of a mean of magnitude 1.
constexpr double kTolerance = 1.2e-5;

void check(const Shape& shape, int64_t first_position, int64_t num_queries, ThreadPool& pool,
           int64_t window = 0) {
  Sequence sequence(1, shape, first_position, num_queries);
  // No query sees these; a page that holds nothing else may be gone.
  if (window > 0) sequence.spoil(first_position - window + 1);
  const AttentionArgs args = make_args(shape, {&sequence.view, 1}, window);
  attention_ref(args);
  const std::vector<float> want = sequence.out;
  for_each_simd_target([&] {
    std::fill(sequence.out.begin(), sequence.out.end(), -1.0f);
    attention(args, pool);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(sequence.out[i], want[i], kTolerance)
          << "element " << i << " first " << first_position << " queries " << num_queries
          << " head_dim " << shape.head_dim << " window " << window;
    }
  });
}

TEST(Attention, DecodeMatchesTheReference) {
  ThreadPool pool(2);
  for (const Shape& shape : {Shape{9, 3, 64, 16}, Shape{4, 4, 20, 5}, Shape{8, 1, 128, 1000},
                             Shape{3, 1, 6, 1}, Shape{10, 2, 80, 32}, Shape{1, 1, 256, 7}}) {
    for (const int64_t position : {0, 1, 15, 16, 63, 200}) {
      check(shape, position, 1, pool);
      check(shape, position, 2, pool);
    }
  }
}

TEST(Attention, PrefillMatchesTheReference) {
  ThreadPool pool(3);
  for (const Shape& shape : {Shape{9, 3, 64, 16}, Shape{4, 4, 20, 5}, Shape{8, 1, 128, 1000},
                             Shape{3, 1, 6, 1}, Shape{10, 2, 80, 32}}) {
    for (const int64_t queries : {3, 11, 33, 64, 65, 130}) check(shape, 0, queries, pool);
    check(shape, 70, 40, pool);  // a later chunk of a chunked prefill
  }
  check({2, 1, 32, 64}, 500, 200, pool);
}

// Windows around the sizes of a tile (up to 32 rows), of a block of keys (64) and of a page, and
// longer than the sequence.
TEST(Attention, WindowMatchesTheReference) {
  ThreadPool pool(2);
  for (const Shape& shape :
       {Shape{9, 3, 64, 16}, Shape{4, 4, 20, 5}, Shape{8, 1, 128, 1000}, Shape{3, 1, 6, 1}}) {
    for (const int64_t window : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000}) {
      for (const int64_t position : {0, 15, 16, 200}) {
        check(shape, position, 1, pool, window);
        check(shape, position, 2, pool, window);
      }
      check(shape, 0, 130, pool, window);
      check(shape, 70, 40, pool, window);
    }
  }
}

TEST(Attention, CountsTheKeysOfAWindow) {
  const auto keys = [](int64_t first, int64_t queries, int64_t window) {
    return attended_keys({nullptr, nullptr, queries, first, {}}, window);
  };
  EXPECT_EQ(keys(0, 10, 0), 10);
  EXPECT_EQ(keys(30, 1, 0), 31);
  EXPECT_EQ(keys(30, 1, 8), 8);    // [23, 30]
  EXPECT_EQ(keys(7, 1, 8), 8);     // [0, 7]
  EXPECT_EQ(keys(6, 1, 8), 7);     // [0, 6]
  EXPECT_EQ(keys(30, 10, 8), 17);  // [23, 39]
}

// A batch of prefill and decode has the bits of each sequence alone, with any number of threads.
TEST(Attention, BitsDependNeitherOnTheBatchNorOnTheThreads) {
  const Shape shape{9, 3, 64, 16};
  Sequence a(1, shape, 0, 50), b(2, shape, 120, 1), c(3, shape, 30, 2), d(4, shape, 10, 20);
  std::vector<std::vector<float>> alone;
  ThreadPool one(1);
  for (Sequence* s : {&a, &b, &c, &d}) {
    attention(make_args(shape, {&s->view, 1}), one);
    alone.push_back(s->out);
  }
  const std::vector<AttentionSequence> batch = {a.view, b.view, c.view, d.view};
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (Sequence* s : {&a, &b, &c, &d}) std::fill(s->out.begin(), s->out.end(), 0.0f);
    attention(make_args(shape, batch), pool);
    size_t i = 0;
    for (const Sequence* s : {&a, &b, &c, &d}) EXPECT_EQ(s->out, alone[i++]) << threads;
  }
}

TEST(Attention, ChunksOfAPrefillAgreeWithTheWhole) {
  const Shape shape{6, 2, 64, 16};
  ThreadPool pool(2);
  Sequence whole(1, shape, 0, 100);
  attention(make_args(shape, {&whole.view, 1}), pool);
  const std::vector<float> want = whole.out;
  const int64_t row = shape.num_q_heads * shape.head_dim;
  std::fill(whole.out.begin(), whole.out.end(), 0.0f);
  for (int64_t first = 0; first < 100;) {
    const int64_t count = std::min<int64_t>(first % 3 == 0 ? 1 : 37, 100 - first);
    AttentionSequence chunk = whole.view;
    chunk.q += first * row;
    chunk.out += first * row;
    chunk.first_position = first;
    chunk.num_queries = count;
    attention(make_args(shape, {&chunk, 1}), pool);
    first += count;
  }
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(whole.out[i], want[i], kTolerance) << i;
}

// With one visible token the output is its value; with equal keys it is the mean of the values.
TEST(Attention, SpecialCasesAreExactOrMeans) {
  const Shape shape{4, 2, 64, 8};
  ThreadPool pool(1);
  Sequence one(1, shape, 0, 1);
  attention(make_args(shape, {&one.view, 1}), pool);
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t d = 0; d < 64; ++d) {
      EXPECT_EQ(one.out[static_cast<size_t>(h * 64 + d)],
                half_to_float(one.view.kv.v_pages[0][h / 2 * 64 + d]));
    }
  }
  for (const int64_t queries : {1, 40}) {
    Sequence same(2, shape, 0, queries);
    std::fill(same.q.begin(), same.q.end(), 0.0f);  // every score is 0
    attention(make_args(shape, {&same.view, 1}), pool);
    const auto last = static_cast<size_t>((queries - 1) * 4 * 64);
    double mean = 0.0;
    for (int64_t t = 0; t < queries; ++t) {
      mean += half_to_float(same.view.kv.v_pages[t / 8][t % 8 * 128]);
    }
    EXPECT_NEAR(same.out[last], mean / static_cast<double>(queries), kTolerance);
  }
}

// Scores of several thousand: exp would overflow without the maximum being subtracted.
TEST(Attention, LargeScoresDoNotOverflow) {
  const Shape shape{4, 2, 64, 16};
  ThreadPool pool(2);
  for (const int64_t queries : {1, 70}) {
    Sequence sequence(5, shape, 90, queries);
    for (float& v : sequence.q) v *= 1000.0f;
    attention(make_args(shape, {&sequence.view, 1}), pool);
    for (const float v : sequence.out) ASSERT_LE(std::abs(v), 8.0f);  // within the values' range
  }
}

TEST(AttentionDeathTest, HeadsMustDivide) {
  ThreadPool pool(1);
  EXPECT_DEATH(attention({{}, 3, 2, 64, 1.0f}, pool), "multiple of KV heads");
}

}  // namespace
}  // namespace triptych::cpu
