// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// The tokenizer that a GGUF file carries in its metadata.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"

namespace triptych {

/// Null if the file has no tokenizer. Errors: kUnsupported naming a kind or pre-tokenizer that is
/// not byte-level BPE of a known form; kCorrupt (more tokens than `vocab_size`, lengths differ).
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const Gguf& file,
                                                                           int64_t vocab_size);

}  // namespace triptych
