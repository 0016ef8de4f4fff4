-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- How a cell serves: one row per cell of every run, over all requests of its timed passes.
CREATE VIEW v_serving (
  experiment,        -- name in the spec
  cell,              -- 'full@c=8,prompt=128,output=64,arrivals=poisson:4/s'
  stack,             -- name in the spec
  arrivals,          -- 'closed', 'poisson:4/s', 'trace:<file>'
  concurrency,       -- most requests that run together
  requests,          -- served, over all passes
  requests_per_s,    -- completed requests / wall time
  tokens_per_s,      -- output tokens / wall time
  slo_attainment,    -- ratio of requests that kept every promise; NULL where there is none
  goodput_per_s,     -- requests that kept every promise / wall time; NULL where there is none
  slo_ttft_ns,       -- ns promised; NULL = no promise
  slo_tpot_ns,       -- ns
  slo_e2e_ns,        -- ns
  preemptions,       -- over all requests
  kv_cache_tokens,   -- the KV budget; 0 = enough for every slot
  prefill_chunk,     -- prompt tokens a step; 0 = whole prompts
  comparison,        -- workload point
  run_id,
  cell_id,
  stack_index        -- order of the stacks in the spec
) AS
WITH pass (cell_id, wall_ns, output_tokens) AS (
  SELECT cell_id, sum(wall_ns), sum(output_tokens) FROM block GROUP BY cell_id
),
served (cell_id, requests, kept, preemptions) AS (
  SELECT cell_id, count(*), sum(meets_slo), sum(preemptions) FROM v_requests GROUP BY cell_id
)
SELECT run.experiment, cell.name, cell.stack, cell.arrivals, cell.concurrency_total,
       served.requests, 1e9 * served.requests / pass.wall_ns,
       1e9 * pass.output_tokens / pass.wall_ns,
       1.0 * served.kept / served.requests, 1e9 * served.kept / pass.wall_ns,
       cell.slo_ttft_ns, cell.slo_tpot_ns, cell.slo_e2e_ns, served.preemptions,
       cell.kv_cache_tokens, cell.prefill_chunk, cell.comparison, cell.run_id, cell.cell_id,
       cell.stack_index
FROM cell
JOIN run USING (run_id)
JOIN pass USING (cell_id)
JOIN served USING (cell_id)
ORDER BY cell.run_id DESC, cell.concurrency_total, cell.comparison, cell.stack_index;
