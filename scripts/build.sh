#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# build.sh FOLDER [CONFIGURE_ARGUMENT...]: builds the library, the command and the examples in
# FOLDER. Configures again only if the arguments, or what is installed here, changed since.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/scripts/packages.sh"
[ $# -ge 1 ] || { sed -n '3,4s/^# //p' "$0"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift

if [ ! -e "$top/configure" ]; then
    "$top/autogen.sh" >"$folder/autogen.log" 2>&1 || { cat "$folder/autogen.log"; exit 1; }
fi
cd "$folder"
state="$* | $(packages_missing build test bench)| $(cat /etc/debian_version 2>/dev/null)"
if [ ! -e Makefile ] || [ "$(cat configured 2>/dev/null)" != "$state" ]; then
    echo "==> configuring in $folder${*:+: $*}"
    "$top/configure" -q "$@" >configure.log 2>&1 || { tail -n 20 configure.log; exit 1; }
    printf '%s' "$state" >configured
fi
echo "==> building in $folder"
make -j"$(nproc)"
