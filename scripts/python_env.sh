#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# python_env.sh [--path]: makes, in the cache, the virtual environment that the Python tests run in
# (numpy, torch, setuptools). --path only prints the python to use: the environment's if it is
# there, else the system's. RINGFOLD_PIP_ARGS is passed to pip install, for an index of CPU builds.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/scripts/packages.sh"

torch=torch==2.13.0
system=$(command -v python3 || true)
[ -n "$system" ] || { [ "${1:-}" = --path ] && echo python3 && exit 0; echo "python3 is missing"; exit 77; }
version=$("$system" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
folder=$cache/python-$version
ready=$folder/ready

if [ "${1:-}" = --path ]; then
    [ -e "$ready" ] && echo "$folder/bin/python" || echo "$system"
    exit 0
fi
mkdir -p "$cache"
exec 9>"$cache/python-$version.lock"
flock 9
if [ "$(cat "$ready" 2>/dev/null)" != "$torch" ]; then
    echo "==> making the Python environment in $folder (numpy, $torch; once)"
    rm -rf "$folder"
    "$system" -m venv "$folder"
    # shellcheck disable=SC2086
    "$folder/bin/pip" install -q ${RINGFOLD_PIP_ARGS:-} numpy setuptools wheel "$torch" || {
        echo "pip could not install numpy and $torch"
        exit 77
    }
    echo "$torch" >"$ready"
fi
"$folder/bin/python" -c 'import numpy, torch; print("numpy", numpy.__version__, "torch", torch.__version__)'
