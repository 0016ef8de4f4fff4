// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/activations.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "base/random.h"
#include "engine/ops_cpu.h"
#include "tests/support/random_model.h"

namespace triptych {
namespace {

class ActivationsTest : public ::testing::Test {
 protected:
  cpu::ThreadPool pool_{1};
  std::unique_ptr<Ops> ops_ = make_cpu_ops(tiny_config(), pool_);
};

/// One random program of allocations and releases over `memory`, with rows scaled by `rows`.
void churn(ActivationMemory& memory, uint64_t seed, int64_t rows, bool touch) {
  RandomStream random(seed);
  struct Held {
    Activation activation;
    unsigned char tag;
  };
  std::deque<Held> held;
  for (int i = 0; i < 200; ++i) {
    if (!held.empty() && random.below(2) == 0) {
      const size_t which = random.below(held.size());
      const Tensor& tensor = held[which].activation.tensor();
      const auto* bytes = static_cast<const unsigned char*>(tensor.data);
      for (int64_t b = 0; touch && b < tensor.bytes(); ++b) ASSERT_EQ(bytes[b], held[which].tag);
      held.erase(held.begin() + static_cast<int64_t>(which));
    } else if (held.size() < 10) {
      const auto columns = 1 + static_cast<int64_t>(random.below(100));
      held.push_back({memory.allocate(rows, columns), static_cast<unsigned char>(i)});
      const Tensor& tensor = held.back().activation.tensor();
      ASSERT_EQ(tensor.rows, rows);
      ASSERT_EQ(tensor.columns, columns);
      if (touch) {
        ASSERT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 64, 0u);
        std::memset(tensor.data, held.back().tag, static_cast<size_t>(tensor.bytes()));
      }
    }
  }
}

TEST_F(ActivationsTest, ResultsNeverOverlap) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ArenaPlan plan(activation_bytes(ops_->device()));
    churn(plan, seed, 7, false);
    const auto arena = make_arena_activations(*ops_, plan.peak_bytes());
    churn(*arena, seed, 7, true);
    const auto heap = make_heap_activations(*ops_);
    churn(*heap, seed, 7, true);
    EXPECT_LE(heap->peak_bytes(), plan.peak_bytes());
    EXPECT_EQ(arena->peak_bytes(), plan.peak_bytes());
  }
}

TEST_F(ActivationsTest, APlanScalesWithTheRows) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ArenaPlan one(4);
    churn(one, seed, 1, false);
    for (const int64_t rows : {2, 3, 100}) {
      ArenaPlan many(4);
      churn(many, seed, rows, false);
      EXPECT_EQ(many.peak_bytes(), rows * one.peak_bytes());
    }
  }
}

TEST_F(ActivationsTest, HeapCountsWhatLivesAtTheSameTime) {
  const auto heap = make_heap_activations(*ops_);
  {
    Activation a = heap->allocate(2, 10);
    Activation b = heap->allocate(1, 5);
    EXPECT_EQ(heap->peak_bytes(), 100);
    a.reset();
    const Activation c = heap->allocate(1, 6);
    EXPECT_EQ(heap->peak_bytes(), 100);
    b = heap->allocate(1, 20);  // the new one exists before the old one goes
    EXPECT_EQ(heap->peak_bytes(), 24 + 20 + 80);
  }
  heap->reset_peak();
  EXPECT_EQ(heap->peak_bytes(), 0);
}

TEST_F(ActivationsTest, ArenaReusesTheFirstGapThatFits) {
  ArenaLayout layout;
  EXPECT_EQ(layout.place(128), 0);
  EXPECT_EQ(layout.place(64), 128);
  EXPECT_EQ(layout.place(64), 192);
  layout.remove(0);
  layout.remove(128);
  EXPECT_EQ(layout.place(192), 0);
  EXPECT_EQ(layout.place(64), 256);
  EXPECT_EQ(layout.high_water(), 320);
}

TEST_F(ActivationsTest, OutgrowingTheArenaIsABug) {
  const auto arena = make_arena_activations(*ops_, 256);
  const Activation fits = arena->allocate(1, 64);
  EXPECT_DEATH(static_cast<void>(arena->allocate(1, 1)), "planned arena");
}

}  // namespace
}  // namespace triptych
