#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The same faults where the ranks, though of one host, use TCP alone.
RINGFOLD_TEST_TRANSPORT=tcp
export RINGFOLD_TEST_TRANSPORT
exec "$abs_top_builddir/tests/fault/fault"
