// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// mark_dead_runs(): a run whose program was killed is not shown as running.
#pragma once

#include <filesystem>

namespace triptych {

/// Marks runs that are "running" while no program measures into the database, for commands that
/// only show it. Best effort: a file that cannot be written, has an older schema or is being
/// measured into stays as it is.
void mark_dead_runs(const std::filesystem::path& database);

}  // namespace triptych
