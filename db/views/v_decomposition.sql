-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Where a speedup comes from: the newest run of each experiment, workload and decomposition.
-- log_contribution of one (experiment, workload, decomposition, method) sums to log_total.
CREATE VIEW v_decomposition (
  experiment,        -- name in the spec
  workload,          -- workload point: cell.comparison
  factor_name,       -- 'runtime', 'kernel_quantization', 'interaction', ...
  factor,            -- ratio, exp(log_contribution); above 1 = faster
  factor_lo,         -- ratio, 95 % interval; NULL = no lower bound
  factor_hi,         -- ratio; NULL = no upper bound
  log_contribution,  -- ln of the factor
  log_share,         -- ratio, ln f / ln F; NULL when the interval of ln F covers 0
  method,            -- 'path', 'path_reverse', 'shapley', 'interaction'
  log_lo,            -- ln, 95 % interval; NULL = minus infinity
  log_hi,            -- ln; NULL = infinity
  share_lo,          -- ratio, 95 % interval
  share_hi,          -- ratio
  log_total,         -- ln F
  log_total_lo,      -- ln, 95 % interval; NULL = minus infinity
  log_total_hi,      -- ln; NULL = infinity
  decomposition,     -- name in the spec
  from_stack,        -- '' where the row is not a rung
  to_stack,          -- '' where the row is not a rung
  ordinal,           -- order of the rows of one method, from 0
  blocks,            -- blocks behind it
  metric,            -- what was compared: 'ns_per_token'
  confounded,        -- the spec's reason, '' when the rung changes one axis
  run_id
) AS
WITH newest (experiment, comparison, decomposition, run_id) AS (
  SELECT run.experiment, d.comparison, d.decomposition, max(d.run_id)
  FROM decomposition AS d JOIN run USING (run_id)
  GROUP BY run.experiment, d.comparison, d.decomposition
)
SELECT newest.experiment, d.comparison, d.factor_name, d.factor, d.factor_lo, d.factor_hi,
       d.log_contribution, d.log_share, d.method, d.log_lo, d.log_hi, d.share_lo, d.share_hi,
       d.log_total, d.log_total_lo, d.log_total_hi, d.decomposition, d.from_stack, d.to_stack,
       d.ordinal, d.blocks, d.metric, d.confounded, d.run_id
FROM newest JOIN decomposition AS d USING (run_id, comparison, decomposition)
ORDER BY newest.experiment, d.comparison, d.decomposition,
         CASE d.method WHEN 'path' THEN 0 WHEN 'path_reverse' THEN 1 WHEN 'shapley' THEN 2
                       ELSE 3 END,
         d.ordinal;
