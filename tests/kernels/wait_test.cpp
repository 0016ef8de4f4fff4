// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/wait.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace triptych::cpu {
namespace {

TEST(WaitWhileEqual, ReturnsAtOnceWhenTheValueIsAnotherOne) {
  const std::atomic<uint32_t> value{7};
  wait_while_equal(value, 6, true);
  wait_while_equal(value, 8, false);
  EXPECT_EQ(value.load(), 7u);
}

// The delays end the wait in each of its stages: spinning, yielding, sleeping.
TEST(WaitWhileEqual, SeesWhatWasWrittenBeforeTheChange) {
  for (const bool spin : {true, false}) {
    for (const int delay_us : {0, 30, 5000}) {
      std::atomic<uint32_t> value{0};
      int written = 0;
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
        written = 42;
        value.store(1, std::memory_order_release);
        value.notify_one();
      });
      wait_while_equal(value, 0, spin);
      EXPECT_EQ(written, 42);
      other.join();
    }
  }
}

}  // namespace
}  // namespace triptych::cpu
