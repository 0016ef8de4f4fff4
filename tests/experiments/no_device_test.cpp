// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A spec for a CUDA device where there is none: in a build without CUDA, and in one with it on a
// machine without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/device_info.h"
#include "tests/experiments/experiment_fixture.h"
#include "tests/support/child_process.h"

namespace triptych {
namespace {

using test::count;
using ::testing::HasSubstr;

class NoDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto devices = query_devices();
    if (devices) GTEST_SKIP() << "this machine has " << devices->front().name;
    reason_ = devices.error().message;
  }
  ChildEnd program(const std::string& command, const std::string& limit) {
    folder_.write("spec.yaml",
                  "experiment: elsewhere\n"
                  "device: cuda\n"
                  "model: {synthetic: llama-tiny, seed: 1}\n"
                  "stacks:\n"
                  "  baseline: {runtime: eager, weights: f16}\n"
                  "  fast: {runtime: fast, weights: f16, memory_limit: " +
                      limit +
                      "}\n"
                      "workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 6}\n"
                      "measure: {blocks: 2}\n");
    return run_program({command, (folder_ / "spec.yaml").string(), "--db", database().string()});
  }
  std::filesystem::path database() const { return folder_ / "results.sqlite"; }

  test::ExperimentFolder folder_;
  std::string reason_;
};

TEST_F(NoDevice, APlanForAnotherMachineIsMade) {
  for (const char* limit : {"24GiB", "0.9", "1"}) {
    const ChildEnd end = program("plan", limit);
    EXPECT_EQ(end.code, 0) << limit << "\n" << end.err;
    EXPECT_THAT(end.out, HasSubstr("fast@c=1,prompt=4,output=6"));
    EXPECT_THAT(end.out, HasSubstr("time    no estimate without the CUDA device"));
  }
}

TEST_F(NoDevice, WeightsWithoutKernelsAreRefusedByThePlanToo) {
  folder_.write("spec.yaml",
                "experiment: elsewhere\n"
                "device: cuda\n"
                "model: {synthetic: llama-tiny, seed: 1}\n"
                "stacks:\n"
                "  baseline: {runtime: eager, weights: f16}\n"
                "  full: {runtime: eager, weights: w4a16-g32}\n"
                "workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 6}\n");
  const ChildEnd end =
      run_program({"plan", (folder_ / "spec.yaml").string(), "--db", database().string()});
  EXPECT_EQ(end.code, 6);
  EXPECT_THAT(end.out, HasSubstr("skipped 1 of 2 cells"));
  EXPECT_THAT(end.err, HasSubstr("full@c=1,prompt=4,output=6 cannot run: weights w4a16-g32 have a "
                                 "matrix of q4_1"));
  EXPECT_EQ(end.err.find("baseline"), std::string::npos);
}

TEST_F(NoDevice, OnlyALimitInBytesIsComparedWithWhatAPlanNeeds) {
  const ChildEnd end = program("plan", "100000");
  EXPECT_EQ(end.code, 6);
  EXPECT_THAT(end.err, HasSubstr("fast@c=1,prompt=4,output=6 does not fit: weights "));
  EXPECT_THAT(end.err, HasSubstr(" exceed the limit of 97.7 KiB\n")) << "nothing is free or held";
  EXPECT_EQ(end.err.find("baseline"), std::string::npos);
}

TEST_F(NoDevice, ARunSkipsEveryCellWithTheReason) {
  const ChildEnd end = program("run", "0.9");
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr(reason_));
  std::string pattern = reason_;
  std::replace(pattern.begin(), pattern.end(), '\'', '_');  // any character to LIKE
  EXPECT_EQ(count(database(),
                  "SELECT count(*) FROM cell WHERE status = 'skipped' AND"
                  " reason LIKE '%" +
                      pattern + "%'"),
            2);
  EXPECT_EQ(count(database(), "SELECT count(*) FROM block"), 0);
}

TEST_F(NoDevice, DoctorSaysWhatIsMissing) {
  const ChildEnd end = run_program({"doctor"});
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.out, HasSubstr("missing  GPU"));
#ifdef TRIPTYCH_HAS_CUDA
  EXPECT_THAT(end.out, HasSubstr("ok       CUDA build"));
#else
  EXPECT_THAT(end.out, HasSubstr("missing  CUDA build"));
#endif
}

}  // namespace
}  // namespace triptych
