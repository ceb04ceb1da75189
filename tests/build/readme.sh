#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The README's ten lines of C and of torch do what it says: four ranks end with 10.0. So does the
# program that was built from an install under a prefix.
set -eu
readme=$abs_top_srcdir/README.md
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
block() { # LANGUAGE
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$readme" | sed '/^```/d'
}
ten() { # FILE: has four lines that end with 10.0
    [ "$(grep -c '10\.0$' "$1")" = 4 ] || { cat "$1"; echo "expected 10.0 four times"; exit 1; }
}

block c >"$folder/sum.c"
sanitize=${RINGFOLD_SANITIZER:+-fsanitize=$RINGFOLD_SANITIZER}
# shellcheck disable=SC2086
$CC $sanitize -Wall -Wextra -Werror -I"$abs_top_srcdir/include" "$folder/sum.c" \
    -L"$abs_top_builddir/.libs" -lringfold -o "$folder/sum"
LD_LIBRARY_PATH=$abs_top_builddir/.libs timeout 60 \
    "$abs_top_builddir/ringfold" run -n 4 "$folder/sum" >"$folder/c.out" 2>&1 ||
    { cat "$folder/c.out"; exit 1; }
ten "$folder/c.out"
echo "C: 10.0 on four ranks"

# The README's commands, with an install where it says that one is.
install_in_home() {
    unset MAKEFLAGS MAKELEVEL MFLAGS
    make -s -C "$abs_top_builddir" install prefix="$1" exec_prefix="$1" libdir="$1/lib" \
        includedir="$1/include" bindir="$1/bin" >"$folder/log" 2>&1 ||
        { cat "$folder/log"; exit 1; }
    for variable in prefix="$1" libdir="$1/lib" includedir="$1/include"; do
        sed -i "s|^${variable%%=*}=.*|$variable|" "$1/lib/pkgconfig/ringfold.pc"
    done
}
if [ -z "$sanitize" ] && command -v pkg-config >/dev/null; then
    (install_in_home "$folder/ringfold")
    {
        echo 'cc() { $CC "$@"; }'
        grep -e '^    export PKG_CONFIG_PATH=' -e '^    cc sum.c .*-rpath' "$readme"
        grep '^    ringfold run -n 4 ./sum$' "$readme"
    } >"$folder/commands"
    (cd "$folder" && rm -f sum && HOME=$folder timeout 60 sh -e ./commands >c.out 2>&1) ||
        { cat "$folder/c.out"; exit 1; }
    ten "$folder/c.out"
    echo "C, installed under a prefix: 10.0 on four ranks"
fi

if [ -n "${RINGFOLD_SANITIZER:-}" ]; then
    echo "torch is left out: it does not load a library built with a sanitizer"
    exit 0
fi
"$PYTHON" -c 'import torch' 2>/dev/null || { echo "torch: $PYTHON has none"; exit 77; }
block python >"$folder/reduce.py"
port=$("$abs_top_builddir/ringfold" run -n 1 --no-prefix sh -c 'echo $MASTER_PORT')
for rank in 0 1 2 3; do
    PYTHONPATH=$abs_top_srcdir/python RINGFOLD_LIBRARY=$abs_top_builddir/.libs/libringfold.so \
        rank=$rank world=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout 120 "$PYTHON" "$folder/reduce.py" >"$folder/torch.$rank" 2>&1 &
done
wait
cat "$folder"/torch.? >"$folder/torch.out"
ten "$folder/torch.out"
echo "torch: 10.0 on four ranks"
