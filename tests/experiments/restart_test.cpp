// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/restart.h"

#include "tests/experiments/lost_device_run.h"

namespace triptych {
namespace {

TEST(Restart, ALostDeviceCostsOneCellAndTheOthersGoOnInAFreshProcess) {
  test::expect_the_other_cells_go_on("cpu", test::kLossOnTheCpu);
}

TEST(Restart, AnArgumentListThatTheSystemRefusesIsAnError) {
  const Error error = restart_program({std::string(size_t{64} << 20, 'x')});
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_EQ(error.message, "cannot start again: Argument list too long");
}

}  // namespace
}  // namespace triptych
