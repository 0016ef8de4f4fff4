// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A real loss: the context of the process is gone, and its memory with it, until the next process.
#include "tests/experiments/lost_device_run.h"
#include "tests/support/gpu_test.h"

namespace triptych {
namespace {

class RestartCuda : public GpuTest {};

TEST_F(RestartCuda, ALostDeviceCostsOneCellAndTheOthersGoOnInAFreshProcess) {
  test::expect_the_other_cells_go_on("cuda", "illegal memory access");
}

}  // namespace
}  // namespace triptych
