// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// triptych doctor.
#include <cstdlib>
#include <ostream>

#include "experiments/cli_command.h"
#include "experiments/doctor.h"

namespace triptych::cli {
namespace {

int run_doctor_command(const Arguments&, CliStreams streams) {
  const char* path = std::getenv("PATH");
  DoctorPlaces places;
  places.search_path = path == nullptr ? "" : path;
  streams.out << render_doctor(run_doctor(places));
  return kExitOk;
}

}  // namespace

const Command kDoctor = {
    .name = "doctor",
    .summary = "say what this machine can do, what is missing, and how to fix it",
    .synopsis = "[options]",
    .details =
        "Run it in the folder of the project, where models/ and .venv/ are. Always exits 0.\n",
    .run = run_doctor_command,
};

}  // namespace triptych::cli
