// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The parts of tokenizer.json around its model, read into BpeTables.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/bpe_tables.h"
#include "engine/json.h"

namespace triptych {

// `root` is the whole document. Errors of all: kCorrupt naming the field, kUnsupported naming the
// component with its value and what is supported; `tables.where` names the file.

[[nodiscard]] Status read_normalizer(const Json& root, BpeTables& tables);
/// Sets the alphabet, too: kBytes if a ByteLevel is there.
[[nodiscard]] Status read_pre_tokenizer(const Json& root, BpeTables& tables);
/// After read_pre_tokenizer(): a byte-level vocabulary needs a ByteLevel decoder and no other does.
[[nodiscard]] Status read_decoder(const Json& root, BpeTables& tables);
[[nodiscard]] Status read_post_processor(const Json& root, BpeTables& tables);

/// "type" of a component. Errors: kCorrupt naming the `role`.
[[nodiscard]] Result<std::string> component_type(const Json& component, const char* role,
                                                 const std::string& where);

}  // namespace triptych
