#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The shared library exports the functions that ringfold.h declares with RF_API, all of them and
# nothing else, under the version of the map.
set -eu
library=$abs_top_builddir/.libs/libringfold.so
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A declaration may be broken after its type; its name is the last word before the parenthesis.
grep -v '^#' "$abs_top_srcdir/include/ringfold.h" | tr '\n' ' ' | grep -o 'RF_API [^(;#]*(' |
    sed 's/ *($//; s/.*[ *]//' | sort >"$folder/declared"
[ "$(wc -l <"$folder/declared")" -gt 10 ] || { echo "found no declarations"; exit 1; }

$NM -D --defined-only --with-symbol-versions "$library" |
    awk '$2 != "A" { print $3 }' | sort >"$folder/symbols"
if grep -v '@@RINGFOLD_[0-9.]*$' "$folder/symbols"; then
    echo "^ exported without a version"
    exit 1
fi
sed 's/@.*//' "$folder/symbols" >"$folder/exported"

if ! diff -u "$folder/declared" "$folder/exported"; then
    echo "^ - declared in ringfold.h but not exported, + exported but not declared"
    exit 1
fi
echo "$(wc -l <"$folder/exported") functions"
