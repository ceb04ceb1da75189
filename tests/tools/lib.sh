# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of the ringfold command: a scratch folder, a watchdog for every command, and
# a line for every promise.
set -u

ringfold=${RINGFOLD_TEST_COMMAND:-$abs_top_builddir/ringfold}
"$ringfold" --version >/dev/null 2>&1
if [ $? -eq 126 ]; then
	echo "skipped: $ringfold is for another machine"
	exit 77
fi
scratch=$(mktemp -d) || exit 1
# Only of this shell: a subshell that is killed before it has reset its traps would run it as well.
trap '[ "$(exec sh -c "echo \$PPID")" != "$$" ] || rm -rf "$scratch"' EXIT
failures=0
# The tests' own environment must not look like a launcher's, or set anything.
for name in $(env | sed -n 's/^\(RINGFOLD_[A-Z_]*\)=.*/\1/p'); do
	case $name in RINGFOLD_TEST_* | RINGFOLD_SANITIZER) ;; *) unset "$name" ;; esac
done
unset rank world RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

# promise TEXT COMMAND...: the command holds.
promise() {
	promise_text=$1
	shift
	if "$@"; then
		echo "ok      $promise_text"
	else
		echo "FAILED  $promise_text ($*)"
		for file in out err; do
			[ -s "$scratch/$file" ] && tail -n 20 "$scratch/$file" | sed "s/^/        $file: /"
		done
		failures=$((failures + 1))
	fi
}

# Runs the command, at most a minute; leaves $scratch/out, $scratch/err and $status.
rf() {
	timeout -k 5 60 "$ringfold" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
	status=$?
}

# The same in the background, in a process group of its own; $pid is the command itself.
rf_start() {
	"$ringfold" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null &
	pid=$!
	started="$started $pid"
}
started=

# Its end, at most a minute from now.
rf_end() {
	(
		count=0
		while [ $count -lt 600 ] && kill -0 "$pid" 2>/dev/null; do
			count=$((count + 1))
			sleep 0.1
		done
		kill -9 "$pid" 2>/dev/null
	) &
	watchdog=$!
	wait "$pid" 2>/dev/null
	status=$?
	kill "$watchdog" 2>/dev/null
	wait "$watchdog" 2>/dev/null
}

# Polls for a condition, at most half a minute.
until_true() {
	count=0
	while ! "$@" >/dev/null 2>&1; do
		count=$((count + 1))
		[ $count -lt 600 ] || return 1
		sleep 0.05
	done
}

is_gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }
all_gone() { for one in $(cat "$@" 2>/dev/null); do is_gone "$one" || return 1; done; }
lines_are() { [ "$(wc -l <"$1")" -eq "$2" ]; }
status_is() { [ "$status" -eq "$1" ]; }
has() { grep -q -e "$2" "$scratch/$1"; }
has_not() { ! has "$@"; }
same() { [ "$1" = "$2" ] || { echo "        \"$1\" is not \"$2\""; return 1; }; }

finish() {
	[ "$failures" -eq 0 ]
	exit
}
