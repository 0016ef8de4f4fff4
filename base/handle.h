// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// UniqueHandle: one owner for every C handle (sqlite3*, cudaStream_t, ncclComm_t, pcre2_code*).
#pragma once

#include <memory>
#include <type_traits>

namespace triptych {

template <auto Destroy>
struct HandleDeleter {
  template <class T>
  void operator()(T* handle) const noexcept {
    static_cast<void>(Destroy(handle));  // a destructor cannot report what closing returned
  }
};

/// Owns `H`, a pointer type, and calls `Destroy` on it once. Same size as the handle.
template <class H, auto Destroy>
using UniqueHandle = std::unique_ptr<std::remove_pointer_t<H>, HandleDeleter<Destroy>>;

}  // namespace triptych
