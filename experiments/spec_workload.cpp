// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The sections of a spec that say what work is done: workload, zip and exclude.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/strings.h"
#include "experiments/spec_sections.h"

namespace triptych {
namespace {

constexpr std::array<std::string_view, 9> kWorkloadKeys = {
    "prompts",  "prompt_tokens", "output_tokens", "concurrency", "requests",
    "arrivals", "slo",           "sampling",      "ignore_eos"};

/// The number fields, in the order in which combinations are counted: the last varies fastest.
constexpr std::array<std::string_view, 4> kFields = {"prompt_tokens", "output_tokens",
                                                     "concurrency", "requests"};
constexpr size_t kRequests = 3;
// Beyond what any model reads, any server holds and any night is long enough for.
constexpr std::array<int64_t, 4> kHighest = {1 << 20, 1 << 20, 4096, 65536};
constexpr size_t kMaxPoints = 4096;

struct Field {
  std::vector<int64_t> values;  ///< Empty: not given.
  SourcePlace place;
};
using Fields = std::array<Field, kFields.size()>;
/// One combination: a value per field; 0 = not given.
using Point = std::array<int64_t, kFields.size()>;

std::optional<size_t> field_index(std::string_view name) {
  const auto found = std::find(kFields.begin(), kFields.end(), name);
  if (found == kFields.end()) return std::nullopt;
  return static_cast<size_t>(found - kFields.begin());
}

Field read_field(YamlReader& reader, const YamlValue& workload, size_t index) {
  Field field;
  const std::string what = "workload." + std::string(kFields[index]);
  const YamlValue* value = workload.find(kFields[index]);
  if (value == nullptr) return field;
  field.place = value->place;
  if (value->kind != YamlValue::Kind::kSequence) {
    field.values.push_back(reader.integer(*value, what, 1, kHighest[index]));
    return field;
  }
  if (value->items.empty()) reader.error(value->place, what + ": the list is empty");
  if (value->items.size() > kMaxPoints) {
    reader.error(value->place, what + str_format(": more than %zu values", kMaxPoints));
    return field;
  }
  for (const YamlValue& item : value->items) {
    field.values.push_back(reader.integer(item, what, 1, kHighest[index]));
  }
  return field;
}

/// Groups of fields that walk in step; a field that no `zip` names is a group of its own.
std::vector<std::vector<size_t>> read_zip(YamlReader& reader, const YamlValue& root,
                                          const Fields& fields) {
  std::vector<std::vector<size_t>> groups;
  std::array<bool, kFields.size()> used{};
  const YamlValue* zip = root.find("zip");
  const auto is_list = [](const YamlValue& v) { return v.kind == YamlValue::Kind::kSequence; };
  if (zip != nullptr &&
      (!is_list(*zip) || !std::all_of(zip->items.begin(), zip->items.end(), is_list))) {
    reader.error(zip->place,
                 "zip: expected a list of lists of field names, as in "
                 "[[prompt_tokens, output_tokens]]");
    zip = nullptr;
  }
  for (const YamlValue& group : zip != nullptr ? zip->items : std::vector<YamlValue>{}) {
    std::vector<size_t> indices;
    for (const YamlValue& item : group.items) {
      const auto index = field_index(reader.word(item, "zip", kFields));
      if (!index) continue;
      if (used[*index]) {
        reader.error(item.place, "zip: \"" + item.text + "\" occurs twice");
        continue;
      }
      used[*index] = true;
      const size_t length = fields[*index].values.size();
      const size_t expected = indices.empty() ? length : fields[indices[0]].values.size();
      if (length != expected) {
        reader.error(item.place,
                     str_format("zip: %s has %zu values, but %s has %zu; lists that walk in step "
                                "have one length",
                                item.text.c_str(), length, std::string(kFields[indices[0]]).c_str(),
                                expected));
      }
      indices.push_back(*index);
    }
    if (group.items.size() < 2) {
      reader.error(group.place, "zip: a group needs at least two fields");
    }
    if (!indices.empty()) groups.push_back(std::move(indices));
  }
  for (size_t i = 0; i < kFields.size(); ++i) {
    if (!used[i] && !fields[i].values.empty()) groups.push_back({i});
  }
  for (auto& group : groups) std::sort(group.begin(), group.end());
  std::sort(groups.begin(), groups.end());
  return groups;
}

std::vector<Point> expand(YamlReader& reader, const Fields& fields,
                          const std::vector<std::vector<size_t>>& groups) {
  std::vector<Point> points = {Point{}};
  for (const auto& group : groups) {
    const size_t length = fields[group[0]].values.size();
    if (points.size() * length > kMaxPoints) {
      reader.error(fields[group[0]].place,
                   str_format("workload: more than %zu combinations", kMaxPoints));
      return {};
    }
    std::vector<Point> next;
    for (const Point& point : points) {
      for (size_t i = 0; i < length; ++i) {
        Point extended = point;
        for (const size_t field : group) extended[field] = fields[field].values[i];
        next.push_back(extended);
      }
    }
    points = std::move(next);
  }
  return points;
}

bool matches(const Point& point, const std::map<size_t, std::vector<int64_t>>& condition) {
  return std::all_of(condition.begin(), condition.end(), [&](const auto& field) {
    const auto& values = field.second;
    return std::find(values.begin(), values.end(), point[field.first]) != values.end();
  });
}

/// Removes the points that an entry of `exclude` matches.
void exclude(YamlReader& reader, const YamlValue& root, std::vector<Point>& points) {
  const YamlValue* section = root.find("exclude");
  if (section == nullptr) return;
  if (section->kind != YamlValue::Kind::kSequence) {
    reader.error(section->place,
                 "exclude: expected a list of mappings, as in "
                 "[{concurrency: 8, prompt_tokens: 512}]");
    return;
  }
  for (const YamlValue& entry : section->items) {
    if (!reader.mapping(entry, "exclude", kFields)) continue;
    std::map<size_t, std::vector<int64_t>> condition;
    for (const YamlEntry& field : entry.entries) {
      const auto index = field_index(field.key);
      if (!index) continue;
      const std::vector<YamlValue> one = {field.value};
      const bool list = field.value.kind == YamlValue::Kind::kSequence;
      for (const YamlValue& value : list ? field.value.items : one) {
        condition[*index].push_back(
            reader.integer(value, "exclude." + field.key, 1, kHighest[*index]));
      }
    }
    const size_t before = points.size();
    std::erase_if(points, [&](const Point& point) { return matches(point, condition); });
    if (points.size() == before && !reader.has_errors()) {
      reader.error(entry.place, "exclude: this matches no combination of the workload");
    }
    if (points.empty() && !reader.has_errors()) {
      reader.error(entry.place, "exclude: nothing is left of the workload");
    }
  }
}

void add_workloads(YamlReader& reader, const Fields& fields, const std::vector<Point>& points,
                   const WorkloadSpec& base, ExperimentSpec& spec) {
  std::set<std::string> labels;
  for (const WorkloadSpec& workload : spec.workloads) labels.insert(workload.label());
  for (const Point& point : points) {
    WorkloadSpec workload = base;
    workload.prompt_tokens = point[0];
    workload.output_tokens = point[1];
    workload.concurrency = point[2] == 0 ? 1 : point[2];
    workload.requests = point[kRequests] == 0 ? workload.concurrency : point[kRequests];
    const bool closed = workload.arrivals.kind == ArrivalSpec::Kind::kClosed;
    if (!closed && point[kRequests] == 0) {
      reader.error(spec.workload_place,
                   "workload.requests: expected with arrivals, which go on as long as there are "
                   "requests");
      return;
    }
    if (closed && workload.requests < workload.concurrency) {
      reader.error(fields[kRequests].place,
                   str_format("workload.requests: %lld requests never reach a concurrency of %lld",
                              static_cast<long long>(workload.requests),
                              static_cast<long long>(workload.concurrency)));
      return;
    }
    if (!labels.insert(workload.label()).second) {
      reader.error(spec.workload_place,
                   "workload: the combination " + workload.label() + " occurs twice");
      return;
    }
    spec.workloads.push_back(std::move(workload));
  }
}

}  // namespace

void read_workloads(YamlReader& reader, const YamlValue& root, const std::filesystem::path& folder,
                    ExperimentSpec& spec) {
  const YamlValue* section = root.find("workload");
  if (section == nullptr || !reader.mapping(*section, "workload", kWorkloadKeys)) return;
  spec.workload_place = section->place;
  for (const std::string_view key : {"prompts", "prompt_tokens", "output_tokens"}) {
    reader.require(*section, section->place, "workload", key, kWorkloadKeys);
  }
  WorkloadSpec base;
  if (const YamlValue* prompts = section->find("prompts")) {
    base.prompts = resolve_path(folder, reader.string(*prompts, "workload.prompts"));
    require_file(reader, *prompts, "workload.prompts", base.prompts);
  }
  base.sampling = read_sampling(reader, *section);
  if (const YamlValue* ignore_eos = section->find("ignore_eos")) {
    base.ignore_eos = reader.boolean(*ignore_eos, "workload.ignore_eos");
  }
  base.slo = read_slo(reader, *section);
  const std::vector<ArrivalSpec> all_arrivals = read_arrivals(reader, *section, folder);
  Fields fields;
  for (size_t i = 0; i < fields.size(); ++i) fields[i] = read_field(reader, *section, i);
  const auto groups = read_zip(reader, root, fields);
  if (reader.has_errors()) return;  // combinations of wrong values would only repeat the errors
  std::vector<Point> points = expand(reader, fields, groups);
  exclude(reader, root, points);
  for (const ArrivalSpec& arrivals : all_arrivals) {
    base.arrivals = arrivals;
    if (!reader.has_errors()) add_workloads(reader, fields, points, base, spec);
  }
}

}  // namespace triptych
