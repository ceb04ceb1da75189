# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by the scripts beside it. Which Debian packages are needed for what, and how they get
# installed. For use outside: packages_need, and the folder $cache.

# What is costly to fetch or to make stays here, so that the next clone finds it.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ringfold

# For what | package | a command that succeeds when what the package brings is already there.
packages_table() {
    cat <<'TABLE'
build   | gcc                   | command -v gcc
build   | libc6-dev             | test -e /usr/include/stdlib.h
build   | make                  | command -v make
build   | autoconf              | command -v autoreconf
build   | automake              | command -v automake
build   | libtool               | command -v libtoolize
build   | pkgconf               | command -v pkg-config
test    | g++                   | command -v g++
test    | binutils              | command -v nm
test    | libcmocka-dev         | pkg-config --exists cmocka
test    | libsimde-dev          | test -e /usr/include/simde/x86/avx512.h
test    | python3               | command -v python3
test    | python3-venv          | python3 -c 'import venv, ensurepip'
test    | iproute2              | command -v ip
test    | util-linux            | command -v flock && command -v unshare
test    | spin                  | command -v spin
python  | python3-numpy         | python3 -c 'import numpy'
python  | python3-setuptools    | python3 -c 'import setuptools'
python  | python3-pip           | python3 -m pip --version
mpi     | openmpi-bin           | command -v mpirun
bench   | libbenchmark-dev      | pkg-config --exists benchmark
bench   | libgloo-dev           | test -e /usr/include/gloo/rendezvous/context.h
chroot  | debootstrap           | command -v debootstrap
aarch64 | gcc-aarch64-linux-gnu | command -v aarch64-linux-gnu-gcc
aarch64 | libc6-dev-arm64-cross | test -e /usr/aarch64-linux-gnu/include/stdlib.h
aarch64 | qemu-user             | command -v qemu-aarch64
lint    | clang                 | command -v clang
lint    | clang-format          | command -v clang-format
lint    | git                   | command -v git
TABLE
}

# The packages of the purposes given that are missing here, on one line.
packages_missing() {
    local purpose package probe wanted=" $* "
    packages_table | while IFS='|' read -r purpose package probe; do
        purpose=${purpose// /} package=${package// /}
        [[ $wanted == *" $purpose "* ]] || continue
        bash -c "$probe" >/dev/null 2>&1 || printf '%s ' "$package"
    done
}

# apt-get as root, directly or through sudo. 1: neither is possible.
packages_apt_get() {
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || return 1
        # Without a terminal sudo cannot ask for a password.
        if [ -t 0 ]; then sudo -v || return 1; else sudo -n true 2>/dev/null || return 1; fi
        as_root=(sudo)
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq "$@" </dev/null
}

# packages_need PURPOSE...: installs what is missing and says so. 1: something is still missing,
# and what, and the command that installs it, has been printed.
packages_need() {
    local missing log
    missing=$(packages_missing "$@")
    [ -n "$missing" ] || return 0
    if command -v apt-get >/dev/null; then
        echo "==> installing: $missing"
        log=$(mktemp)
        # A stale package list is the usual reason for a first failure.
        # shellcheck disable=SC2086
        packages_apt_get install -y --no-install-recommends $missing >"$log" 2>&1 ||
            { packages_apt_get update && packages_apt_get install -y --no-install-recommends $missing; } >"$log" 2>&1
        missing=$(packages_missing "$@")
        [ -z "$missing" ] || tail -n 5 "$log" >&2
        rm -f "$log"
        [ -n "$missing" ] || return 0
    fi
    {
        echo "missing: $missing"
        echo "To install (Debian, as root):  apt-get install $missing"
    } >&2
    return 1
}

# The project's files, changed and new ones too, as a tar on standard output.
source_tar() { # TOP
    if git -C "$1" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$1" ls-files -z -c -o --exclude-standard |
            tar -C "$1" --null --ignore-failed-read -T - -c 2>/dev/null
    else
        # What a distribution archive adds is made again.
        tar -C "$1" --exclude='./build*' --exclude=./autom4te.cache --exclude=./configure -c .
    fi
}
