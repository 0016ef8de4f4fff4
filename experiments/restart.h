// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// restart_program(): a fresh process in the place of this one.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace triptych {

/// Runs this program anew with `args` (without its name) as the same process: its number, streams
/// and folder stay, everything it held is gone, a lost device context and the memory behind it as
/// well, and its exit code is the one that callers see. Flush streams before. Returns only when the
/// system refuses: kIo.
[[nodiscard]] Error restart_program(std::vector<std::string> args);

}  // namespace triptych
