#!/bin/sh
# Asks a real divvyd for everything that its document allows, and for much that it does not, with schemathesis: each answer
# must be one that docs/openapi.json has. At the end the market has to be sound, and the same after a restart.
#
#     scripts/fuzz-api.sh [EXAMPLES [SEED]]
#
# EXAMPLES is the number of cases for each operation (default 50). As root: a system's divvyd in a directory of its own, by
# root and by a user that nobody is; and a user's own divvyd, by `nobody`. Else only a user's own. Nobody's processes are
# touched: a system's divvyd is not asked to attach any.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
examples=${1:-50}
seed=${2:-1}
venv=$root/target/fuzz-api
user=64010

[ -x "$venv/bin/schemathesis" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet schemathesis; }
cargo build --quiet --bin divvyd
dir=$(mktemp -d)
chmod 711 "$dir"
pids=''
# Ends what was started here, and nothing else.
clean() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT TERM

cat >"$dir/schemathesis.toml" <<'END'
# Everything but: that a request is found wanting (404) for somebody else whom its body names, after its path was made;
# that a client that left can be asked about for a while; and authentication, of which there is none in HTTP.
[checks]
ensure_resource_availability.enabled = false
use_after_free.enabled = false
ignored_auth.enabled = false

# No schema knows which users and programs there are.
[[operations]]
include-operation-id = "add"
checks.positive_data_acceptance.enabled = false
END

# wait_for FILE: until it is there.
wait_for() {
    tries=0
    while [ ! -e "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || { echo "waited in vain for $1" >&2; cat "$dir"/*.log >&2; exit 1; }
        sleep 0.1
    done
}

# fuzz SOCKET WHO [OPTION...]: as user WHO.
failed=0
fuzz() {
    socket=$1 who=$2
    shift 2
    rm -f "$dir/port"
    python3 scripts/unix_proxy.py "$socket" "$dir/port" "$who" &
    proxy=$!
    pids="$pids $proxy"
    wait_for "$dir/port"
    echo "== as user $who at $socket"
    # It leaves notes where it runs.
    (cd "$dir" && "$venv/bin/schemathesis" --config-file schemathesis.toml run "$root/docs/openapi.json" \
        --url "http://127.0.0.1:$(cat port)" --max-examples "$examples" --seed "$seed" --generation-database none \
        --continue-on-failure --no-color --workers 1 "$@") || failed=1
    kill "$proxy"
}

# graph SOCKET: the whole market.
graph() {
    python3 - "$1" <<'END'
import http.client, socket, sys
connection = http.client.HTTPConnection("divvyd")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", "/v1/market")
answer = connection.getresponse()
assert answer.status == 200, answer.status
print(answer.read().decode())
END
}

# begin_system: a system's divvyd in $dir.
begin_system() {
    target/debug/divvyd --system --run-dir "$dir/run" --state-dir "$dir/state" --policy-file "$dir/divvyd.toml" \
        2>>"$dir/system.log" &
    system=$!
    pids="$pids $system"
    wait_for "$dir/run/api.sock"
}

if [ "$(id -u)" = 0 ]; then
    printf '[limits]\nrequests_per_second = 1000000\nburst = 1000000\n[bounds.%s]\ncpu = 100\n' "$user" >"$dir/divvyd.toml"
    begin_system
    fuzz "$dir/run/api.sock" "$user" --exclude-operation-id add
    fuzz "$dir/run/api.sock" 0 --exclude-operation-id add
    graph "$dir/run/api.sock" >"$dir/before"
    kill "$system"
    wait "$system" || { echo "divvyd ended with $?" >&2; cat "$dir/system.log" >&2; exit 1; }
    # It starts only with a market in which every law holds.
    begin_system
    graph "$dir/run/api.sock" >"$dir/after"
    cmp "$dir/before" "$dir/after" || { echo "the market is another after a restart" >&2; exit 1; }
    echo "== the market ($(wc -c <"$dir/before") bytes) is sound, and the same after a restart"
    if grep -n 'panicked' "$dir/system.log"; then failed=1; fi
    mkdir "$dir/own"
    chown nobody "$dir/own"
    cp target/debug/divvyd "$dir/divvyd"
    set -- setpriv --reuid=nobody --clear-groups
    owner=$(id -u nobody)
else
    mkdir "$dir/own"
    cp target/debug/divvyd "$dir/divvyd"
    set --
    owner=$(id -u)
fi
chmod 700 "$dir/own"
(cd "$dir/own" && exec env -i PATH=/nowhere DIVVY_RUNTIME_DIR="$dir/own" "$(command -v "${1:-env}")" ${2:+"$2"} ${3:+"$3"} \
    "$dir/divvyd" --user --linger forever 2>"$dir/own.log") &
pids="$pids $!"
wait_for "$dir/own/api.sock"
fuzz "$dir/own/api.sock" "$owner"
if grep -n 'panicked' "$dir/own.log"; then failed=1; fi
exit "$failed"
