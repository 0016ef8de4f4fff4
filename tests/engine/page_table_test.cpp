// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/page_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/random.h"

namespace triptych {
namespace {

TEST(PageTable, GivesPagesOnlyWhenTheLastIsFull) {
  PageTable table(2, 10, 4, 5);
  EXPECT_EQ(table.pages_per_slot(), 3);
  table.extend(0, 4);
  EXPECT_EQ(table.ids(0).size(), 1u);
  table.extend(0, 1);
  EXPECT_EQ(table.ids(0).size(), 2u);
  table.extend(1, 9);
  EXPECT_EQ(table.ids(1).size(), 3u);
  EXPECT_EQ(table.length(0), 5);
  EXPECT_EQ(table.length(1), 9);
  EXPECT_EQ(table.free_pages(), 0);
}

TEST(PageTable, AClearedSlotsPagesAreGivenAgain) {
  PageTable table(2, 8, 4, 2);
  table.extend(0, 8);
  table.clear(0);
  EXPECT_EQ(table.length(0), 0);
  EXPECT_TRUE(table.ids(0).empty());
  EXPECT_EQ(table.free_pages(), 2);
  table.extend(1, 5);
  EXPECT_EQ(table.ids(1).size(), 2u);
  table.clear(0);  // holds nothing
  EXPECT_EQ(table.free_pages(), 0);
}

/// No page belongs to two slots, none is lost, and every slot has exactly what its length needs.
void expect_consistent(const PageTable& table, int64_t max_batch) {
  std::set<int32_t> held;
  int64_t count = 0;
  for (int64_t slot = 0; slot < max_batch; ++slot) {
    const auto needed = (table.length(slot) + table.page_size() - 1) / table.page_size();
    ASSERT_EQ(std::ssize(table.ids(slot)), needed);
    for (const int32_t id : table.ids(slot)) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, table.num_pages());
      held.insert(id);
      ++count;
    }
  }
  ASSERT_EQ(std::ssize(held), count) << "a page of two sequences";
  ASSERT_EQ(table.free_pages() + count, table.num_pages());
}

TEST(PageTable, EveryPageHasOneOwnerUnderRandomGrowthAndEnds) {
  RandomStream random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const auto max_batch = 1 + static_cast<int64_t>(random.below(5));
    const auto page_size = 1 + static_cast<int64_t>(random.below(9));
    const int64_t pages = 1 + static_cast<int64_t>(random.below(20));
    const int64_t max_sequence = pages * page_size;
    PageTable table(max_batch, max_sequence, page_size, pages);
    for (int step = 0; step < 200; ++step) {
      const auto slot = static_cast<int64_t>(random.below(static_cast<uint64_t>(max_batch)));
      const int64_t room = static_cast<int64_t>(table.ids(slot).size()) * page_size -
                           table.length(slot) + table.free_pages() * page_size;
      if (room == 0 || random.below(5) == 0) {
        table.clear(slot);
      } else {
        const std::vector<int32_t> before(table.ids(slot).begin(), table.ids(slot).end());
        table.extend(slot, 1 + static_cast<int64_t>(random.below(
                                   static_cast<uint64_t>(std::min<int64_t>(room, 12)))));
        ASSERT_TRUE(std::equal(before.begin(), before.end(), table.ids(slot).begin()))
            << "tokens that are cached do not move";
      }
      expect_consistent(table, max_batch);
    }
  }
}

TEST(PageTableDeathTest, MoreThanThereIsIsABug) {
  PageTable table(2, 8, 4, 3);
  table.extend(0, 8);
  EXPECT_DEATH(table.extend(0, 1), "longer than its cache");
  EXPECT_DEATH(table.extend(1, 5), "more tokens than the pool");
}

}  // namespace
}  // namespace triptych
