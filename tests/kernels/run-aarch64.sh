#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Builds the kernels and their test for aarch64, statically, and runs it under qemu-user. Arguments
# go to the test, instead of --small. On aarch64 itself there is no need of it.
#
#   CC_AARCH64, QEMU_AARCH64   the compiler and the emulator, if they have other names
set -eu

cc=${CC_AARCH64:-aarch64-linux-gnu-gcc}
qemu=${QEMU_AARCH64:-qemu-aarch64}
top=${abs_top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}

need() {
	command -v "$1" >/dev/null || {
		echo "$1 is missing; Debian's package for it is $2"
		exit 77
	}
}
need "$cc" gcc-aarch64-linux-gnu
need "$qemu" qemu-user

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
trap 'exit 1' HUP INT TERM

"$cc" -std=gnu11 -D_GNU_SOURCE -O2 -ffp-contract=off -Wall -Wextra -Werror -static \
	-I"$top/include" -I"$top" -o "$build/check_kernels" \
	"$top"/engine/types.c "$top"/engine/kernels/kernels.c "$top"/engine/kernels/divide.c \
	"$top"/engine/kernels/reference.c "$top"/engine/kernels/neon.c \
	"$top"/tests/kernels/*.c -lm || {
	echo 'int main(void) { return 0; }' >"$build/probe.c"
	"$cc" -static -o "$build/probe" "$build/probe.c" 2>/dev/null && exit 1
	echo "there is no C library for $cc; Debian's package for it is libc6-dev-arm64-cross"
	exit 77
}
[ $# -gt 0 ] || set -- --small
"$qemu" "$build/check_kernels" "$@"
