#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Transformers as an engine of Triptych; the protocol is docs/EXTERNAL_ENGINES.md.

Runs what a user of Transformers writes: one forward call per token with past_key_values, greedy
argmax on the device, static batches, left padding where prompts differ in length, and one
synchronisation per step, when the ids of its tokens come to the host. Records are kept while a
batch runs and written between steps once a second at most, so that the harness costs a step nothing.
In a traced pass torch.profiler records what the device does; the steps are told beside it.
"""

import base64
import inspect
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path

MODES = ("eager", "static_compile")
ATTENTION = ("sdpa", "eager", "flash_attention_2")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Unsupported(Exception):
    """What was asked for cannot be done here; the message says why."""


class Output:
    """Standard output, as lines of JSON."""

    FLUSH_NS = 1_000_000_000

    def __init__(self, file):
        self.file = file
        self.steps = []
        self.flushed_ns = 0

    def say(self, record):
        self.say_text(json.dumps(record, separators=(",", ":")))

    def say_text(self, line):
        self.file.write(line + "\n")
        self.file.flush()

    def step(self, make_records, *args):
        """Keeps what the records of a step are made of."""
        self.steps.append((make_records, args))
        now = time.monotonic_ns()
        if now - self.flushed_ns > self.FLUSH_NS:
            self.flush()
            self.flushed_ns = now

    def flush(self):
        for make_records, args in self.steps:
            for record in make_records(*args):
                self.file.write(json.dumps(record, separators=(",", ":")) + "\n")
        self.steps.clear()
        self.file.flush()


class Batch:
    """Requests that run together, and how far each of them is."""

    def __init__(self, requests, eos):
        self.ids = [request["id"] for request in requests]
        self.limits = [request["max_new_tokens"] for request in requests]
        self.stops = [None if request.get("ignore_eos", True) else eos for request in requests]
        self.running = list(range(len(requests)))
        self.index = 0

    def take(self, tokens):
        """One step's tokens, a row each: what to report, and which rows have ended and why."""
        of = [(self.ids[row], self.index, tokens[row]) for row in self.running]
        ended = {"length": [], "stop": []}
        still = []
        self.index += 1
        for row in self.running:
            if self.stops[row] is not None and tokens[row] == self.stops[row]:
                ended["stop"].append(self.ids[row])
            elif self.index == self.limits[row]:
                ended["length"].append(self.ids[row])
            else:
                still.append(row)
        self.running = still
        return of, ended


class PassTrace:
    """A pass as torch.profiler sees it, written with its steps as phases on CLOCK_MONOTONIC.

    Only the device is recorded on a GPU, with the runtime calls of the host: recording operators,
    too, would stretch the host's part of a step, which is what a step may be bound by. A CPU is
    what its operators ran on, so there the outermost ones count as work of the device.
    """

    ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")
    PHASES = 1_000_000  # the process of their track, above every device

    def __init__(self, torch, on_gpu, path):
        self.path = Path(path)
        self.on_gpu = on_gpu
        self.source = f"torch.profiler {torch.__version__}"
        self.profiler = torch.profiler.profile(activities=[self.activity(torch, on_gpu)])
        self.phases = []

    @staticmethod
    def activity(torch, on_gpu):
        known = torch.profiler.ProfilerActivity
        return known.CUDA if on_gpu else known.CPU

    def phase(self, kind, index, tokens, start, end):
        self.phases.append((kind, index, tokens, start, end))

    def write(self):
        raw = self.path.with_suffix(".kineto.json")
        self.profiler.export_chrome_trace(str(raw))
        with raw.open(encoding="utf-8") as file:
            kineto = json.load(file)
        raw.unlink()
        # Kineto counts from a base on CLOCK_REALTIME.
        to_monotonic = kineto.get("baseTimeNanoseconds", 0) - realtime_ahead_ns()
        base = self.phases[0][3]
        events = [self.phase_event(base, *phase) for phase in self.phases]
        records = self.gpu_records if self.on_gpu else self.cpu_records
        count = len(events)
        for event, args in records(kineto["traceEvents"]):
            start = round(event["ts"] * 1000) + to_monotonic - base
            events.append({"ph": "X", "cat": event["cat"] if self.on_gpu else "kernel",
                           "name": event["name"], "pid": event["pid"], "tid": event["tid"],
                           "ts": start / 1000, "dur": event.get("dur", 0), "args": args})
        if len(events) == count:
            raise RuntimeError("it recorded nothing on the device")
        header = {"schemaVersion": 1, "baseTimeNanoseconds": base, "clock": "steady",
                  "source": self.source}
        if not self.on_gpu:
            header["unlinked_records"] = 0  # nothing launches what runs at once
        with self.path.open("w", encoding="utf-8") as file:
            json.dump({**header, "traceEvents": events}, file, separators=(",", ":"))

    def phase_event(self, base, kind, index, tokens, start, end):
        name = f"decode step {index}" if kind == "decode" else f"{kind} {index}"
        return {"ph": "X", "cat": "user_annotation", "name": name, "pid": self.PHASES, "tid": 0,
                "ts": (start - base) / 1000, "dur": (end - start) / 1000,
                "args": {"kind": kind, "index": index, "tokens": tokens}}

    def gpu_records(self, events):
        kept = ("device", "stream", "correlation", "bytes")
        for event in events:
            if event.get("ph") == "X" and event.get("cat") in self.ON_GPU:
                args = event.get("args", {})
                yield event, {key: args[key] for key in kept if key in args}

    @staticmethod
    def cpu_records(events):
        ends = {}  # by thread, of the last operator that no other encloses
        operators = [event for event in events if event.get("cat") == "cpu_op"]
        for event in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
            if event["ts"] >= ends.get(event["tid"], event["ts"]):
                ends[event["tid"]] = event["ts"] + event["dur"]
                yield event, {"device": 0}


def realtime_ahead_ns():
    """CLOCK_REALTIME - CLOCK_MONOTONIC, from the reading that took least time."""
    best = None
    for _ in range(20):
        before = time.monotonic_ns()
        realtime = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, realtime - (before + after) // 2)
    return best[1]


def step_records(now, of, ended):
    yield {"type": "tokens", "ns": now, "of": of}
    for reason, ids in ended.items():
        if ids:
            yield {"type": "done", "ids": ids, "ns": now, "reason": reason}


def prefill_records(start, now, ids):
    yield {"type": "prefill", "ids": ids, "start_ns": start, "ns": now}


class HuggingFace:
    def __init__(self, message, output):
        self.output = output
        self.message = message
        self.max_batch = message["max_batch"]
        self.eos = message.get("eos_token_id")
        self.read_options(dict(message["options"]))
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import torch
            import transformers
        except ImportError as error:
            raise Unsupported(f"{sys.executable} cannot import torch and transformers ({error}); "
                              "TRIPTYCH_PYTHON names another interpreter") from error
        self.torch = torch
        self.transformers = transformers
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.on_gpu = message["device"] == "cuda"
        if self.on_gpu and not torch.cuda.is_available():
            raise Unsupported(f"torch {torch.__version__} of {sys.executable} sees no CUDA device")
        self.device = torch.device("cuda" if self.on_gpu else "cpu")
        if not self.on_gpu:
            torch.set_num_threads(message["threads"])
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16,
                      "f32": torch.float32}[message["weights"]]
        self.model = self.load(message["model"]).eval()
        forward = inspect.signature(self.model.forward).parameters
        # Only the last position's logits are needed; generate() asks for the same.
        name = next((n for n in ("logits_to_keep", "num_logits_to_keep") if n in forward), None)
        self.last_only = {name: 1} if name else {}
        self.has_cache_position = "cache_position" in forward
        self.static_cache = None
        self.trace = None  # of the pass that runs, if it is traced
        self.decode_forward = self.model.forward
        if self.mode == "static_compile":
            self.decode_forward = torch.compile(self.model.forward, mode=self.compile_mode,
                                                fullgraph=True, dynamic=False)

    def read_options(self, options):
        def choice(name, allowed, preset):
            value = options.pop(name, preset)
            if value not in allowed:
                raise Unsupported(f"option {name} is {value!r}, expected one of "
                                  f"{', '.join(allowed)}")
            return value

        self.mode = choice("mode", MODES, "eager")
        self.attention = choice("attention", ATTENTION, "sdpa")
        self.compile_mode = None
        if self.mode == "static_compile":
            on_gpu = self.message["device"] == "cuda"
            self.compile_mode = choice("compile_mode", COMPILE_MODES,
                                       "reduce-overhead" if on_gpu else "default")
        if options:
            raise Unsupported(f"unknown option {next(iter(options))!r}; expected mode, attention "
                              "or, with static_compile, compile_mode")

    def load(self, path):
        path = Path(path)
        version = tuple(int(part) for part in self.transformers.__version__.split(".")[:2])
        if version < (4, 45):
            raise Unsupported(f"transformers {self.transformers.__version__}, expected 4.45 or "
                              "later")
        arguments = {"dtype" if version >= (4, 56) else "torch_dtype": self.dtype,
                     "attn_implementation": self.attention}
        folder = path
        if path.suffix == ".gguf":
            folder = path.parent
            arguments["gguf_file"] = path.name
        elif not path.is_dir():
            raise Unsupported(f"{path} is neither a Hugging Face directory nor a .gguf file")
        if self.on_gpu:
            try:
                import accelerate  # noqa: F401  reads the file straight to the device
                arguments["device_map"] = {"": 0}
            except ImportError:
                pass
        try:
            model = self.transformers.AutoModelForCausalLM.from_pretrained(
                str(folder), local_files_only=True, **arguments)
        except (ImportError, ValueError, OSError) as error:
            traceback.print_exc()
            raise Unsupported(f"transformers cannot load {path.name}: {error}") from error
        return model.to(self.device)

    def ready(self):
        torch = self.torch
        frameworks = {"torch": torch.__version__, "transformers": self.transformers.__version__,
                      "python": ".".join(map(str, sys.version_info[:3]))}
        if self.on_gpu:
            frameworks["cuda"] = str(torch.version.cuda)
        kernels = (f"mode={self.mode} attention={self.model.config._attn_implementation} "
                   f"dtype={str(self.dtype).removeprefix('torch.')}")
        if self.compile_mode:
            kernels += f" compile_mode={self.compile_mode}"
        seen = {p.data_ptr(): p.numel() * p.element_size() for p in self.model.parameters()}
        return {"type": "ready", "protocol": 1, "engine": "hf_transformers",
                "version": self.transformers.__version__,
                "device": torch.cuda.get_device_name(0) if self.on_gpu else "cpu",
                "vocab_size": self.model.get_input_embeddings().weight.shape[0],
                "can": ["score", "trace"] if self.can_trace() else ["score"],
                "frameworks": frameworks, "kernels": kernels, "weight_bytes": sum(seen.values())}

    def can_trace(self):
        """Is all that runs recorded? What is compiled for a CPU leaves no records."""
        activity = PassTrace.activity(self.torch, self.on_gpu)
        return (activity in self.torch.profiler.supported_activities() and
                (self.on_gpu or self.mode == "eager"))

    def new_cache(self, rows):
        """An empty cache for one batch."""
        if self.mode == "eager":
            try:
                return self.transformers.DynamicCache(config=self.model.config)
            except TypeError:  # before 4.56
                return self.transformers.DynamicCache()
        if self.static_cache is None:
            sizes = {"max_cache_len": self.message["max_sequence"]}
            known = inspect.signature(self.transformers.StaticCache.__init__).parameters
            for name, value in (("max_batch_size", rows), ("device", self.device),
                                ("dtype", self.dtype)):
                if name in known:
                    sizes[name] = value
            self.static_cache = self.transformers.StaticCache(config=self.model.config, **sizes)
        else:
            self.static_cache.reset()
        return self.static_cache

    def pad(self, prompts):
        """[rows, longest] ids, left-padded; which of them count, or None if all do."""
        torch = self.torch
        longest = max(map(len, prompts))
        ids = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        ids = torch.tensor(ids, device=self.device)
        if all(len(prompt) == longest for prompt in prompts):
            return ids, None
        width = longest if self.mode == "eager" else self.message["max_sequence"]
        # A static cache has its final width from the start; the future is masked causally.
        mask = [[0] * (longest - len(prompt)) + [1] * (width - longest + len(prompt))
                for prompt in prompts]
        return ids, torch.tensor(mask, device=self.device)

    def positions(self, mask, first, count, rows):
        """[rows, count] positions of the columns from `first`, not counting padding."""
        torch = self.torch
        if mask is None:
            return torch.arange(first, first + count, device=self.device).expand(rows, count)
        return (mask.cumsum(-1) - 1).clamp(min=0)[:, first:first + count]

    def inputs(self, ids, mask, first, cache):
        """Arguments of a forward call that reads `ids` behind `first` columns."""
        arguments = {"input_ids": ids, "past_key_values": cache, "use_cache": True,
                     "position_ids": self.positions(mask, first, ids.shape[1], ids.shape[0])}
        if mask is not None:
            arguments["attention_mask"] = mask
        if self.has_cache_position and self.mode == "static_compile":
            arguments["cache_position"] = self.torch.arange(first, first + ids.shape[1],
                                                            device=self.device)
        return arguments

    def rows(self, requests):
        """A static batch is whole: what is missing repeats the first prompt and is not reported."""
        prompts = [request["prompt"] for request in requests]
        if self.mode == "static_compile":
            prompts += [prompts[0]] * (self.max_batch - len(prompts))
        return prompts

    def decode(self, tokens, mask, columns, cache):
        """Logits [rows, vocab] after one more token a row."""
        arguments = self.inputs(tokens[:, None], mask, columns, cache)
        return self.decode_forward(**arguments).logits[:, -1]

    def grow(self, mask):
        if mask is None or self.mode == "static_compile":
            return mask
        return self.torch.cat([mask, mask.new_ones((mask.shape[0], 1))], dim=-1)

    def run_batch(self, requests):
        """Steps of one static batch; returns how many decode steps there were."""
        batch = Batch(requests, self.eos)
        start = time.monotonic_ns()
        ids, mask = self.pad(self.rows(requests))
        cache = self.new_cache(ids.shape[0])
        logits = self.model(**self.inputs(ids, mask, 0, cache), **self.last_only).logits[:, -1]
        tokens = logits.argmax(-1)
        columns = ids.shape[1]
        host = tokens.tolist()
        now = time.monotonic_ns()
        if self.trace:
            read = sum(len(request["prompt"]) for request in requests)
            self.trace.phase("prefill", 0, read, start, now)
        self.output.step(prefill_records, start, now, batch.ids)
        self.output.step(step_records, now, *batch.take(host))
        steps = 0
        while batch.running:
            start = time.monotonic_ns()
            mask = self.grow(mask)
            tokens = self.decode(tokens, mask, columns, cache).argmax(-1)
            host = tokens.tolist()  # the one synchronisation of the step
            now = time.monotonic_ns()
            if self.trace:
                self.trace.phase("decode", steps, len(batch.running), start, now)
            columns += 1
            steps += 1
            self.output.step(step_records, now, *batch.take(host))
        return steps

    def generate(self, message):
        if message["sampling"] != "greedy":
            raise Unsupported(f"sampling {message['sampling']!r}, expected greedy")
        if "trace" in message:
            self.generate_traced(message)
        else:
            self.output.say(self.run_pass(message))

    def generate_traced(self, message):
        """One batch, recorded; what goes wrong with the recording does not concern the pass."""
        self.trace = PassTrace(self.torch, self.on_gpu, message["trace"]["path"])
        try:
            with self.trace.profiler:
                end = self.run_pass(message)
            try:
                self.trace.write()
                end["trace"] = "written"
            except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
                traceback.print_exc()
                end["trace_error"] = f"torch.profiler: {type(error).__name__}: {error}"
        finally:
            self.trace = None
        self.output.say(end)

    def run_pass(self, message):
        """All records of a pass but the last, which is returned."""
        torch = self.torch
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        requests = message["requests"]
        size = message["concurrency"]
        self.output.say({"type": "start", "pass": message["pass"], "ns": time.monotonic_ns()})
        self.output.flushed_ns = time.monotonic_ns()
        batches = [requests[first:first + size] for first in range(0, len(requests), size)]
        steps = 0
        with torch.no_grad():
            for batch in batches:
                steps += self.run_batch(batch)
        end = time.monotonic_ns()
        self.output.flush()
        peak = (torch.cuda.max_memory_allocated() if self.on_gpu else
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        return {"type": "end", "pass": message["pass"], "ns": end,
                "prefill_steps": len(batches), "decode_steps": steps, "peak_bytes": peak}

    def say_logits(self, position, logits):
        raw = logits.float().cpu().numpy().astype("<f4").tobytes()
        # Base64 needs no escapes, and looking for some in every number takes as long as the rest.
        self.output.say_text('{"type":"logits","position":%d,"f32":"%s"}' %
                             (position, base64.b64encode(raw).decode("ascii")))

    def score(self, message):
        """Prompt at once, the others one by one, through the calls that generate() uses."""
        torch = self.torch
        tokens, prefill = message["tokens"], message["prefill_tokens"]
        rows = self.max_batch if self.mode == "static_compile" else 1
        with torch.no_grad():
            ids, mask = self.pad([tokens[:prefill]] * rows)
            cache = self.new_cache(rows)
            # Of all rows hidden states, of the first one logits: a vocabulary is wide.
            hidden = self.model.base_model(**self.inputs(ids, mask, 0, cache))[0][0]
            head = self.model.get_output_embeddings()
            for position in range(prefill):
                self.say_logits(position, head(hidden[position]))
            for position in range(prefill, len(tokens)):
                step = torch.tensor([tokens[position]] * rows, device=self.device)
                self.say_logits(position, self.decode(step, mask, position, cache)[0])
        self.output.say({"type": "scored"})


def answer(output, lines):
    engine = None
    for line in lines:
        message = json.loads(line)
        if message["type"] == "open":
            engine = HuggingFace(message, output)
            output.say(engine.ready())
        elif message["type"] == "generate":
            engine.generate(message)
        elif message["type"] == "score":
            engine.score(message)


def main():
    # Libraries print where they like; only records may go to the real standard output.
    output = Output(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    try:
        answer(output, sys.stdin)
    except Exception as error:  # told in the protocol, whatever it is
        traceback.print_exc()
        code = "failed"
        if isinstance(error, Unsupported):
            code = "unsupported"
        elif type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
            code = "out_of_memory"
        message = f"{error}" if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
        output.steps.clear()
        output.say({"type": "error", "code": code, "message": message})
        sys.exit(1)


if __name__ == "__main__":
    main()
