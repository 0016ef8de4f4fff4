-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- One row per experiment and cell name: of the newest run in which that cell is done, else of the
-- newest run, with the reason. Columns as in v_history.
CREATE VIEW v_stack_summary (
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
WITH newest (cell_id) AS (
  SELECT cell_id
  FROM (SELECT cell.cell_id,
               row_number() OVER (PARTITION BY run.experiment, cell.name
                                  ORDER BY cell.status = 'done' DESC, cell.run_id DESC) AS place
        FROM cell JOIN run USING (run_id))
  WHERE place = 1
)
SELECT v_history.*
FROM v_history JOIN newest USING (cell_id) JOIN cell USING (cell_id)
ORDER BY v_history.experiment, cell.concurrency_total, cell.prompt_tokens, cell.output_tokens,
         cell.comparison, cell.stack_index, cell.cell_id;
