#!/usr/bin/env python3
# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
"""An engine that speaks the protocol of docs/EXTERNAL_ENGINES.md and computes nothing.

Token k of a request is (sum of its prompt + k) modulo the vocabulary. `options` of the open message:
  vocab      size of the vocabulary (512)
  can        what it says it can do ([])
  tokens     output tokens in one record, a chunk (1)
  step_ms    time of one step (0.2)
  behave     "ok", or the name of one thing that it does wrong
  trace      how the file of a traced pass comes out ("good"; see FakeTrace)
"""

import base64
import json
import os
import signal
import struct
import subprocess
import sys
import time


def say(record):
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


class FakeTrace:
    """Steps of a pass as a Kineto trace: a launch, a matrix product and a copy in each.

    Half of a step the product runs, a quarter the copy. `fault` is what is wrong with the file.
    """

    def __init__(self, order, fault):
        self.path = order["path"]
        self.steps = order["steps"]
        self.fault = fault
        self.phases = []

    def phase(self, start, end, tokens):
        self.phases.append((start, end, tokens))

    def end(self):
        """What the end of a pass says of it."""
        if self.fault == "error":
            return {"trace_error": "no profiler\nin this build"}
        if self.fault == "untold":
            return {}
        if self.fault not in ("good", "endless", "overlap", "other_clock", "no_tokens", "no_device",
                              "more_steps", "no_steps"):
            self.write_other()
        else:
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump(self.trace(), file)
        return {"trace": "written"}

    def write_other(self):
        if self.fault == "no_file":
            return
        text = json.dumps(self.trace())
        size = {"empty": 0, "truncated": len(text) // 2, "huge": len(text)}[self.fault]
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text[:size])
            if self.fault == "huge":
                file.truncate((1 << 30) + 1)  # a hole: it takes no room

    def trace(self):
        base = self.phases[0][0]
        events = []
        phases = self.phases[:1] if self.fault == "no_steps" else list(self.phases)
        if self.fault == "more_steps":
            start, end, tokens = phases[-1]
            phases.append((end, end + 1000, tokens))
        for index, (start, end, tokens) in enumerate(phases):
            kind = "decode" if index > 0 else "prefill"
            args = {"kind": kind, "index": index - 1 if index > 0 else 0,
                    "tokens": 0 if self.fault == "no_tokens" else tokens}
            if self.fault == "overlap":
                end += 1000 * 1000 * 1000
            events.append(self.event("user_annotation", "step", base, start, end, args))
        for index, (start, end, _) in enumerate(self.phases):
            self.records(events, base, index + 1, start, (end - start) // 4)
        return {"baseTimeNanoseconds": base, "clock": "steady", "traceEvents": events}

    def records(self, events, base, launch, start, part):
        if self.fault == "other_clock":
            start += 3600 * 10**9
        args = {"device": 0, "stream": 7, "correlation": launch}
        events.append(self.event("cuda_runtime", "cudaLaunchKernel", base, start, start + part // 8,
                                 {"correlation": launch}))
        if self.fault != "no_device":
            events.append(self.event("kernel", "nvjet_hsh_64x8_64x16", base, start, start + 2 * part,
                                     args))
            events.append(self.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", base,
                                     start + 2 * part, start + 3 * part, {**args, "bytes": 8}))

    @staticmethod
    def event(category, name, base, start, end, args):
        return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 0,
                "ts": (start - base) / 1000, "dur": (end - start) / 1000, "args": args}


class Fake:
    def __init__(self, message):
        options = message["options"]
        self.options = options
        self.behave = options.get("behave", "ok")
        self.vocab = options.get("vocab", 512)
        self.chunk = options.get("tokens", 1)
        self.step_s = options.get("step_ms", 0.2) / 1e3
        self.device = message["device"]
        self.passes = 0
        self.trace = None

    def is_wrong(self, name, first_pass=1):
        return self.behave == name and self.passes >= first_pass

    def ready(self):
        if self.behave == "never_ready":
            time.sleep(60)
        if self.behave == "exit_at_open":
            print("cannot find a module\nModuleNotFoundError: no module", file=sys.stderr)
            sys.exit(3)
        if self.behave == "no_memory":
            say({"type": "error", "code": "out_of_memory", "message": "needs 2 GiB of 1 GiB"})
            sys.exit(0)
        if self.behave == "no_such_option":
            say({"type": "error", "code": "unsupported", "message": "no mode fast"})
            sys.exit(0)
        if self.behave == "grandchild":
            child = subprocess.Popen(["sleep", "60"])
            print(f"pid {child.pid}", file=sys.stderr, flush=True)
        say({"type": "ready", "protocol": 2 if self.behave == "new_protocol" else 1,
             "engine": "fake", "version": "1",
             "device": "Imaginary 9" if self.behave == "other_device" else self.device,
             "vocab_size": 7 if self.behave == "other_vocab" else self.vocab,
             "can": self.options.get("can", []), "frameworks": {"none": "0"},
             "kernels": "linear=none",
             **({} if self.behave == "tells_no_memory" else {"weight_bytes": 1000})})

    def generate(self, message):
        self.passes += 1
        if self.is_wrong("late_failure", 3):
            print("RuntimeError: it is late", file=sys.stderr)
            sys.exit(9)
        number = message["pass"]
        start = time.monotonic_ns()
        say({"type": "start", "pass": number,
             "ns": start - 10**12 if self.behave == "before_start" else start})
        requests = message["requests"]
        if "trace" in message:
            self.trace = FakeTrace(message["trace"], self.options.get("trace", "good"))
            if self.trace.fault == "endless" and "FAKE_ENGINE_HURRY" not in os.environ:
                time.sleep(60)
            if self.trace.fault == "dies":
                print("profiler: segmentation fault", file=sys.stderr, flush=True)
                os._exit(11)
        clients = len(requests) if self.behave == "crowd" else message["concurrency"]
        for first in range(0, len(requests), clients):
            self.group(requests[first:first + clients])
        if self.behave == "no_end":
            sys.exit(0)
        peak = {"tells_no_memory": {}, "tells_no_peak": {}, "maps_weights": {"peak_bytes": 300}}
        say({"type": "end", "pass": number + 1 if self.behave == "other_pass" else number,
             "ns": time.monotonic_ns(), **peak.get(self.behave, {"peak_bytes": 3000}),
             **(self.trace.end() if self.trace else {})})
        self.trace = None
        if self.behave == "after_end":
            say({"type": "tokens", "ns": time.monotonic_ns(), "of": [[0, 0, 1]]})

    def group(self, requests):
        start = time.monotonic_ns()
        time.sleep(self.step_s)
        ids = [request["id"] for request in requests]
        say({"type": "prefill", "ids": ids, "start_ns": start, "ns": time.monotonic_ns()})
        if self.trace:
            self.trace.phase(start, time.monotonic_ns(),
                             sum(len(request["prompt"]) for request in requests))
        longest = max(request["max_new_tokens"] for request in requests)
        done = set()
        for index in range(0, longest, self.chunk):
            step_start = time.monotonic_ns()
            self.misbehave(index)
            of = []
            for request in requests:
                if request["id"] in done:
                    continue
                size = min(self.chunk, request["max_new_tokens"] - index)
                of.append([request["id"], index] +
                          [(sum(request["prompt"]) + index + i) % self.vocab for i in range(size)])
            now = time.monotonic_ns()
            if index > 0 and self.behave == "future":
                now += 10**12
            if index > 0 and self.behave == "backwards":
                now = start
            if index > 0:
                self.spoil(of)
            say({"type": "tokens", "ns": now, "of": of})
            ended = [request["id"] for request in requests if request["id"] not in done and
                     request["max_new_tokens"] <= index + self.chunk]
            if ended:
                say({"type": "done", "ids": ended, "ns": time.monotonic_ns(),
                     "reason": "length"})
                done.update(ended)
            time.sleep(self.step_s)
            if self.trace and index > 0:
                self.trace.phase(step_start, time.monotonic_ns(), len(of))
        if self.behave == "too_many":
            say({"type": "tokens", "ns": time.monotonic_ns(), "of": [[ids[0], longest, 1]]})

    def misbehave(self, index):
        if index != 1:
            return
        if self.behave == "segfault":
            print("about to die", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.behave == "dies_before_worker":
            subprocess.Popen(["sleep", "60"])  # holds standard output
            os._exit(7)
        if self.behave == "silence":
            time.sleep(60)
        if self.behave == "not_json":
            sys.stdout.write("Loading weights: 42%\x1b[0m\n")
            sys.stdout.flush()
        if self.behave == "half_line":
            sys.stdout.write('{"type": "tok')
            sys.stdout.flush()
            sys.exit(0)
        if self.behave == "endless_line":
            block = "x" * (1 << 20)
            while True:
                sys.stdout.write(block)
        if self.behave == "early_end":
            say({"type": "done", "ids": [0], "ns": time.monotonic_ns(), "reason": "length"})

    def spoil(self, of):
        if self.behave == "other_id":
            of[0][0] = 77
        if self.behave == "other_index":
            of[0][1] += 1
        if self.behave == "other_token":
            of[0][2] = self.vocab
        if self.behave == "no_token":
            del of[0][2]

    def score(self, message):
        for position, token in enumerate(message["tokens"]):
            logits = [0.0] * self.vocab
            logits[(token + 1) % self.vocab] = float("nan") if self.behave == "nan" else 1.0
            raw = b"".join(struct.pack("<f", value) for value in logits)
            if self.behave == "short_logits":
                raw = raw[4:]
            say({"type": "logits", "position": position, "f32": base64.b64encode(raw).decode()})
        say({"type": "scored"})


def main():
    fake = None
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "open":
            fake = Fake(message)
            fake.ready()
        elif message["type"] == "generate":
            fake.generate(message)
        elif message["type"] == "score":
            fake.score(message)
    if fake is not None and fake.behave in ("stays", "stubborn"):
        if fake.behave == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("still here", file=sys.stderr, flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main()
