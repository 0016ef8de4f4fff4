// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error, with the member names of std::expected (C++23).
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/error.h"

namespace triptych {

/// Wraps an Error on its way into a Result, as std::unexpected does.
struct Unexpected {
  Error error;
};

/// Shorthand for the common `return fail(code, message, where);`.
[[nodiscard]] inline Unexpected fail(ErrorCode code, std::string message, std::string where = {}) {
  return Unexpected{Error{code, std::move(message), std::move(where)}};
}

template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return fail(...);` are the two ways out.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Unexpected failure) : state_(std::in_place_index<1>, std::move(failure.error)) {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// Precondition: has_value(). Anything else is a bug in the caller, so it is a CHECK.
  [[nodiscard]] T& value() & {
    require_value();
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    require_value();
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    require_value();
    return std::get<0>(std::move(state_));
  }
  [[nodiscard]] T& operator*() & { return value(); }
  [[nodiscard]] const T& operator*() const& { return value(); }
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() { return &value(); }
  [[nodiscard]] const T* operator->() const { return &value(); }

  /// Precondition: !has_value().
  [[nodiscard]] const Error& error() const {
    TRIPTYCH_CHECK(!has_value(), "error() called on a Result that holds a value");
    return std::get<1>(state_);
  }

 private:
  void require_value() const {
    TRIPTYCH_CHECK(has_value(), "value() called on an error: " + std::get<1>(state_).to_string());
  }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Unexpected failure) : error_(std::move(failure.error)) {}

  [[nodiscard]] bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] const Error& error() const {
    TRIPTYCH_CHECK(error_.has_value(), "error() called on a Status that is ok");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace triptych

#define TRIPTYCH_CONCAT_INNER(a, b) a##b
#define TRIPTYCH_CONCAT(a, b) TRIPTYCH_CONCAT_INNER(a, b)

/// Returns the error of `expr` (a Status or Result) from the enclosing function.
#define TRIPTYCH_RETURN_IF_ERROR(expr)                                 \
  do {                                                                 \
    if (auto triptych_status = (expr); !triptych_status.has_value()) { \
      return ::triptych::Unexpected{triptych_status.error()};          \
    }                                                                  \
  } while (false)

/// `TRIPTYCH_TRY(auto spec, parse_spec(path));` declares the value or returns the error.
#define TRIPTYCH_TRY(declaration, expr) \
  TRIPTYCH_TRY_INNER(declaration, expr, TRIPTYCH_CONCAT(triptych_result_, __LINE__))
#define TRIPTYCH_TRY_INNER(declaration, expr, result)                     \
  auto result = (expr);                                                   \
  if (!result.has_value()) return ::triptych::Unexpected{result.error()}; \
  declaration = std::move(result).value()
