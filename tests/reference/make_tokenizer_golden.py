#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Golden token ids from the `tokenizers` package, the reference for engine/tokenizer.cpp.

    python make_tokenizer_golden.py MODEL.gguf OUTPUT_DIR

needs the packages `gguf` and `tokenizers`. Writes to OUTPUT_DIR:

  smollm2.jsonl        texts and ids under the vocabulary and merges of MODEL.gguf (SmolLM2)
  own_tokenizer.json   a small tokenizer of the Llama 3 form, trained here on a few sentences
  own.jsonl            texts and ids under it

Every line is {"text": ..., "ids": [...]}; the ids have no BOS or EOS.
"""
import argparse
import json
import pathlib
import random

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROL, USER_DEFINED = 3, 4  # tokenizer.ggml.token_type

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
    "<|im_end|>", "<|", "|>", "\x04", "\x1d", "\u0080", "\u2003", "\u180e", "\u0085", "\u00b2", "\u216b", "qz", "XYZ",
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


def own_tokenizer():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
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
    tokenizer.add_tokens([AddedToken("[tool]", normalized=False)])
    return tokenizer


def write_golden(path, tokenizer, texts):
    with open(path, "w", encoding="ascii", newline="\n") as out:
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            out.write(json.dumps({"text": text, "ids": ids}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="SmolLM2-135M-Instruct as GGUF")
    parser.add_argument("output", type=pathlib.Path, help="folder for the three files")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)

    texts = SENTENCES + random_texts(240, seed=1)
    write_golden(args.output / "smollm2.jsonl", smollm2_tokenizer(args.model), texts)
    own = own_tokenizer()
    own.save(str(args.output / "own_tokenizer.json"), pretty=False)
    own_texts = SENTENCES + random_texts(80, seed=2) + ["<|begin|>[tool] x<|end|>", "a[tool]b"]
    write_golden(args.output / "own.jsonl", own, own_texts)
    print(f"written with tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
