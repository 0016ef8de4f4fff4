-- SPDX-FileCopyrightText: Triptych contributors
-- SPDX-License-Identifier: Apache-2.0
-- Version 3: how long the host of a pass had nothing to do but wait for its device.
ALTER TABLE block ADD COLUMN device_wait_ns INTEGER;
