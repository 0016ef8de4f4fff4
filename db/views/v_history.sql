-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Every cell of every run with its statistics. v_stack_summary keeps the row that counts.
CREATE VIEW v_history (
  experiment,           -- name in the spec
  cell,                 -- 'full@c=1,prompt=32,output=64'
  stack,                -- name in the spec
  device,               -- 'cpu' or the name of the GPU
  batch,                -- requests in flight, all instances
  tpot_ns_median,       -- ns per output token after the first, median over blocks
  tpot_ns_lo,           -- ns, 95 % interval; NULL = minus infinity
  tpot_ns_hi,           -- ns; NULL = infinity
  ttft_ns_median,       -- ns, submission to first token, median over blocks
  tokens_per_s,         -- output tokens per second, median over blocks
  floor_ratio,          -- ratio, tpot_ns_median / floor of a decode step; 1 = at the floor
  peak_bytes,           -- bytes of weights, KV and activations at their highest; NULL: not told
  token_agreement,      -- ratio of positions whose argmax is that of the baseline
  ns_per_token_median,  -- wall ns / output tokens, median over blocks
  ns_per_token_lo,      -- ns, 95 % interval; NULL = minus infinity
  ns_per_token_hi,      -- ns; NULL = infinity
  perplexity,           -- on the prompts and the output of the baseline
  max_logit_error,      -- against the baseline, teacher-forced
  trace_dilation,       -- ratio, traced TPOT / timed TPOT
  weight_bytes,         -- bytes; NULL: not told
  floor_ns_per_step,    -- ns
  comparison,           -- workload point
  runtime,              -- features, or 'eager'
  weights,              -- 'f16', 'w4a16-g32', ...
  linear,               -- kernel that the dispatcher chose
  model,                -- name
  run_id,
  cell_id,
  stack_index,          -- order of the stacks in the spec
  blocks,               -- timed blocks stored
  status,               -- 'planned', 'done', 'failed', 'skipped'
  reason                -- why it failed or was skipped
) AS
SELECT run.experiment, cell.name, cell.stack, cell.device, cell.concurrency_total,
       tpot.median, tpot.lo, tpot.hi, ttft.median, rate.median,
       tpot.median / nullif(cell_facts.floor_ns_per_step, 0),
       nullif(cell_facts.peak_bytes, 0), cell_facts.token_agreement,
       cost.median, cost.lo, cost.hi,
       cell_facts.perplexity, cell_facts.max_logit_error, cell_facts.trace_dilation,
       nullif(cell_facts.weight_bytes, 0), cell_facts.floor_ns_per_step,
       cell.comparison, cell.runtime, cell.weights, coalesce(cell_facts.linear, cell.linear),
       cell.model, cell.run_id, cell.cell_id, cell.stack_index,
       (SELECT count(*) FROM block WHERE block.cell_id = cell.cell_id),
       cell.status, cell.reason
FROM cell
JOIN run USING (run_id)
LEFT JOIN cell_facts USING (cell_id)
LEFT JOIN summary AS tpot ON tpot.cell_id = cell.cell_id AND tpot.metric = 'tpot_ns'
LEFT JOIN summary AS ttft ON ttft.cell_id = cell.cell_id AND ttft.metric = 'ttft_ns'
LEFT JOIN summary AS rate ON rate.cell_id = cell.cell_id AND rate.metric = 'tokens_per_s'
LEFT JOIN summary AS cost ON cost.cell_id = cell.cell_id AND cost.metric = 'ns_per_token'
ORDER BY run.experiment, cell.concurrency_total, cell.prompt_tokens, cell.output_tokens,
         cell.comparison, cell.run_id DESC, cell.stack_index;
