-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- The results database, current version. A new file is made from this text; an older file comes
-- here through db/migrations. Times are integer ns unless a comment says otherwise; ln is the
-- natural logarithm; utc is text as 2026-01-31T12:34:56Z. Views (db/views) are the stable
-- interface: tables may change from version to version.
PRAGMA application_id = 0x54726970;  -- "Trip": tells this file from other SQLite databases
PRAGMA user_version = 5;

CREATE TABLE run (
  run_id            INTEGER PRIMARY KEY,
  experiment        TEXT NOT NULL,     -- name in the spec
  question          TEXT NOT NULL,     -- what the spec asks
  plan_hash         TEXT NOT NULL,     -- identity of cells, blocks and seed
  spec_path         TEXT NOT NULL,     -- as the user gave it
  spec_text         TEXT NOT NULL,     -- YAML after --set; resume reads this, not the file
  seed              INTEGER NOT NULL,  -- of block order and synthetic inputs
  blocks_planned    INTEGER NOT NULL CHECK (blocks_planned >= 0),  -- blocks per comparison
  started_utc       TEXT NOT NULL,     -- utc
  finished_utc      TEXT,              -- utc; NULL while running or after a kill
  status            TEXT NOT NULL CHECK (status IN ('running', 'complete', 'partial')),
  program_version   TEXT NOT NULL,     -- of triptych
  git_sha           TEXT NOT NULL,     -- of the build; 'unknown' outside a checkout
  git_dirty         INTEGER NOT NULL CHECK (git_dirty IN (0, 1)),  -- 1: uncommitted changes
  compiler          TEXT NOT NULL,     -- name, version, flags
  binary_hash       TEXT NOT NULL,     -- XXH3-128 of the program
  cpu_model         TEXT NOT NULL,     -- as the operating system names it
  cores             INTEGER NOT NULL,  -- logical cores usable by the run
  memory_bytes      INTEGER NOT NULL,  -- bytes of main memory
  os_kernel         TEXT NOT NULL,     -- name and release
  gpu_name          TEXT NOT NULL,     -- '' without a GPU
  gpu_driver        TEXT NOT NULL,     -- '' without a GPU
  read_bytes_per_s  REAL NOT NULL,     -- bytes/s, measured at the start; 0 = not measured
  f32_flops_per_s   REAL NOT NULL,     -- flop/s of the device (f16 products on CUDA), measured at the start; 0 = not measured
  interrupted       INTEGER NOT NULL DEFAULT 0 CHECK (interrupted IN (0, 1))  -- 1: 'running', but its program has ended
) STRICT;
CREATE INDEX run_by_experiment ON run (experiment, run_id);

-- One stack at one workload point. Every axis that could confound a comparison is a column.
CREATE TABLE cell (
  cell_id           INTEGER PRIMARY KEY,
  run_id            INTEGER NOT NULL REFERENCES run (run_id),
  cell_hash         TEXT NOT NULL,     -- XXH3-128 of stack, workload, inputs and binary
  name              TEXT NOT NULL,     -- 'full@c=1,prompt=32,output=64'
  comparison        TEXT NOT NULL,     -- workload point; its cells are interleaved
  stack             TEXT NOT NULL,     -- name in the spec
  stack_index       INTEGER NOT NULL,  -- order of the stacks in the spec, from 0
  engine            TEXT NOT NULL,     -- 'builtin', 'command', ...
  runtime           TEXT NOT NULL,     -- features joined by '+', or 'eager'
  weights           TEXT NOT NULL,     -- 'f16', 'w4a16-g32', ...
  linear            TEXT NOT NULL,     -- kernel asked for; the one chosen is in cell_facts
  kv                TEXT NOT NULL,     -- type of the KV cache
  parallel          TEXT NOT NULL,     -- 'tp=1,instances=1,...'
  device            TEXT NOT NULL,     -- 'cpu' or the name of the GPU
  threads           INTEGER NOT NULL,  -- CPU threads of the engine
  concurrency_total INTEGER NOT NULL,  -- requests in flight, all instances
  concurrency_per_instance INTEGER NOT NULL,  -- requests in flight, one instance
  prompt_tokens     INTEGER NOT NULL,  -- tokens per prompt
  output_tokens     INTEGER NOT NULL,  -- tokens asked for per request
  requests          INTEGER NOT NULL,  -- requests per block
  sampling          TEXT NOT NULL,     -- 'greedy', ...
  eos_policy        TEXT NOT NULL,     -- 'ignore' or 'stop'
  prompt_pool       TEXT NOT NULL,     -- file name
  prompt_pool_hash  TEXT NOT NULL,     -- XXH3-128 of its bytes
  timing_boundary   TEXT NOT NULL,     -- 'submit_to_token_on_host', ...
  model             TEXT NOT NULL,     -- name
  model_origin      TEXT NOT NULL,     -- where its weights came from
  model_hash        TEXT NOT NULL,     -- XXH3-128
  status            TEXT NOT NULL CHECK (status IN ('planned', 'done', 'failed', 'skipped')),
  reason            TEXT NOT NULL,     -- why it failed or was skipped, else ''
  arrivals          TEXT NOT NULL DEFAULT 'closed',  -- 'closed', 'poisson:4/s', 'trace:<file>'
  slo_ttft_ns       INTEGER,           -- ns promised; NULL = no promise
  slo_tpot_ns       INTEGER,           -- ns
  slo_e2e_ns        INTEGER,           -- ns
  kv_cache_tokens   INTEGER NOT NULL DEFAULT 0,  -- the KV budget; 0 = enough for every slot
  prefill_chunk     INTEGER NOT NULL DEFAULT 0,  -- prompt tokens a step; 0 = whole prompts
  UNIQUE (run_id, name)
) STRICT;
CREATE INDEX cell_by_hash ON cell (cell_hash);

-- What was found out about a cell before and beside its timed blocks.
CREATE TABLE cell_facts (
  cell_id           INTEGER PRIMARY KEY REFERENCES cell (cell_id),
  linear            TEXT NOT NULL,     -- kernel that the dispatcher chose for each matrix
  weight_bytes      INTEGER NOT NULL,  -- bytes of all weights as stored by the stack
  peak_bytes        INTEGER NOT NULL,  -- bytes of weights, KV and activations at their highest
  floor_ns_per_step REAL NOT NULL,     -- ns; max(bytes / read rate, flops / rate), decode step
  token_agreement   REAL CHECK (token_agreement BETWEEN 0 AND 1),  -- ratio, argmax as baseline
  max_logit_error   REAL,              -- against the baseline, teacher-forced; logit units
  perplexity        REAL,              -- on the prompts and the output of the baseline
  trace_dilation    REAL               -- ratio, traced TPOT / timed TPOT
) STRICT;

-- One timed pass of one cell in one block. The block is the unit of resampling.
CREATE TABLE block (
  block_id          INTEGER PRIMARY KEY,
  cell_id           INTEGER NOT NULL REFERENCES cell (cell_id),
  block_index       INTEGER NOT NULL CHECK (block_index >= 0),  -- from 0
  order_index       INTEGER NOT NULL CHECK (order_index >= 0),  -- place of the cell in the block
  started_utc       TEXT NOT NULL,     -- utc
  wall_ns           INTEGER NOT NULL CHECK (wall_ns >= 0),        -- ns, all requests
  output_tokens     INTEGER NOT NULL CHECK (output_tokens >= 0),  -- tokens, all requests
  decode_steps      INTEGER NOT NULL CHECK (decode_steps >= 0),   -- steps that only decoded
  load_average      REAL NOT NULL,     -- runnable tasks, one-minute mean before the pass
  cpu_mhz           REAL,              -- MHz, mean over cores; NULL where it cannot be read
  prefill_steps     INTEGER,           -- steps that read prompt tokens; NULL before version 2
  device_wait_ns    INTEGER,           -- ns that the host waited for its device; NULL: not known
  decode_host_ns    INTEGER,           -- ns of host work for steps that only decoded; NULL: not known
  prefill_host_ns   INTEGER,           -- ns of host work for steps that read prompts; NULL: not known
  UNIQUE (cell_id, block_index)
) STRICT;

CREATE TABLE request (
  block_id          INTEGER NOT NULL REFERENCES block (block_id),
  request_index     INTEGER NOT NULL CHECK (request_index >= 0),  -- from 0
  prompt_tokens     INTEGER NOT NULL,  -- tokens
  output_tokens     INTEGER NOT NULL,  -- tokens
  ttft_ns           INTEGER NOT NULL,  -- ns, submission to first token
  tpot_ns           REAL,              -- ns, (last - first) / (tokens - 1); NULL for one token
  e2e_ns            INTEGER NOT NULL,  -- ns, submission to last token
  itl_ns            TEXT NOT NULL,     -- JSON array of ns, gaps between tokens
  submit_ns         INTEGER,           -- ns after the pass began; NULL before version 2
  queue_ns          INTEGER,           -- ns, submission to first step; NULL before version 2
  preemptions       INTEGER NOT NULL DEFAULT 0,  -- times its KV cache was given up
  PRIMARY KEY (block_id, request_index)
) STRICT, WITHOUT ROWID;

-- One traced pass of a cell; never the source of a token's length.
CREATE TABLE trace (
  trace_id          INTEGER PRIMARY KEY,
  cell_id           INTEGER NOT NULL REFERENCES cell (cell_id),
  source            TEXT NOT NULL,     -- 'host_tracer', 'cupti', a file name
  clock             TEXT NOT NULL,     -- 'steady', 'realtime', 'device'
  window_ns         INTEGER NOT NULL CHECK (window_ns >= 0),  -- ns, all decode windows
  tokens            INTEGER NOT NULL CHECK (tokens >= 0),     -- tokens made in the windows
  steps             INTEGER NOT NULL CHECK (steps >= 0),      -- decode steps in the windows
  dropped           INTEGER NOT NULL,  -- records that the collector lost
  zero_time         INTEGER NOT NULL,  -- records with start = end = 0
  inverted          INTEGER NOT NULL,  -- records with end < start
  unlinked          INTEGER NOT NULL,  -- device records without a launch
  unclassified      INTEGER NOT NULL   -- records that no rule names
) STRICT;
CREATE INDEX trace_by_cell ON trace (cell_id, trace_id);

-- Names of activities and of their kinds, stored once.
CREATE TABLE name (
  name_id           INTEGER PRIMARY KEY,
  text              TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE phase (
  trace_id          INTEGER NOT NULL REFERENCES trace (trace_id),
  ordinal           INTEGER NOT NULL,  -- order in the trace, from 0
  kind              TEXT NOT NULL,     -- 'prefill', 'decode'
  phase_index       INTEGER NOT NULL,  -- decode step k, from 0
  tokens            INTEGER NOT NULL,  -- tokens the phase worked on
  start_ns          INTEGER NOT NULL,  -- ns on the clock of the trace
  end_ns            INTEGER NOT NULL,  -- ns, exclusive
  PRIMARY KEY (trace_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE activity (
  trace_id          INTEGER NOT NULL REFERENCES trace (trace_id),
  ordinal           INTEGER NOT NULL,  -- order in the trace, from 0
  kind_id           INTEGER NOT NULL REFERENCES name (name_id),  -- 'kernel', 'memcpy', ...
  name_id           INTEGER NOT NULL REFERENCES name (name_id),
  device_id         INTEGER NOT NULL,  -- 0 is the CPU device of a CPU trace
  stream_id         INTEGER NOT NULL,
  start_ns          INTEGER NOT NULL,  -- ns on the clock of the trace
  end_ns            INTEGER NOT NULL,  -- ns, exclusive; before start_ns in an inverted record
  correlation_id    INTEGER NOT NULL,  -- joins a launch with what it launched; 0 = none
  bytes             INTEGER NOT NULL,  -- bytes moved; 0 = unknown
  PRIMARY KEY (trace_id, ordinal)
) STRICT, WITHOUT ROWID;

-- The exclusive time classes, in order of priority where records overlap.
CREATE TABLE time_class (
  name              TEXT PRIMARY KEY,
  class_group       TEXT NOT NULL
    CHECK (class_group IN ('compute', 'coordination', 'memcpy', 'unclassified')),
  ordinal           INTEGER NOT NULL UNIQUE,  -- priority, from 0
  UNIQUE (name, class_group)
) STRICT;
INSERT INTO time_class (ordinal, name, class_group) VALUES
  (0, 'gemm', 'compute'),
  (1, 'attention', 'compute'),
  (2, 'norm', 'compute'),
  (3, 'elementwise', 'compute'),
  (4, 'sampling', 'compute'),
  (5, 'quantize', 'compute'),
  (6, 'comm_transfer', 'coordination'),
  (7, 'comm_wait', 'coordination'),
  (8, 'sync', 'coordination'),
  (9, 'memcpy', 'memcpy'),
  (10, 'unclassified', 'unclassified'),
  (11, 'launch_gap', 'coordination'),
  (12, 'host_wait', 'coordination');

-- Exclusive time of one class over the decode steps of a trace; sums to trace.window_ns.
CREATE TABLE token_time (
  trace_id          INTEGER NOT NULL REFERENCES trace (trace_id),
  device_id         INTEGER NOT NULL,
  time_class        TEXT NOT NULL,
  class_group       TEXT NOT NULL,
  ns                INTEGER NOT NULL CHECK (ns >= 0),  -- ns
  PRIMARY KEY (trace_id, device_id, time_class),
  FOREIGN KEY (time_class, class_group) REFERENCES time_class (name, class_group)
) STRICT, WITHOUT ROWID;

-- A statistic over the blocks of a cell, with its 95 % interval, in the unit of the metric.
CREATE TABLE summary (
  cell_id           INTEGER NOT NULL REFERENCES cell (cell_id),
  metric            TEXT NOT NULL,     -- 'tpot_ns', 'ttft_ns', 'e2e_ns', 'tokens_per_s', ...
  median            REAL NOT NULL,     -- unit of the metric
  lo                REAL,              -- unit of the metric; NULL = minus infinity
  hi                REAL,              -- unit of the metric; NULL = infinity
  blocks            INTEGER NOT NULL CHECK (blocks >= 1),  -- blocks behind it
  PRIMARY KEY (cell_id, metric)
) STRICT, WITHOUT ROWID;

-- One row of a decomposition: a rung of a path, a Shapley value, an interaction.
CREATE TABLE decomposition (
  run_id            INTEGER NOT NULL REFERENCES run (run_id),
  comparison        TEXT NOT NULL,     -- cell.comparison
  decomposition     TEXT NOT NULL,     -- name in the spec
  method            TEXT NOT NULL
    CHECK (method IN ('path', 'path_reverse', 'shapley', 'interaction')),
  ordinal           INTEGER NOT NULL,  -- order of the rows, from 0
  factor_name       TEXT NOT NULL,     -- 'runtime', 'kernel_quantization', ...
  from_stack        TEXT NOT NULL,     -- '' where the row is not a rung
  to_stack          TEXT NOT NULL,     -- '' where the row is not a rung
  log_contribution  REAL NOT NULL,     -- ln of the factor
  log_lo            REAL,              -- ln, 95 % interval; NULL = minus infinity
  log_hi            REAL,              -- ln; NULL = infinity
  -- exp of the three above, stored because exp() is an optional part of SQLite.
  factor            REAL,              -- ratio; NULL = beyond the range of REAL
  factor_lo         REAL,              -- ratio; NULL = no lower bound
  factor_hi         REAL,              -- ratio; NULL = no upper bound
  log_share         REAL,              -- ratio, ln f / ln F; NULL when that share is refused
  share_lo          REAL,              -- ratio, 95 % interval
  share_hi          REAL,              -- ratio
  log_total         REAL NOT NULL,     -- ln F; log_contribution of one method sums to it
  log_total_lo      REAL,              -- ln, 95 % interval; NULL = minus infinity
  log_total_hi      REAL,              -- ln; NULL = infinity
  blocks            INTEGER NOT NULL CHECK (blocks >= 1),  -- blocks behind it
  metric            TEXT NOT NULL,     -- what was compared: 'ns_per_token', 'e2e_ns_per_token'
  confounded        TEXT NOT NULL,     -- the spec's reason, '' when the rung changes one axis
  PRIMARY KEY (run_id, comparison, decomposition, method, ordinal)
) STRICT, WITHOUT ROWID;

-- What a run found that could make its numbers wrong.
CREATE TABLE threat (
  threat_id         INTEGER PRIMARY KEY,
  run_id            INTEGER NOT NULL REFERENCES run (run_id),
  comparison        TEXT NOT NULL,     -- cell.comparison, '' when it concerns the whole run
  code              TEXT NOT NULL,     -- stable word: 'few_blocks', 'outputs_differ', ...
  severity          TEXT NOT NULL CHECK (severity IN ('note', 'warning', 'serious')),
  message           TEXT NOT NULL      -- for people, with the numbers
) STRICT;
CREATE INDEX threat_by_run ON threat (run_id);
