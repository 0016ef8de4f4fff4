-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Raw samples: one row per timed pass of a cell, all runs.
CREATE VIEW v_blocks (
  experiment,      -- name in the spec
  cell,            -- 'full@c=1,prompt=32,output=64'
  stack,           -- name in the spec
  comparison,      -- workload point
  block_index,     -- from 0
  order_index,     -- place of the cell in the block
  ns_per_token,    -- wall ns / output tokens
  tpot_ns_mean,    -- ns, mean over requests
  ttft_ns_mean,    -- ns, mean over requests
  tokens_per_s,    -- output tokens per second
  wall_ns,         -- ns, all requests
  output_tokens,   -- tokens, all requests
  decode_steps,    -- forward passes after prefill
  host_ns_per_step,  -- ns of a step in which the host did not wait for its device; NULL: not known
  host_ns_per_decode_step,   -- ns of host work for a step that only decoded; NULL: not known
  host_ns_per_prefill_step,  -- ns of host work for a step that read prompts; NULL: not known
  requests,        -- requests in the pass
  load_average,    -- runnable tasks, one-minute mean before the pass
  cpu_mhz,         -- MHz; NULL where it cannot be read
  started_utc,     -- utc
  run_id,
  cell_id,
  block_id
) AS
SELECT run.experiment, cell.name, cell.stack, cell.comparison, block.block_index,
       block.order_index,
       CAST(block.wall_ns AS REAL) / nullif(block.output_tokens, 0),
       (SELECT avg(tpot_ns) FROM request WHERE request.block_id = block.block_id),
       (SELECT avg(ttft_ns) FROM request WHERE request.block_id = block.block_id),
       block.output_tokens * 1e9 / nullif(block.wall_ns, 0),
       block.wall_ns, block.output_tokens, block.decode_steps,
       CAST(block.wall_ns - block.device_wait_ns AS REAL) /
           nullif(block.decode_steps + block.prefill_steps, 0),
       CAST(block.decode_host_ns AS REAL) / nullif(block.decode_steps, 0),
       CAST(block.prefill_host_ns AS REAL) / nullif(block.prefill_steps, 0),
       (SELECT count(*) FROM request WHERE request.block_id = block.block_id),
       block.load_average, block.cpu_mhz, block.started_utc, cell.run_id, cell.cell_id,
       block.block_id
FROM block JOIN cell USING (cell_id) JOIN run USING (run_id)
ORDER BY cell.run_id, cell.comparison, block.block_index, block.order_index;
