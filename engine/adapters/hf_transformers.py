# SPDX-FileCopyrightText: Triptych contributors
# SPDX-License-Identifier: Apache-2.0
