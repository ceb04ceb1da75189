#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# debian13.sh: builds and tests on the other Debian release (13 on a 12, 12 on any other), in a
# chroot that is made once, in the cache. Needs root; the mirror is the one apt uses here.
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/scripts/packages.sh"

. /etc/os-release
[ "${VERSION_ID:-}" = 12 ] && release=13 suite=trixie || release=12 suite=bookworm
root=$cache/debian-$release

[ "$(id -u)" = 0 ] || { echo "a chroot needs root"; exit 77; }
packages_need chroot || { echo "debootstrap is missing"; exit 77; }
mirror=$(apt-get indextargets --format '$(LABEL)|$(SITE)' 'Created-By: Packages' |
    sed -n 's/^Debian|//p' | head -n 1)
[ -n "$mirror" ] || { echo "apt has no list of a Debian mirror here (apt-get update)"; exit 77; }

mkdir -p "$cache"
exec 9>"$root.lock"
flock 9
if [ ! -e "$root/made" ]; then
    echo "==> making a chroot of Debian $release in $root (once)"
    rm -rf "$root"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
        { tail -n 5 "$root.log"; echo "debootstrap failed"; rm -rf "$root"; exit 77; }
    touch "$root/made"
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
rm -rf "$root/src" && mkdir "$root/src"
source_tar "$top" | tar -C "$root/src" -x

cat >"$root/src/in_chroot" <<'INSIDE'
set -u
cd /src
. scripts/packages.sh
. scripts/suites.sh
export RINGFOLD_RESULTS=/src/results
: >$RINGFOLD_RESULTS
packages_need build test mpi python || exit 1
scripts/build.sh build --enable-werror || exit 1
cd build && results_of_make_check "debian$1" check -j2
INSIDE
# The mounts and whatever the tests leave running end with the namespaces.
unshare --mount --pid --fork --kill-child bash -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" &&
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
            chroot "$0" bash /src/in_chroot "$1"' "$root" "$release"
status=$?
[ -z "${RINGFOLD_RESULTS:-}" ] || cat "$root/src/results" >>"$RINGFOLD_RESULTS"
exit $status
