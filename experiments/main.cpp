// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <iostream>
#include <string>
#include <vector>

#include "experiments/cli.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  // A limit on file sizes is then an error of write(), told like a full disk, and not a death.
  signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  return triptych::run_cli(args, {std::cout, std::cerr});
}
