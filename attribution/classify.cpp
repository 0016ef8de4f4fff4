// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "attribution/classify.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "attribution/rules/default.rules.yaml.h"
#include "base/strings.h"

namespace triptych {
namespace {

const std::vector<std::string> kKeys = {"class", "kind", "name"};

// yaml-cpp counts lines and columns from 0; -1 where it knows no place.
std::string place(std::string_view where, const YAML::Mark& mark) {
  if (mark.is_null()) return std::string(where);
  return std::string(where) + str_format(":%d:%d", mark.line + 1, mark.column + 1);
}

Unexpected bad_rule(std::string message, std::string_view where, const YAML::Node& node) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), place(where, node.Mark()));
}

// The index of the scalar `node` in `words`, or an error that lists them.
Result<size_t> find_word(const YAML::Node& node, std::span<const std::string> words,
                         std::string_view what, std::string_view where) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const auto found = std::find(words.begin(), words.end(), text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  std::string message =
      node.IsScalar() ? "unknown " + std::string(what) + " '" + text + "'"
                      : "expected one word for " + std::string(what) + ", found a list or map";
  if (const std::string near = nearest(text, words); !text.empty() && !near.empty()) {
    message += ", did you mean '" + near + "'?";
  }
  return bad_rule(message + "; expected one of " + join(words, ", "), where, node);
}

std::vector<std::string> to_strings(std::span<const std::string_view> words) {
  return {words.begin(), words.end()};
}

// The values of one rule by key, with unknown, doubled and missing keys refused (yaml-cpp keeps the
// first of two equal keys in silence).
Result<std::array<YAML::Node, 3>> rule_fields(const YAML::Node& rule, std::string_view where) {
  if (!rule.IsMap()) {
    return bad_rule("expected a rule such as {class: gemm, kind: kernel, name: '^gemm_'}", where,
                    rule);
  }
  std::array<YAML::Node, 3> fields{YAML::Node(YAML::NodeType::Undefined),
                                   YAML::Node(YAML::NodeType::Undefined),
                                   YAML::Node(YAML::NodeType::Undefined)};
  std::set<size_t> seen;
  for (const auto& entry : rule) {
    TRIPTYCH_TRY(const size_t key, find_word(entry.first, kKeys, "key", where));
    if (!seen.insert(key).second) {
      return bad_rule("key '" + kKeys[key] + "' stands twice", where, entry.first);
    }
    fields[key].reset(entry.second);
  }
  if (!seen.contains(0)) return bad_rule("a rule needs a class", where, rule);
  if (seen.size() == 1) {
    return bad_rule(
        "a rule needs a kind or a name; one that matches everything would hide what "
        "no rule knows",
        where, rule);
  }
  return fields;
}

Result<YAML::Node> load(std::string_view yaml, std::string_view where) {
  try {
    return YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::kInvalidArgument, error.msg, place(where, error.mark));
  }
}

}  // namespace

Result<Classifier> Classifier::parse(std::string_view yaml, std::string_view where) {
  TRIPTYCH_TRY(const YAML::Node root, load(yaml, where));
  if (!root.IsSequence()) {
    return bad_rule("expected a list of rules, each {class, kind, name}", where, root);
  }
  const std::vector<std::string> classes = to_strings(kTimeClassNames);
  const std::vector<std::string> kinds = to_strings(kActivityKindNames);
  Classifier classifier;
  for (const YAML::Node& node : root) {
    TRIPTYCH_TRY(const auto fields, rule_fields(node, where));
    TRIPTYCH_TRY(const size_t time_class, find_word(fields[0], classes, "class", where));
    Rule rule{static_cast<TimeClass>(time_class), std::nullopt, std::nullopt};
    if (fields[1].IsDefined()) {
      TRIPTYCH_TRY(const size_t kind, find_word(fields[1], kinds, "kind", where));
      rule.kind = static_cast<ActivityKind>(kind);
    }
    if (fields[2].IsDefined()) {
      if (!fields[2].IsScalar()) {
        return bad_rule("expected a regular expression for name", where, fields[2]);
      }
      Result<Regex> regex = Regex::compile(fields[2].Scalar());
      if (!regex) return bad_rule(regex.error().message, where, fields[2]);
      rule.name = std::move(*regex);
    }
    classifier.rules_.push_back(std::move(rule));
  }
  return classifier;
}

const Classifier& Classifier::built_in() {
  static const Result<Classifier> rules = parse(kDefaultRulesYaml, "default.rules.yaml");
  return rules.value();
}

std::optional<TimeClass> Classifier::classify(ActivityKind kind, std::string_view name) const {
  for (const Rule& rule : rules_) {
    if (rule.kind && *rule.kind != kind) continue;
    if (rule.name && !rule.name->search(name)) continue;
    return rule.time_class;
  }
  if (kind == ActivityKind::kRuntime) return std::nullopt;
  return TimeClass::kUnclassified;
}

}  // namespace triptych
