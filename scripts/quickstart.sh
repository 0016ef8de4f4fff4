#!/usr/bin/env bash
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
# From a fresh machine to a report: installs what is missing, builds, fetches the model and runs the
# quickstart experiment. Results go to results.sqlite; a second run finds them and runs nothing.
# Options are passed on to `triptych run`, e.g. --force.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

timed "packages" install_packages
timed "build" build cpu -- triptych
timed "model" ensure_model
timed "experiment" "$program" run experiments/specs/quickstart.yaml "$@"
print_durations
