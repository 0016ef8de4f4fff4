// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "experiments/dead_runs.h"

#include <algorithm>

#include "db/store.h"
#include "experiments/run_lock.h"

namespace triptych {
namespace {

/// Is there anything to mark, in a file that may be written without a migration?
bool may_have_dead_runs(const std::filesystem::path& database) {
  const auto store = db::Store::open(database, db::OpenMode::kReadOnly);
  if (!store || store->is_copy()) return false;
  const auto runs = store->runs("");
  return runs && std::ranges::any_of(*runs, [](const db::RunRow& run) {
           return run.status == "running" && !run.interrupted;
         });
}

}  // namespace

void mark_dead_runs(const std::filesystem::path& database) {
  if (!may_have_dead_runs(database)) return;
  const auto lock = RunLock::acquire(database, 1);  // destroyed after the store, see run_lock.cpp
  if (!lock) return;
  auto store = db::Store::open(database, db::OpenMode::kReadWrite);
  if (store) static_cast<void>(store->mark_interrupted());
}

}  // namespace triptych
