-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- What each run found that could make its numbers wrong, newest run first, worst first.
CREATE VIEW v_threats (
  experiment,  -- name in the spec
  workload,    -- workload point: cell.comparison; '' when it concerns the whole run
  code,        -- stable word: 'few_blocks', 'outputs_differ', ...
  severity,    -- 'note', 'warning', 'serious'
  message,     -- for people, with the numbers
  run_id
) AS
SELECT run.experiment, threat.comparison, threat.code, threat.severity, threat.message,
       threat.run_id
FROM threat JOIN run USING (run_id)
ORDER BY run.experiment, threat.run_id DESC,
         CASE threat.severity WHEN 'serious' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END,
         threat.comparison, threat.threat_id;
