// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// JSON of model files: parsed without exceptions, looked up with the type that is expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace triptych {

using Json = nlohmann::json;

/// Deepest nesting of objects and arrays; known model files have below 10 levels. Copies and dumps
/// of a Json recurse, so the bound keeps a hostile file from exhausting the stack.
inline constexpr int kMaxJsonDepth = 64;

/// An object at the top. Errors: kCorrupt with the place of a syntax error, for a key that appears
/// twice in one object, for another kind of value, or beyond kMaxJsonDepth.
[[nodiscard]] Result<Json> parse_json_object(std::string_view text, const std::string& where);

/// Member `key` of `object`; nothing if it is absent or null. Errors: kCorrupt naming the key, the
/// found and the expected type, also if `object` is no object.
[[nodiscard]] Result<std::optional<int64_t>> json_integer(const Json& object, const char* key,
                                                          const std::string& where);
[[nodiscard]] Result<std::optional<double>> json_number(const Json& object, const char* key,
                                                        const std::string& where);
[[nodiscard]] Result<std::optional<bool>> json_boolean(const Json& object, const char* key,
                                                       const std::string& where);
[[nodiscard]] Result<std::optional<std::string>> json_string(const Json& object, const char* key,
                                                             const std::string& where);
/// Null pointer if it is absent or null; otherwise a member of the kind `type`.
[[nodiscard]] Result<const Json*> json_member(const Json& object, const char* key,
                                              Json::value_t type, const std::string& where);

}  // namespace triptych
