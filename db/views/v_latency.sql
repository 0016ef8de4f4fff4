-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Latencies of a cell over all requests of its timed passes: one row per cell and metric. A
-- percentile is the smallest sample that at least that share of the samples does not exceed.
CREATE VIEW v_latency (
  experiment,   -- name in the spec
  cell,         -- 'full@c=8,prompt=128,output=64'
  stack,        -- name in the spec
  metric,       -- 'queue', 'ttft', 'tpot', 'itl', 'e2e'
  samples,      -- requests; for itl gaps between tokens
  mean_ns,      -- ns
  p50_ns,       -- ns
  p90_ns,       -- ns
  p99_ns,       -- ns
  max_ns,       -- ns
  comparison,   -- workload point
  run_id,
  cell_id,
  stack_index   -- order of the stacks in the spec
) AS
WITH sample (cell_id, metric, ordinal, ns) AS (
  SELECT block.cell_id, 'queue', 0, queue_ns FROM request JOIN block USING (block_id)
  UNION ALL
  SELECT block.cell_id, 'ttft', 1, ttft_ns FROM request JOIN block USING (block_id)
  UNION ALL
  SELECT block.cell_id, 'tpot', 2, tpot_ns FROM request JOIN block USING (block_id)
  UNION ALL
  SELECT block.cell_id, 'itl', 3, gap.value
  FROM request JOIN block USING (block_id) JOIN json_each(request.itl_ns) AS gap
  UNION ALL
  SELECT block.cell_id, 'e2e', 4, e2e_ns FROM request JOIN block USING (block_id)
),
ranked (cell_id, metric, ordinal, ns, place, samples) AS (
  SELECT cell_id, metric, ordinal, ns,
         row_number() OVER (PARTITION BY cell_id, metric ORDER BY ns),
         count(*) OVER (PARTITION BY cell_id, metric)
  FROM sample
  WHERE ns IS NOT NULL
)
SELECT run.experiment, cell.name, cell.stack, ranked.metric, ranked.samples, avg(ranked.ns),
       min(CASE WHEN 100 * place >= 50 * samples THEN ns END),
       min(CASE WHEN 100 * place >= 90 * samples THEN ns END),
       min(CASE WHEN 100 * place >= 99 * samples THEN ns END),
       max(ranked.ns), cell.comparison, cell.run_id, cell.cell_id, cell.stack_index
FROM ranked
JOIN cell USING (cell_id)
JOIN run USING (run_id)
GROUP BY cell.cell_id, ranked.metric
ORDER BY cell.run_id DESC, cell.concurrency_total, cell.comparison, cell.stack_index,
         ranked.ordinal;
