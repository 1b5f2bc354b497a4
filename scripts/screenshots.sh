#!/bin/sh
# Makes docs/images/top.png and docs/images/plot.png from real runs: screenshots.sh [DIRECTORY OF PROGRAMS]
# Needs tmux, and Python with Pillow (PYTHON=... names it). Best on a machine that does nothing else.
set -eu
cd "$(dirname "$0")/.."
bin=$(cd "${1:-target/release}" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
chmod 700 "$work"
export DIVVY_RUNTIME_DIR="$work" PATH="$bin:$PATH" LANG=C.UTF-8
unset NO_COLOR
mux() { tmux -S "$work/tmux" -f /dev/null "$@"; }

started=''
stop_tasks() {
    # divvy run passes the signal on, and divvyd leaves with its last client.
    for pid in $started; do kill "$pid" 2>/dev/null || true; done
    wait
    started=''
}
end() {
    mux kill-server 2>/dev/null || true
    stop_tasks
    tries=0
    while [ -S "$work/api.sock" ] && [ $tries -lt 100 ]; do
        sleep 0.2
        tries=$((tries + 1))
    done
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

task() {
    name=$1 share=$2
    shift 2
    divvy run -s "$share" --name "$name" -- "$@" >/dev/null 2>&1 &
    started="$started $!"
}
task backup 1 sha256sum /dev/zero
task tests 2 sh -c 'while :; do i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.7; done'
task build 4 sh -c 'md5sum /dev/zero & a=$!; sha1sum /dev/zero & trap "kill $a $!; exit" TERM; wait'
task indexer 1 sha512sum /dev/zero
until [ "$(divvy ls --json | grep -c '"selector"')" = 4 ]; do sleep 0.1; done

mux new-session -d -x 80 -y 24 'divvy top --interval 500ms'
sleep 25
mux send-keys Down Down
sleep 2
mux capture-pane -e -p | "$python" scripts/screenshot.py docs/images/top.png
mux send-keys q

stop_tasks
divvy share --for 10s --cpus 0 --quiet --trace "$work/run.jsonl" \
    1:'sha256sum /dev/zero' 2:'md5sum /dev/zero' \
    3:'while :; do i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.3; done'
divvy plot "$work/run.jsonl" --png docs/images/plot.png
