-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Raw samples: one row per request of a timed pass, all runs.
CREATE VIEW v_requests (
  experiment,     -- name in the spec
  cell,           -- 'full@c=1,prompt=32,output=64'
  stack,          -- name in the spec
  comparison,     -- workload point
  block_index,    -- from 0
  request_index,  -- from 0
  ttft_ns,        -- ns, submission to first token
  tpot_ns,        -- ns, (last - first) / (tokens - 1); NULL for one token
  e2e_ns,         -- ns, submission to last token
  prompt_tokens,  -- tokens
  output_tokens,  -- tokens
  itl_ns,         -- JSON array of ns, gaps between tokens
  submit_ns,      -- ns after the pass began; with arrivals: when it was due
  queue_ns,       -- ns, submission to the first step that read it
  preemptions,    -- times its KV cache was given up and computed again
  meets_slo,      -- 1 or 0; NULL where nothing was promised
  run_id,
  cell_id,
  block_id
) AS
SELECT run.experiment, cell.name, cell.stack, cell.comparison, block.block_index,
       request.request_index, request.ttft_ns, request.tpot_ns, request.e2e_ns,
       request.prompt_tokens, request.output_tokens, request.itl_ns, request.submit_ns,
       request.queue_ns, request.preemptions,
       CASE WHEN coalesce(cell.slo_ttft_ns, cell.slo_tpot_ns, cell.slo_e2e_ns) IS NOT NULL
            THEN request.ttft_ns <= coalesce(cell.slo_ttft_ns, request.ttft_ns)
                 AND coalesce(request.tpot_ns <= cell.slo_tpot_ns, 1)
                 AND request.e2e_ns <= coalesce(cell.slo_e2e_ns, request.e2e_ns) END,
       cell.run_id, cell.cell_id, block.block_id
FROM request JOIN block USING (block_id) JOIN cell USING (cell_id) JOIN run USING (run_id)
ORDER BY cell.run_id, cell.comparison, block.block_index, block.order_index,
         request.request_index;
