#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes ./configure from configure.ac; run once in a fresh clone.
set -e
cd "$(dirname "$0")"
mkdir -p m4
exec autoreconf --force --install
