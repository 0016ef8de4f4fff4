-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Where a token's time goes: the newest trace of each experiment and cell name. Every class has a
-- row on every device, and ns of one cell sums to window_ns exactly.
CREATE VIEW v_token_time (
  experiment,    -- name in the spec
  cell,          -- 'full@c=1,prompt=32,output=64'
  stack,         -- name in the spec
  class,         -- 'gemm', 'attention', ..., 'host_wait'
  ns_per_token,  -- ns / tokens; sums over classes and devices to window_ns / tokens
  ns,            -- ns, exclusive, over all decode steps of the trace
  window_ns,     -- ns, all decode windows of all devices
  tokens,        -- tokens made in those windows, times devices
  steps,         -- decode steps in those windows
  class_group,   -- 'compute', 'coordination', 'memcpy', 'unclassified'
  device_id,
  run_id,
  comparison,    -- workload point
  stack_index,   -- order of the stacks in the spec
  class_index    -- order of the classes
) AS
WITH newest (trace_id, cell_id, experiment) AS (
  SELECT trace_id, cell_id, experiment
  FROM (SELECT trace.trace_id, trace.cell_id, run.experiment,
               row_number() OVER (PARTITION BY run.experiment, cell.name
                                  ORDER BY cell.run_id DESC, trace.trace_id DESC) AS place
        FROM trace JOIN cell USING (cell_id) JOIN run USING (run_id))
  WHERE place = 1
),
device (trace_id, device_id) AS (SELECT DISTINCT trace_id, device_id FROM token_time)
SELECT newest.experiment, cell.name, cell.stack, time_class.name,
       CAST(coalesce(token_time.ns, 0) AS REAL) / nullif(trace.tokens, 0),
       coalesce(token_time.ns, 0), trace.window_ns, trace.tokens, trace.steps,
       time_class.class_group, device.device_id, cell.run_id, cell.comparison, cell.stack_index,
       time_class.ordinal
FROM newest
JOIN trace USING (trace_id)
JOIN cell ON cell.cell_id = newest.cell_id
JOIN device ON device.trace_id = newest.trace_id
CROSS JOIN time_class
LEFT JOIN token_time ON token_time.trace_id = newest.trace_id
                    AND token_time.device_id = device.device_id
                    AND token_time.time_class = time_class.name
ORDER BY newest.experiment, cell.concurrency_total, cell.prompt_tokens, cell.output_tokens,
         cell.comparison, cell.stack_index, cell.cell_id, device.device_id, time_class.ordinal;
