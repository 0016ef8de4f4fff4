-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- One row per run, newest first.
CREATE VIEW v_runs (
  run_id,
  experiment,        -- name in the spec
  status,            -- 'running', 'interrupted' ('triptych resume' goes on), 'complete', 'partial'
  started_utc,       -- utc
  finished_utc,      -- utc; NULL while running or when interrupted
  cells,             -- cells planned
  cells_done,        -- cells with status 'done'
  blocks_done,       -- timed passes stored, over all cells
  blocks_planned,    -- timed passes planned, over all cells
  git_sha,           -- of the build
  cpu_model,
  gpu_name,          -- '' without a GPU
  cores,             -- logical cores
  memory_bytes,      -- bytes of main memory
  read_bytes_per_s,  -- bytes/s measured at the start; NULL = not measured
  f32_flops_per_s,   -- flop/s measured at the start; NULL = not measured
  program_version,
  git_dirty,         -- 1: built with uncommitted changes
  compiler,          -- name, version, flags
  os_kernel,         -- name and release
  gpu_driver,        -- '' without a GPU
  threats,           -- number of rows in v_threats
  seed,
  plan_hash,         -- identity of cells, blocks and seed
  spec_path,         -- as the user gave it
  question           -- what the spec asks
) AS
SELECT run.run_id, run.experiment,
       CASE WHEN run.status = 'running' AND run.interrupted THEN 'interrupted' ELSE run.status END,
       run.started_utc, run.finished_utc,
       (SELECT count(*) FROM cell WHERE cell.run_id = run.run_id) AS cells,
       (SELECT count(*) FROM cell WHERE cell.run_id = run.run_id AND cell.status = 'done'),
       (SELECT count(*) FROM block JOIN cell USING (cell_id) WHERE cell.run_id = run.run_id),
       run.blocks_planned * (SELECT count(*) FROM cell WHERE cell.run_id = run.run_id),
       run.git_sha, run.cpu_model, run.gpu_name, run.cores, run.memory_bytes,
       nullif(run.read_bytes_per_s, 0), nullif(run.f32_flops_per_s, 0), run.program_version,
       run.git_dirty, run.compiler, run.os_kernel, run.gpu_driver,
       (SELECT count(*) FROM threat WHERE threat.run_id = run.run_id),
       run.seed, run.plan_hash, run.spec_path, run.question
FROM run
ORDER BY run.run_id DESC;
