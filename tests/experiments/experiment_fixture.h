// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// A folder with a tiny experiment on a synthetic model, and a database to run it into.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "db/store.h"
#include "experiments/runner.h"
#include "experiments/spec.h"

namespace triptych::test {

/// The 2x2 of the quickstart in small.
inline constexpr std::string_view kTinySpec = R"(experiment: tiny
question: what does a fake engine gain?
model: {synthetic: llama-tiny, seed: 1}
stacks:
  baseline: {runtime: eager, weights: f16}
  intermediate: {runtime: fast, weights: f16}
  full: {runtime: fast, weights: w4a16-g32}
  corner: {runtime: eager, weights: w4a16-g32}
workload: {prompts: pool.jsonl, prompt_tokens: 4, output_tokens: 6, concurrency: 1}
measure: {blocks: 10, warmup: 1, trace_steps: 3, seed: 7}
decompose:
  builtin: {path: [baseline, intermediate, full], corner: corner}
)";

class ExperimentFolder {
 public:
  ExperimentFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "triptych_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    write("pool.jsonl", "{\"token_ids\": [1, 2, 3, 4, 5]}\n{\"token_ids\": [6, 7]}\n");
  }
  ExperimentFolder(const ExperimentFolder&) = delete;
  ExperimentFolder& operator=(const ExperimentFolder&) = delete;
  ~ExperimentFolder() {
    std::error_code ignored;  // nothing to be done about it in a destructor
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }
  void write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name) << text;
  }
  [[nodiscard]] ExperimentSpec spec(std::string_view yaml = kTinySpec,
                                    std::vector<SpecOverride> overrides = {}) const {
    auto spec = parse_spec_text(yaml, path_ / "spec.yaml", overrides);
    TRIPTYCH_CHECK(spec.has_value(), spec.error().to_string());
    return std::move(*spec);
  }

 private:
  std::filesystem::path path_;
};

/// The one integer that a query gives.
inline int64_t count(const std::filesystem::path& database, std::string_view sql) {
  const auto connection = db::Connection::open(database, db::OpenMode::kReadOnly);
  TRIPTYCH_CHECK(connection.has_value(), connection.error().to_string());
  auto statement = connection->prepare(sql);
  TRIPTYCH_CHECK(statement.has_value(), statement.error().to_string());
  const auto row = statement->step();
  TRIPTYCH_CHECK(row.has_value() && *row, "the query gave no row");
  return statement->int64_at(0);
}

}  // namespace triptych::test
