// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Classifier: a rule file turns activity kinds and names into time classes.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "attribution/time_class.h"
#include "base/regex.h"
#include "base/result.h"
#include "profiler/trace.h"

namespace triptych {

class Classifier {
 public:
  /// Reads rules from YAML text: a list of {class, kind (optional), name (regular expression,
  /// optional)}; the first rule that matches wins. Errors: `where:line:col`, expected words.
  [[nodiscard]] static Result<Classifier> parse(std::string_view yaml, std::string_view where);
  /// The rules that ship with Triptych (attribution/rules/default.rules.yaml, embedded).
  [[nodiscard]] static const Classifier& built_in();

  /// The class of a record, or nullopt for kinds that are not device time (kRuntime without a
  /// rule). A kernel that no rule names is kUnclassified.
  [[nodiscard]] std::optional<TimeClass> classify(ActivityKind kind, std::string_view name) const;

 private:
  struct Rule {
    TimeClass time_class;
    std::optional<ActivityKind> kind;
    std::optional<Regex> name;
  };
  std::vector<Rule> rules_;
};

}  // namespace triptych
