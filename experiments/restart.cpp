// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/restart.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace triptych {

Error restart_program(std::vector<std::string> args) {
  // Not a child: this process would keep its share of the device until the child has ended. The
  // link is good even if the file was replaced meanwhile, and a resumed run wants the very same
  // program.
  constexpr const char* kProgram = "/proc/self/exe";
  args.insert(args.begin(), "triptych");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(kProgram, argv.data());
  return {ErrorCode::kIo, std::string("cannot start again: ") + std::strerror(errno), kProgram};
}

}  // namespace triptych
