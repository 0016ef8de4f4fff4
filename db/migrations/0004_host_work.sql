-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Version 4: the host's own work, apart for steps that decode and steps that read prompts.
ALTER TABLE block ADD COLUMN decode_host_ns INTEGER;
ALTER TABLE block ADD COLUMN prefill_host_ns INTEGER;
