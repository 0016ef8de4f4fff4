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

/// Null if the file has no tokenizer. Kinds: "gpt2", byte-level BPE with a known pre-tokenizer, and
/// "llama", SentencePiece BPE by scores. Tokens of the types control and user-defined (and unknown,
/// for "llama") are found in the text. Errors: kUnsupported naming another kind or pre-tokenizer;
/// kCorrupt (more tokens than `vocab_size`, lengths differ, no score, id out of range).
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> load_gguf_tokenizer(const Gguf& file,
                                                                           int64_t vocab_size);

}  // namespace triptych
