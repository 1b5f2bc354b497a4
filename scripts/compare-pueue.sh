#!/bin/bash
# Runs every command of the column pueue of docs/compare.md against a pueued of its own, and shows what each prints.
# Needs pueue and pueued on the PATH: cargo install pueue --locked. Ends with 1 if a command fails, or does not do what its row says.
set -euo pipefail
cd "$(dirname "$0")/.."

for program in pueue pueued; do
    command -v $program >/dev/null || { echo "$program is missing: cargo install pueue --locked" >&2; exit 1; }
done
work=$(mktemp -d)
export HOME=$work XDG_RUNTIME_DIR=$work XDG_CONFIG_HOME=$work/config XDG_DATA_HOME=$work/data
page=$PWD/docs/compare.md
pueued --version
pueued >"$work/log" 2>&1 &
daemon=$!
# On SIGTERM it ends its tasks, too.
trap 'kill $daemon 2>/dev/null; wait $daemon || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do
    pueue status >/dev/null 2>&1 && break
    sleep 0.1
done

# What `pueue add -- make` makes.
cd "$work"
printf 'all:\n\ttouch made\n' >Makefile
pueue add -- sleep 600

state() {
    pueue status --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["tasks"][sys.argv[1]]["status"])' "$1"
}
expect() { # What the state of a task is to be, in time.
    for _ in $(seq 100); do
        [ "$(state "$1")" = "$2" ] && return
        sleep 0.1
    done
    echo "task $1 is $(state "$1"), not $2" >&2
    exit 1
}
expect 0 Running

count=0
while IFS= read -r line; do
    echo "\$ $line"
    case $line in
    *' && pueue start 0')
        bash -c "${line%% && *}" && expect 0 Paused
        bash -c "${line#* && }" && expect 0 Running
        ;;
    *) bash -c "$line" ;;
    esac
    count=$((count + 1))
done < <(sed -n 's/^| .* | `\(pueue [^|]*\)` |$/\1/p' "$page")
[ $count -ge 4 ] || { echo "$count commands in the column pueue of docs/compare.md" >&2; exit 1; }

# One after the other: make waits for the task before it.
[ ! -e made ] || { echo "make did not wait" >&2; exit 1; }
pueue kill 0
expect 1 Done
[ -e made ] || { echo "make was not run" >&2; exit 1; }
echo "$count commands of pueue ran"
