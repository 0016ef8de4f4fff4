#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus: small valid files of every kind that is read, and some that are almost
valid. What a fuzzer found is not made here: it is committed under tests/fuzz/regressions.
usage: make_seeds.py     needs nothing but Python and the golden files of the repository.
"""

import json
import pathlib
import re
import struct

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"
GOLDEN = HERE.parent / "golden"

# GGUF value types, by number in the file.
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = dict(zip([U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64], "BbHhIif?Qqd"))
GGML_F32, GGML_F16 = 0, 1


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(kind, value):
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, items = value
        body = b"".join(gguf_value(element, item) for item in items)
        return struct.pack("<IQ", element, len(items)) + body
    return struct.pack("<" + SCALARS[kind], value)


def gguf(keys, tensors=(), version=3):
    """keys: (key, type, value); tensors: (name, dims innermost first, ggml type)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for key, kind, value in keys:
        head += text(key) + struct.pack("<I", kind) + gguf_value(kind, value)
    data = b""
    for name, dims, kind in tensors:
        data += bytes(-len(data) % 32)
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", kind, len(data))
        count = 1
        for dim in dims:
            count *= dim
        data += bytes(count * (4 if kind == GGML_F32 else 2))
    return head + bytes(-len(head) % 32) + data if tensors else head


def model_keys(architecture):
    integers = {"block_count": 1, "context_length": 64, "embedding_length": 8,
                "feed_forward_length": 8, "attention.head_count": 2, "attention.head_count_kv": 1}
    return ([("general.architecture", STRING, architecture)]
            + [(f"{architecture}.{key}", U32, value) for key, value in integers.items()]
            + [(f"{architecture}.rope.freq_base", F32, 10000.0),
               (f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-5)])


def model_tensors(architecture, vocab, tied=False):
    vectors = ["attn_norm", "ffn_norm"]
    matrices = {"attn_q": (8, 8), "attn_k": (8, 4), "attn_v": (8, 4), "attn_output": (8, 8),
                "ffn_gate": (8, 8), "ffn_up": (8, 8), "ffn_down": (8, 8)}
    tensors = [("token_embd.weight", (8, vocab), GGML_F16)]
    tensors += [(f"blk.0.{name}.weight", (8,), GGML_F32) for name in vectors]
    tensors += [(f"blk.0.{name}.weight", dims, GGML_F16) for name, dims in matrices.items()]
    if architecture == "qwen2":
        tensors += [(f"blk.0.attn_{part}.bias", (size,), GGML_F32)
                    for part, size in (("q", 8), ("k", 4), ("v", 4))]
    if architecture == "qwen3":
        tensors += [(f"blk.0.attn_{part}_norm.weight", (4,), GGML_F32) for part in "qk"]
    tensors.append(("output_norm.weight", (8,), GGML_F32))
    if not tied:
        tensors.append(("output.weight", (8, vocab), GGML_F16))
    return tensors


def byte_alphabet():
    """GPT-2's byte -> character table, for the bytes that stand for themselves."""
    return [chr(byte) for byte in range(0x21, 0x7F)]


def byte_level_keys(pre):
    tokens = byte_alphabet() + ["\u0120", "th", "the", "\u0120the", "<s>", "</s>"]
    types = [1] * (len(tokens) - 2) + [3, 3]
    merges = ["t h", "th e", "\u0120 the"]
    last = len(tokens) - 1
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, pre),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, types)),
            ("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
            ("tokenizer.ggml.bos_token_id", U32, last - 1),
            ("tokenizer.ggml.eos_token_id", U32, last),
            ("tokenizer.ggml.add_bos_token", BOOL, True)], len(tokens)


def sentencepiece_keys():
    tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xA9>", "\u2581", "t", "h", "e", "th",
              "the", "\u2581the", "\u00e9"]
    types = [2, 3, 3, 6, 6, 6] + [1] * (len(tokens) - 6)
    scores = [0.0] * 6 + [-float(i) for i in range(len(tokens) - 6)]
    return [("tokenizer.ggml.model", STRING, "llama"),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, types)),
            ("tokenizer.ggml.scores", ARRAY, (F32, scores)),
            ("tokenizer.ggml.unknown_token_id", U32, 0),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.add_space_prefix", BOOL, True)], len(tokens)


def gguf_seeds():
    for architecture in ("llama", "qwen2", "qwen3"):
        tied = architecture == "qwen3"
        write("gguf", architecture,
              gguf(model_keys(architecture), model_tensors(architecture, 6, tied)))
    keys, count = sentencepiece_keys()
    write("gguf", "with_tokenizer", gguf(model_keys("llama") + keys, model_tensors("llama", count)))
    every = [(f"k{kind}", kind, 1) for kind in SCALARS] + [("k", ARRAY, (U8, [1, 2, 3]))]
    every.append(("nested", ARRAY, (ARRAY, [(U8, [1]), (STRING, ["a"])])))
    write("gguf", "every_type", gguf(every + [("general.alignment", U32, 32)]))
    write("gguf", "version_2", gguf(model_keys("llama"), model_tensors("llama", 4), version=2))
    write("gguf", "cut", gguf(model_keys("llama"), model_tensors("llama", 4))[:-100])
    write("gguf", "rope_factors", gguf(
        model_keys("llama"), model_tensors("llama", 4) + [("rope_freqs.weight", (2,), GGML_F32)]))
    for pre in ("smollm", "llama-bpe", "qwen2"):
        write("gguf_tokenizer", pre, gguf(byte_level_keys(pre)[0]))
    write("gguf_tokenizer", "sentencepiece", gguf(sentencepiece_keys()[0]))


def safetensors(header, data_bytes):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + bytes(data_bytes)


def safetensors_seeds():
    def tensor(kind, shape, begin, end):
        return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    write("safetensors", "two", safetensors(
        {"__metadata__": {"format": "pt"}, "a": tensor("F32", [2, 3], 0, 24),
         "b": tensor("BF16", [4], 24, 32)}, 32))
    write("safetensors", "scalar_and_empty", safetensors(
        {"a": tensor("F16", [], 0, 2), "b": tensor("F32", [0, 7], 2, 2)}, 2))
    write("safetensors", "other_types", safetensors(
        {"a": tensor("I64", [1], 0, 8), "b": tensor("BOOL", [3], 8, 11)}, 11))
    write("safetensors", "overlap", safetensors(
        {"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, 12))
    write("safetensors", "huge_shape", safetensors(
        {"a": tensor("F32", [2**62, 2**62], 0, 8)}, 8))
    write("safetensors", "empty", safetensors({}, 0))
    write("safetensors", "header_too_long", struct.pack("<Q", 2**63) + b"{}")


def small_vocabulary(reference, most):
    """A golden tokenizer cut to the tokens with ids below `most` and the merges that are left."""
    model = reference["model"]
    model["vocab"] = {name: index for name, index in model["vocab"].items() if index < most}
    model["merges"] = [merge for merge in model["merges"]
                       if all(part in model["vocab"] for part in [*merge, "".join(merge)])][:40]
    return json.dumps(reference, ensure_ascii=False)


def tokenizer_json_seeds():
    for name, most in (("byte_level", 300), ("spm_legacy", 340), ("spm_metaspace", 340),
                       ("spm_always", 80)):
        reference = json.loads((GOLDEN / "tokenizer" / f"{name}.json").read_text())
        write("tokenizer_json", name, small_vocabulary(reference, most))
    small = {
        "added_tokens": [{"id": 4, "content": "<s>", "special": True, "normalized": False}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{N}+|\\s"}, "behavior": "Isolated",
             "invert": False},
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}]},
        "decoder": {"type": "ByteLevel"},
        "post_processor": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "1": 3}, "merges": ["a b"]}}
    write("tokenizer_json", "small", json.dumps(small))


def text_seeds():
    write("text", "words", "The the  theatre's\n\n\t12 123 aaaa \u00e9t\u00e9 <s>the</s>")
    write("text", "scripts", "\u4f60\u597d \U0001f600\u200d e\u0301 \u2581 \u00a0\u3000 \u0661")
    write("text", "not_utf8", b"a\xff\xc3(\xe2\x82 \xed\xa0\x80\xf4\x90\x80\x80")
    write("text", "spaces", " " * 40 + "\r\n" * 5)


def hf_config_seeds():
    base = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1,
            "eos_token_id": [2, 3]}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    families = {
        "llama": {"rope_scaling": llama3},
        "mistral": {"sliding_window": 16, "head_dim": 16},
        "qwen2": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        "qwen3": {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8,
                  "use_sliding_window": True,
                  "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}}}
    for name, extra in families.items():
        architecture = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
                        "qwen3": "Qwen3"}[name] + "ForCausalLM"
        write("hf_config", name,
              json.dumps({"architectures": [architecture], "model_type": name} | base | extra))


def spec_seeds():
    """The goldens and the specs that ship, reading a file that is there wherever it runs."""
    sources = sorted((GOLDEN / "plan").glob("*.yaml")) + sorted((GOLDEN / "spec_errors").glob("*.yaml"))
    sources += sorted((ROOT / "experiments" / "specs").glob("*.yaml"))
    for source in sources:
        spec = source.read_bytes()
        if len(spec) > 4000:
            continue
        spec = re.sub(rb"(prompts|trace): *[\w./-]+", rb"\1: status", spec)
        spec = re.sub(rb"(?m)^ *#.*\n", b"", spec)
        write("spec", source.stem, spec)


def trace_seeds():
    for source in sorted((GOLDEN / "attribution").glob("*/trace.json")):
        write("trace", source.parent.name, source.read_bytes())
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": "1.5", "dur": 2.25, "pid": 0,
              "tid": 7, "args": {"device": 0, "stream": 7, "correlation": 3, "bytes": 64}}
    events = [dict(kernel, ts=1.5), dict(kernel, cat="cuda_runtime", ts=1), dict(kernel, ts=-3),
              dict(kernel, ts=9.3e18), dict(kernel, dur=-1), {"ph": "M", "name": "process_name"},
              dict(kernel, cat="user_annotation", name="ProfilerStep#2", ts=0, dur=5)]
    write("trace", "numbers", json.dumps(
        {"traceEvents": events, "baseTimeNanoseconds": 1700000000000000000, "dropped_records": 1,
         "unlinked_records": 2, "clock": "device", "source": "x"}))
    write("trace", "empty", "[]")


def rules_seeds():
    write("rules", "small", "- {class: gemm, kind: kernel, name: 'gemm|cutlass'}\n"
          "- class: comm_transfer\n  name: nccl.*(AllReduce|AllGather)\n- {class: sync, kind: sync}\n")
    write("rules", "bad_pattern", "- {class: gemm, name: '(a+)+$'}\n- {class: norm, name: '('}\n")


def line_seeds():
    write("prompt_pool", "text", '{"text": "What is a tide?"}\n\n{"text": "caf\\u00e9 \\ud83d\\ude00"}\n')
    write("prompt_pool", "ids", '{"token_ids": [1, 2, 3]}\r\n{"token_ids": [0]}')
    write("prompt_pool", "wrong", '{"text": ""}\n{"token_ids": [-1]}\n{"text": "a", "b": 1}\n')
    write("arrivals", "mooncake", '{"timestamp": 0, "input_length": 16, "output_length": 32}\n'
          '{"timestamp": 1.5e3, "input_length": 5}\n{"timestamp": 27, "hash_ids": [1]}\n')
    write("arrivals", "azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
          "2023-11-16 18:17:03.9799600,12,5\n2023-11-16 18:17:03,3,4\n")
    write("arrivals", "wrong", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 24:00:61,0,-1\n")


def main():
    for make in (gguf_seeds, safetensors_seeds, tokenizer_json_seeds, text_seeds, hf_config_seeds,
                 spec_seeds, trace_seeds, rules_seeds, line_seeds):
        make()


if __name__ == "__main__":
    main()
