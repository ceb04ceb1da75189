#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# aarch64.sh: cross-builds for aarch64 into build-aarch64/ and runs the tests that are one program
# under qemu's user emulation. Those that start further programs are skipped: without the kernel's
# help (binfmt_misc) the emulator does not follow exec.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/scripts/packages.sh"
. "$top/scripts/suites.sh"
export RINGFOLD_RESULTS=${RINGFOLD_RESULTS:-/dev/stderr}

host=aarch64-linux-gnu
sysroot=/usr/$host
foreign=$cache/$host

packages_need build aarch64 || { echo "the cross compiler or the emulator is missing"; exit 77; }

# Unpacks cmocka for arm64 into $foreign. apt gets a state of its own, so that this machine's list
# of architectures stays as it is.
cmocka_unpack() {
    local state=$foreign/apt apt package
    mkdir -p "$state/lists/partial" "$state/archives/partial" && : >"$state/status"
    apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64
        -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state"
        -o Debug::NoLocking=1 -o APT::Sandbox::User=)
    cd "$state" || return 1
    "${apt[@]}" update && "${apt[@]}" download libcmocka-dev || return 1
    package=$(dpkg-deb -f libcmocka-dev_*.deb Depends | sed 's/[ ,].*//')
    "${apt[@]}" download "$package" || return 1
    for package in ./*.deb; do dpkg -x "$package" "$foreign" || return 1; done
    rm -rf "$state/lists" ./*.deb
}

mkdir -p "$foreign"
arguments=(--host=$host --enable-werror --without-simde --without-benchmark --without-gloo)
if [ -e "$foreign/usr/include/cmocka.h" ] || (cmocka_unpack); then
    arguments+=("CMOCKA_CFLAGS=-I$foreign/usr/include"
        "CMOCKA_LIBS=-L$foreign/usr/lib/$host -lcmocka")
else
    arguments+=(--without-cmocka)
fi

"$top/scripts/build.sh" "$top/build-aarch64" "${arguments[@]}" || exit 1
cd "$top/build-aarch64" &&
    results_of_make_check aarch64 check -j2 \
        LOG_COMPILER="qemu-aarch64 -L $sysroot -E LD_LIBRARY_PATH=$foreign/usr/lib/$host -E RINGFOLD_TEST_EMULATED=1"
