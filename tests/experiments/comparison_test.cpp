// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// make_block_row(); run_comparison() as a whole is tested in runner_test.cpp.
#include "experiments/comparison.h"

#include <gtest/gtest.h>

namespace triptych {
namespace {

GenerateResult two_answers() {
  GenerateResult result;
  result.start_ns = 1000;
  result.end_ns = 1100;
  result.decode_steps = 2;
  result.requests = {{.submit_ns = 1000,
                      .admit_ns = 1004,
                      .preemptions = 2,
                      .token_ns = {1010, 1030, 1060},
                      .tokens = {5, 6, 7}},
                     {.submit_ns = 1001, .admit_ns = 1050, .token_ns = {1100}, .tokens = {5}}};
  return result;
}

const std::vector<Request> kRequests = {{.prompt = {1, 2}, .max_new_tokens = 3},
                                        {.prompt = {1, 2, 3}, .max_new_tokens = 1}};

TEST(BlockRow, TimesOfEachRequest) {
  const auto row = make_block_row(two_answers(), kRequests);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->wall_ns, 100);
  EXPECT_EQ(row->output_tokens, 4);
  EXPECT_EQ(row->decode_steps, 2);
  ASSERT_EQ(row->requests.size(), 2U);
  EXPECT_EQ(row->requests[0].prompt_tokens, 2);
  EXPECT_EQ(row->requests[0].ttft_ns, 10);
  EXPECT_EQ(row->requests[0].e2e_ns, 60);
  EXPECT_EQ(row->requests[0].tpot_ns, 25.0);
  EXPECT_EQ(row->requests[0].itl_ns, (std::vector<int64_t>{20, 30}));
  EXPECT_EQ(row->requests[0].submit_ns, 0);
  EXPECT_EQ(row->requests[0].queue_ns, 4);
  EXPECT_EQ(row->requests[0].preemptions, 2);
  EXPECT_EQ(row->requests[1].submit_ns, 1);
  EXPECT_EQ(row->requests[1].queue_ns, 49);
  EXPECT_EQ(row->requests[1].tpot_ns, std::nullopt);
  EXPECT_TRUE(row->requests[1].itl_ns.empty());
}

TEST(BlockRow, AnswersThatCannotBeTimesAreErrors) {
  GenerateResult silent = two_answers();
  silent.requests[1] = {};
  GenerateResult fewer = two_answers();
  fewer.requests.pop_back();
  GenerateResult frozen = two_answers();
  frozen.end_ns = frozen.start_ns;
  GenerateResult backwards = two_answers();
  std::swap(backwards.requests[0].token_ns[0], backwards.requests[0].token_ns[2]);
  GenerateResult early = two_answers();
  early.requests[1].admit_ns = 1000;  // before it was submitted
  for (const GenerateResult& result : {silent, fewer, frozen, backwards, early}) {
    const auto row = make_block_row(result, kRequests);
    ASSERT_FALSE(row);
    EXPECT_EQ(row.error().code, ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace triptych
