#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Golden token ids, the reference for engine/tokenizer.cpp.

    python make_tokenizer_golden.py MODEL.gguf TEXT OUTPUT_DIR

needs the packages `gguf`, `llama-cpp-python`, `sentencepiece` and `tokenizers`. TEXT is what the
small vocabularies are trained on. Writes to OUTPUT_DIR:

  lines.jsonl            the texts: a string each, or {"hex": ...} for bytes that are not UTF-8
  <name>.json, <name>.gguf   small tokenizers, trained here
  <name>.ids             what special tokens stand around a text; then one line a text: token ids
                         without them in base 36 and, if decoding gives another text, that text

The names:

  smollm2            vocabulary and merges of MODEL.gguf; no file, the model has it
  byte_level         of the Llama 3 form: NFC, Split, ByteLevel, an added token of every kind
  spm_legacy         SentencePiece BPE as Llama 2 has it: normalizers Prepend and Replace
  spm_metaspace      the same vocabulary behind the pre-tokenizer Metaspace, prepended first
  spm_always         the same behind Metaspace that prepends always and cuts, without byte fallback
  spm                the same as GGUF, scores in place of merges; its ids are those of spm_legacy

The ids are those of `tokenizers`. For spm the script fails unless llama.cpp gives the same for
every text, and `sentencepiece` for every text without special tokens.
"""
import argparse
import json
import pathlib
import random
import tempfile

import gguf
import llama_cpp
import sentencepiece
import tokenizers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
SPACE = "\u2581"

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Decode is bound by memory bandwidth; prefill is bound by arithmetic.",
    "I'm sure they've said it's what we'll do, aren't you? He'd know. I'M SURE THEY'VE.",
    "Hello, we can use", "The capital of France is", "Hello world! 123",
    "Caf\u00e9 d\u00e9j\u00e0 vu.", "  multiple   spaces", "na\u00efve co\u00f6peration \u00c5ngstr\u00f6m",
    "e\u0301 is not \u00e9 before normalisation", "\u0130stanbul \u0131\u015f\u0131k stra\u00dfe \ufb01n",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u30ab\u30bf\u30ab\u30ca\u3068\u3072\u3089\u304c\u306a",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4.",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0421\u044a\u0435\u0448\u044c \u0436\u0435 \u0435\u0449\u0451",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03ba\u03b5\u03af\u03bc\u03b5\u03bd\u03b1",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0967\u0968\u0969",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u1780\u1798\u17d2\u1796\u17bb\u1787\u17b6",
    "\U0001F600\U0001F680\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466 \U0001F1E9\U0001F1EA \u2764\ufe0f",
    "x\u00b2 + y\u00b3 = \u00bd\u2155 \u2163 \u2460 \u3007 \U0001D7D8\U0001D7D9", "3.14159 1,000,000 0x1F 1e-9 2026-01-31",
    "no\u00a0break\u2003em\u3000ideographic\u2028line\u2029paragraph\u0085next",
    "zero\u200bwidth\ufeffbom\u180emongolian\u2060joiner", "tab\tand\vvertical\fform\rreturn\r\nnewline\n",
    "\x00\x01\x02\x04\x06\x13\x14\x16\x1d\x1f\x7f control \x80\x9f", "\ue000 private \U0010FFFF last \ufffd \uffff",
    "for (int i = 0; i < n; ++i) {\n    sum += a[i] * b[i];  // dot\n}\n",
    "def f(x):\n\treturn x**2 if x else None\n\n\nclass A:\n    pass\n",
    "SELECT stack, tpot_ns FROM v_stack_summary WHERE batch >= 8;", "<div class=\"a\">&nbsp;</div>",
    "https://example.org/path?q=1&r=%20#frag", "a_b-c.d/e\\f|g~h`i^j", "$\\frac{1}{2}\\sum_{i}x_i$",
    "!!!???...---***", "\"quoted\" 'single' \u201ccurly\u201d \u2018x\u2019s \u2014 dash", "don't DON'T 'tis 's 'S 'll'll",
    "", " ", "  ", "\n", "\n\n", " \n ", "\t\t", "   x", "x   ", "a  b   c    d", "\u00a0 \u00a0x",
    "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "a<|im_end|>b",
    "<|im_start|><|im_start|>", "<|im_start", "<|im_end|", "|im_end|>", " <|im_end|> ", "<repo_name>x<file_sep>y",
    "<empty_output><jupyter_code>print(1)<jupyter_output>1", "<filename>a.py<gh_stars>10", "<<|im_end|>>",
]

# Pieces that the random texts are put together from: what splits, what joins, what has no token.
FRAGMENTS = [
    " ", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "a", "the", " the", "The", "ing", "'s", "'LL", "42", "7", "\u0663",
    "\u00e9", "\u00df", "\u4e16", "\u754c", "\u3042", "\u0416", "\u03a9", "\u0627", "\u0905\u0902", "\u0301", "\U0001F600",
    "\U0001F1FA", "\u200d", "\ufe0f", ".", ",", "!", "(", ")", "{", "}", "==", "->", "_", "\\", "/", "\u2014", "\u20ac",
    "<|im_end|>", "<|", "|>", "<s>", "</s>", "<unk>", "[tool]", "[L]", "[R]", "[W]", "\u212b", "e\u0302\u0301", "\u1ebf", "\u1e9b\u0323", "\x04", "\x1d", "\u0080", "\u2003", "\u180e", "\u0085", "\u00b2", "\u216b", "qz", "XYZ",
]

OWN_CORPUS = SENTENCES[:20] + [
    "A block is the unit of resampling, and a cell is the unit of resuming.",
    "Kernel records come from the trace; the length of a token comes from the untraced pass.",
    "The quantized stack is faster: how much is the runtime, and how much is the kernel?",
] * 4
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def random_texts(count, seed):
    draw = random.Random(seed)
    return ["".join(draw.choices(FRAGMENTS, k=draw.randint(1, 24))) for _ in range(count)]


def all_lines(text):
    """Sentences, the training text, random texts, long lines, and bytes that are not UTF-8."""
    draw = random.Random(3)
    lines = SENTENCES + [line for line in text.splitlines() if line][:300]
    lines += random_texts(1500, seed=1)
    words = text.split()
    for _ in range(6):  # long lines
        lines.append(" ".join(draw.choices(words + FRAGMENTS, k=150)))
    for _ in range(60):  # any code point
        points = (draw.choice([draw.randrange(0x250), draw.randrange(0x3000), draw.randrange(0xD800),
                               draw.randrange(0x1F000, 0x1FB00), draw.randrange(0xE000, 0x110000)])
                  for _ in range(draw.randint(1, 12)))
        lines.append("".join(map(chr, points)))
    broken = [b"caf\xe9 \xf0\x9f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80x", b"a\x80\x80b", b"\xf4\x90\x80\x80"]
    for _ in range(200):
        data = bytearray("".join(draw.choices(FRAGMENTS, k=draw.randint(2, 12))).encode())
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        broken.append(bytes(data))
    return lines + [data for data in broken if not is_utf8(data)]


def is_utf8(data):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def as_text(line):
    return line if isinstance(line, str) else line.decode("utf-8", errors="replace")


def smollm2_tokenizer(path):
    reader = gguf.GGUFReader(path)

    def array(key):
        field = reader.fields[key]
        return [field.parts[i] for i in field.data]

    tokens = [bytes(part).decode("utf-8") for part in array("tokenizer.ggml.tokens")]
    merges = [bytes(part).decode("utf-8") for part in array("tokenizer.ggml.merges")]
    types = [int(part[0]) for part in array("tokenizer.ggml.token_type")]
    pre = bytes(array("tokenizer.ggml.pre")[0]).decode("utf-8")
    if pre != "smollm":
        raise SystemExit(f"{path}: tokenizer.ggml.pre is {pre!r}, expected 'smollm'")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    return tokenizer


def byte_level_tokenizer():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin|>", "<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(OWN_CORPUS, trainer)
    tokenizer.add_tokens(
        [
            AddedToken("[tool]", normalized=False),
            AddedToken("<|im_end|>", normalized=False, special=True),
            AddedToken("[L]", lstrip=True, normalized=False),
            AddedToken("[R]", rstrip=True),
            AddedToken("[W]", single_word=True),
            AddedToken("XYZ", single_word=True, normalized=False),
            AddedToken("e\u0302\u0301", normalized=True),  # is looked for in its NFC form
        ]
    )
    begin, end = (tokenizer.token_to_id(token) for token in ("<|begin|>", "<|end|>"))
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A <|end|>",
                special_tokens=[("<|begin|>", begin), ("<|end|>", end)],
            ),
        ]
    )
    return tokenizer


def train_sentencepiece(text, folder):
    """The options of Llama 2, a small vocabulary."""
    (folder / "text.txt").write_text("\n".join([text] + SENTENCES) + "\n", encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "spm"), vocab_size=1500,
        model_type="bpe", byte_fallback=True, split_digits=True, character_coverage=0.9995,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))


def merges_of(vocabulary, scores):
    """Every way to make a piece from two others, best piece first, as converters make them."""
    merges = []
    for piece, token in vocabulary.items():
        for i in range(1, len(piece)):
            left, right = piece[:i], piece[i:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[token], vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def spm_tokenizer(processor, form):
    size = processor.get_piece_size()
    pieces = {processor.id_to_piece(i): i for i in range(size)}
    scores = [processor.get_score(i) for i in range(size)]
    fallback = form != "always"
    tokenizer = Tokenizer(
        models.BPE(vocab=pieces, merges=merges_of(pieces, scores), unk_token="<unk>",
                   fuse_unk=True, byte_fallback=fallback)
    )
    if form == "legacy":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(content=" ", left=1, right=0)]
        )
    elif form == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
             decoders.Strip(content=" ", left=1, right=0)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always", split=True)
        tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def write_spm_gguf(processor, path):
    writer = gguf.GGUFWriter(str(path), "llama")
    size = processor.get_piece_size()
    kinds = []
    for i in range(size):
        if processor.is_unknown(i):
            kinds.append(gguf.TokenType.UNKNOWN)
        elif processor.is_control(i):
            kinds.append(gguf.TokenType.CONTROL)
        elif processor.is_byte(i):
            kinds.append(gguf.TokenType.BYTE)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([processor.id_to_piece(i).encode() for i in range(size)])
    writer.add_token_scores([processor.get_score(i) for i in range(size)])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(processor.unk_id())
    writer.add_bos_token_id(processor.bos_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def base36(number):
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def ids_of(tokenizer, texts):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def write_reference(folder, name, tokenizer, texts, save=True):
    if save:
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
    # What stands around the ids when special tokens are added, checked on every text.
    around = tokenizer.encode("", add_special_tokens=True).ids
    prefix, suffix = around[:1], around[1:]
    with open(folder / f"{name}.ids", "w", encoding="ascii", newline="\n") as out:
        out.write(json.dumps({"prefix": prefix, "suffix": suffix}) + "\n")
        for text, ids in zip(texts, ids_of(tokenizer, texts)):
            if tokenizer.encode(text, add_special_tokens=True).ids != prefix + ids + suffix:
                raise SystemExit(f"{name}: special tokens do not stand around {text!r}")
            line = " ".join(map(base36, ids))
            decoded = tokenizer.decode(ids, skip_special_tokens=False)
            out.write(line + ("" if decoded == text else "\t" + json.dumps(decoded)) + "\n")


def check_spm(folder, processor, legacy, texts):
    """llama.cpp and sentencepiece give the ids of spm_legacy."""
    path = folder / "spm.gguf"
    write_spm_gguf(processor, path)
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    plain = 0
    for text, ids in zip(texts, ids_of(legacy, texts)):
        if model.tokenize(text.encode(), add_bos=False, special=True) != ids:
            raise SystemExit(f"llama.cpp differs from tokenizers on {text!r}")
        if any(special in text for special in ("<s>", "</s>", "<unk>")):
            continue  # sentencepiece takes no special token from a text
        plain += 1
        if processor.encode(text) != ids:
            raise SystemExit(f"sentencepiece differs from tokenizers on {text!r}")
    print(f"llama.cpp agrees on {len(texts)} texts, sentencepiece on {plain}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="SmolLM2-135M-Instruct as GGUF")
    parser.add_argument("text", type=pathlib.Path, help="text to train on")
    parser.add_argument("output", type=pathlib.Path, help="folder for the files")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)

    corpus = args.text.read_text(encoding="utf-8")
    lines = all_lines(corpus)
    texts = [as_text(line) for line in lines]
    with open(args.output / "lines.jsonl", "w", encoding="ascii", newline="\n") as out:
        for line in lines:
            out.write(json.dumps(line if isinstance(line, str) else {"hex": line.hex()}) + "\n")

    write_reference(args.output, "smollm2", smollm2_tokenizer(args.model), texts, save=False)
    write_reference(args.output, "byte_level", byte_level_tokenizer(), texts)
    with tempfile.TemporaryDirectory() as folder:
        processor = train_sentencepiece(corpus, pathlib.Path(folder))
    for form in ("legacy", "metaspace", "always"):
        write_reference(args.output, f"spm_{form}", spm_tokenizer(processor, form), texts)
    check_spm(args.output, processor, spm_tokenizer(processor, "legacy"), texts)
    print(f"{len(lines)} texts, tokenizers {tokenizers.__version__}, "
          f"sentencepiece {sentencepiece.__version__}, llama-cpp-python {llama_cpp.__version__}")


if __name__ == "__main__":
    main()
