#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The man pages say what the command does.
. "$abs_top_srcdir/tests/tools/lib.sh"
pages=$abs_top_srcdir/docs/man

# The options of a verb, from its help, are those of its page.
options_of_help() { "$ringfold" "$1" --help | sed -n 's/^  \(-., \|    \)--\([a-z-]*\).*/\2/p' | sort; }
options_of_page() {
	awk '/^\.SH/ { inside = /OPTIONS/ }
		inside && before ~ /^\.T[PQ]/ && match($0, /\\-\\-[a-z\\-]+/) {
			name = substr($0, RSTART, RLENGTH)
			gsub(/\\/, "", name)
			print substr(name, 3)
		}
		{ before = $0 }' "$pages/ringfold-$1.1" | sort
}
for verb in $("$ringfold" --help | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
	promise "ringfold(1) has $verb" grep -q "^\.B $verb\$" "$pages/ringfold.1"
	promise "ringfold-$verb(1) has the options that there are" \
		same "$(options_of_page "$verb" | tr '\n' ' ')" "$(options_of_help "$verb" | tr '\n' ' ')"
done

if command -v "${PYTHON:-python3}" >/dev/null; then
	promise "ringfold(7) has the variables and errors that there are" \
		"${PYTHON:-python3}" "$pages/update_manual.py" --check "$ringfold"
fi
if command -v groff >/dev/null; then
	for page in "$pages"/*.[17]; do
		groff -man -Tutf8 -ww -z "$page" 2>"$scratch/err"
		promise "${page##*/} is well-formed" same "$(cat "$scratch/err")" ""
	done
fi
finish
