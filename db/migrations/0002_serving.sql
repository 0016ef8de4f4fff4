-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Version 2: how requests arrive, what was promised to them, and what became of each.
ALTER TABLE cell ADD COLUMN arrivals TEXT NOT NULL DEFAULT 'closed';
ALTER TABLE cell ADD COLUMN slo_ttft_ns INTEGER;
ALTER TABLE cell ADD COLUMN slo_tpot_ns INTEGER;
ALTER TABLE cell ADD COLUMN slo_e2e_ns INTEGER;
ALTER TABLE cell ADD COLUMN kv_cache_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cell ADD COLUMN prefill_chunk INTEGER NOT NULL DEFAULT 0;
ALTER TABLE block ADD COLUMN prefill_steps INTEGER;
ALTER TABLE request ADD COLUMN submit_ns INTEGER;
ALTER TABLE request ADD COLUMN queue_ns INTEGER;
ALTER TABLE request ADD COLUMN preemptions INTEGER NOT NULL DEFAULT 0;
