-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- What ran in the newest trace of each experiment and cell name: one row for every name in each kind
-- of phase, the longest first. Durations as recorded: where records overlap they sum to more than the
-- time that passed. A record counts in the phase in which it starts.
CREATE VIEW v_device_time (
  experiment,   -- name in the spec
  cell,         -- 'full@c=1,prompt=32,output=64'
  stack,        -- name in the spec
  phase,        -- 'prefill', 'decode'; NULL = outside of the phases
  kind,         -- 'kernel', 'memcpy', ...; 'runtime' is time of the host
  name,         -- of the kernel, the copy or the call
  records,
  ns,           -- ns, sum of the durations
  device_id,    -- of a runtime record its process, where the trace says no device
  phase_ns,     -- ns, all phases of this kind, without the gaps between them; NULL outside
  run_id,
  comparison,   -- workload point
  stack_index   -- order of the stacks in the spec
) AS
WITH newest (trace_id, cell_id, experiment) AS (
  SELECT trace_id, cell_id, experiment
  FROM (SELECT trace.trace_id, trace.cell_id, run.experiment,
               row_number() OVER (PARTITION BY run.experiment, cell.name
                                  ORDER BY cell.run_id DESC, trace.trace_id DESC) AS place
        FROM trace JOIN cell USING (cell_id) JOIN run USING (run_id))
  WHERE place = 1
),
located (trace_id, phase, kind_id, name_id, device_id, ns) AS (
  SELECT activity.trace_id, phase.kind, activity.kind_id, activity.name_id, activity.device_id,
         activity.end_ns - activity.start_ns
  FROM activity
  LEFT JOIN phase ON phase.trace_id = activity.trace_id
                 AND activity.start_ns >= phase.start_ns AND activity.start_ns < phase.end_ns
  WHERE activity.end_ns > activity.start_ns
),
total (trace_id, phase, kind_id, name_id, device_id, records, ns) AS (
  SELECT trace_id, phase, kind_id, name_id, device_id, count(*), sum(ns)
  FROM located
  GROUP BY trace_id, phase, kind_id, name_id, device_id
)
SELECT newest.experiment, cell.name, cell.stack, total.phase, kind.text, name.text, total.records,
       total.ns, total.device_id,
       (SELECT sum(phase.end_ns - phase.start_ns) FROM phase
        WHERE phase.trace_id = total.trace_id AND phase.kind = total.phase),
       cell.run_id, cell.comparison, cell.stack_index
FROM newest
JOIN total USING (trace_id)
JOIN cell ON cell.cell_id = newest.cell_id
JOIN name AS kind ON kind.name_id = total.kind_id
JOIN name ON name.name_id = total.name_id
ORDER BY newest.experiment, cell.concurrency_total, cell.prompt_tokens, cell.output_tokens,
         cell.comparison, cell.stack_index, cell.cell_id, total.device_id, total.phase DESC,
         total.ns DESC;
