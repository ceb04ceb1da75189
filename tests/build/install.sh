#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `make install` lays down is enough to build and to run a program that knows only pkg-config.
set -eu
command -v pkg-config >/dev/null || { echo "pkg-config is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Run from `make check`, this must not inherit its flags.
unset MAKEFLAGS MAKELEVEL MFLAGS
make -s -C "$abs_top_builddir" install prefix="$folder/usr" exec_prefix="$folder/usr" \
    libdir="$folder/usr/lib" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }

export PKG_CONFIG_PATH="$folder/usr/lib/pkgconfig"
pkg() { pkg-config --define-variable=prefix="$folder/usr" \
    --define-variable=libdir="$folder/usr/lib" --define-variable=includedir="$folder/usr/include" \
    "$@" ringfold; }

cat >"$folder/program.c" <<'C'
#include <ringfold.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	char expected[32];

	snprintf(expected, sizeof(expected), "%d.%d.%d", RF_VERSION_MAJOR, RF_VERSION_MINOR,
		 RF_VERSION_PATCH);
	printf("library %s, header %s\n", rf_version(), expected);
	return strcmp(rf_version(), expected) != 0;
}
C
sanitize=${RINGFOLD_SANITIZER:+-fsanitize=$RINGFOLD_SANITIZER}
# shellcheck disable=SC2046,SC2086
$CC $sanitize "$folder/program.c" $(pkg --cflags --libs) -o "$folder/program"
LD_LIBRARY_PATH=$folder/usr/lib "$folder/program"
[ "$(pkg --modversion)" = "$(sed -n 's/^#define RF_VERSION_[A-Z]* //p' \
    "$abs_top_srcdir/include/ringfold.h" | paste -sd.)" ]
for file in include/ringfold.h lib/libringfold.so lib/libringfold.so.0 bin/ringfold; do
    [ -e "$folder/usr/$file" ] || { echo "$file was not installed"; exit 1; }
done
LD_LIBRARY_PATH='' "$folder/usr/bin/ringfold" --version
