#!/bin/sh
# Fuzzes each target of fuzz/ in turn for a while, guided by coverage, with cargo-fuzz, which is installed if it is missing.
#
#     scripts/fuzz.sh [SECONDS [TARGET...]]
#
# SECONDS is for each target (default 60); all targets unless some are named. What is found is kept in fuzz/artifacts, and
# ends the run with status 1; the inputs that reached something new are kept in fuzz/corpus and used the next time.
# CARGO_BUILD_JOBS limits the build, as ever.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
case $seconds in
'' | *[!0-9]*) echo "fuzz.sh: '$seconds' is no whole number of seconds; usage: fuzz.sh [SECONDS [TARGET...]]" >&2 && exit 2 ;;
esac

command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz
export CARGO_TARGET_DIR="$PWD/fuzz/target"
# No sanitizer: they need a nightly toolchain, and what is fuzzed is safe Rust. Coverage alone works on any.
[ $# -gt 0 ] || set -- $(cargo fuzz list)
failed=''
for target; do
    mkdir -p "fuzz/corpus/$target"
    echo "== $target, $seconds s"
    cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 || failed="$failed $target"
done
[ -z "$failed" ] || { echo "fuzz.sh: something was found by:$failed; the inputs are in fuzz/artifacts" >&2 && exit 1; }
