// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/json.h"

#include <unordered_set>
#include <vector>

namespace triptych {
namespace {

Unexpected wrong_type(const char* key, const Json& found, const char* expected,
                      const std::string& where) {
  return fail(
      ErrorCode::kCorrupt,
      std::string("\"") + key + "\" is of type " + found.type_name() + ", expected " + expected,
      where);
}

/// Null pointer if absent or null.
Result<const Json*> lookup(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    return fail(ErrorCode::kCorrupt,
                std::string("a value of type ") + object.type_name() +
                    " stands where an object with \"" + key + "\" is expected",
                where);
  }
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return static_cast<const Json*>(nullptr);
  return &*found;
}

}  // namespace

Result<Json> parse_json_object(std::string_view text, const std::string& where) {
  std::vector<std::unordered_set<std::string>> open_objects;
  std::optional<std::string> duplicate;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool start =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    too_deep = too_deep || (start && depth >= kMaxJsonDepth);  // of what it starts in
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second && !duplicate) duplicate = key;
    }
    return true;
  };
  Json value;
  try {
    value = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kCorrupt, error.what(), where);
  }
  if (too_deep) {
    return fail(ErrorCode::kCorrupt,
                "nests deeper than " + std::to_string(kMaxJsonDepth) + " levels", where);
  }
  if (duplicate) {
    return fail(ErrorCode::kCorrupt, "key \"" + *duplicate + "\" appears twice in one object",
                where);
  }
  if (!value.is_object()) {
    return fail(ErrorCode::kCorrupt,
                std::string("the top value is of type ") + value.type_name() + ", expected object",
                where);
  }
  return value;
}

Result<std::optional<int64_t>> json_integer(const Json& object, const char* key,
                                            const std::string& where) {
  TRIPTYCH_TRY(const Json* found, lookup(object, key, where));
  if (found == nullptr) return std::optional<int64_t>{};
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX);
  if (!fits) return wrong_type(key, *found, "an integer below 2^63", where);
  return std::optional<int64_t>(found->get<int64_t>());
}

Result<std::optional<double>> json_number(const Json& object, const char* key,
                                          const std::string& where) {
  TRIPTYCH_TRY(const Json* found, lookup(object, key, where));
  if (found == nullptr) return std::optional<double>{};
  if (!found->is_number()) return wrong_type(key, *found, "number", where);
  return std::optional<double>(found->get<double>());
}

Result<std::optional<bool>> json_boolean(const Json& object, const char* key,
                                         const std::string& where) {
  TRIPTYCH_TRY(const Json* found, lookup(object, key, where));
  if (found == nullptr) return std::optional<bool>{};
  if (!found->is_boolean()) return wrong_type(key, *found, "boolean", where);
  return std::optional<bool>(found->get<bool>());
}

Result<std::optional<std::string>> json_string(const Json& object, const char* key,
                                               const std::string& where) {
  TRIPTYCH_TRY(const Json* found, lookup(object, key, where));
  if (found == nullptr) return std::optional<std::string>{};
  if (!found->is_string()) return wrong_type(key, *found, "string", where);
  return std::optional<std::string>(found->get<std::string>());
}

Result<const Json*> json_member(const Json& object, const char* key, Json::value_t type,
                                const std::string& where) {
  TRIPTYCH_TRY(const Json* found, lookup(object, key, where));
  if (found != nullptr && found->type() != type) {
    return wrong_type(key, *found, Json(type).type_name(), where);
  }
  return found;
}

}  // namespace triptych
