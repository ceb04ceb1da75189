#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_format.sh: every C file is as clang-format leaves it, and every source says its licence.
set -u
cd "$(dirname "$0")/.." || exit 1
files() { git ls-files "$@"; }
command -v clang-format >/dev/null || { echo "clang-format is not installed"; exit 77; }
failed=0

files '*.c' '*.h' '*.cc' | xargs -r clang-format --dry-run -Werror || failed=1

# On the first line; after a #! on the second.
while IFS= read -r file; do
    head -n 2 "$file" | grep -q 'SPDX-License-Identifier: BSD-3-Clause' ||
        { echo "$file: no SPDX line at its head"; failed=1; }
done < <(files '*.c' '*.h' '*.cc' '*.py' '*.sh' '*.am' '*.ac' '*.map' '*.in' .ci/run)

while IFS= read -r file; do
    [ "$(head -n 1 "$file")" = '/* SPDX-License-Identifier: BSD-3-Clause */' ] ||
        { echo "$file: line 1 is not the SPDX line"; failed=1; }
done < <(files '*.c' '*.h')
exit $failed
