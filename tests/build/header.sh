#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The public header compiles alone, without a warning, as C11 and as C++17.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo '#include <ringfold.h>' >"$folder/header.c"
cp "$folder/header.c" "$folder/header.cc"
flags="-Wall -Wextra -Wshadow -Wundef -pedantic -Werror -I$abs_top_srcdir/include"
# shellcheck disable=SC2086
$CC -std=c11 -Wstrict-prototypes $flags -c "$folder/header.c" -o "$folder/header.o"
echo "C11: fine"
echo 'int main() { return 0; }' >"$folder/probe.cc"
# shellcheck disable=SC2086
if $CXX -std=c++17 -c "$folder/probe.cc" -o "$folder/probe.o" 2>/dev/null; then
    $CXX -std=c++17 -Wold-style-cast $flags -c "$folder/header.cc" -o "$folder/header.o"
    echo "C++17: fine"
else
    echo "there is no C++ compiler: only C11 was tried"
    exit 77
fi
