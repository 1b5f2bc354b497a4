#!/bin/sh
# Sets the machine up and runs every check and test. Ends at the first that fails.
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step set-up
scripts/setup.sh

step format
cargo fmt --all --check

step lengths
# Functions are counted by clippy (too_many_lines).
long=$(git ls-files -co --exclude-standard '*.rs' '*.c' '*.h' | xargs -d '\n' wc -l | awk '$2 != "total" && $1 > 800')
if [ -n "$long" ]; then
    printf 'no file may have more than 800 lines; divide:\n%s\n' "$long" >&2
    exit 1
fi

step lints
cargo clippy --workspace --all-targets -- -D warnings

step 'lints of the kernel scheduler'
# A workspace of its own: only this needs clang.
kernel='--manifest-path crates/divvy-kernel/Cargo.toml'
# shellcheck disable=SC2086  # a list of words
{
    cargo fmt $kernel --check
    cargo clippy $kernel --target-dir target/kernel --all-targets -- -D warnings
}

step documentation
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet

step purity
# The pure crates have no unsafe code, depend on nothing but each other and on a short list, and are compiled where the
# standard library is not to be found: neither they nor those of the list know a clock, a file or a thread.
for crate in divvy-policy divvy-market divvy-site; do
    known=$(cargo tree -p "$crate" -e normal --prefix none)
    if printf '%s\n' "$known" | grep -vE '^(divvy-(policy|market|site)|num-(bigint|integer|traits)) '; then
        echo "$crate may depend on nothing but divvy's pure crates and big integers" >&2
        exit 1
    fi
    for line in '#![no_std]' '#![forbid(unsafe_code)]'; do
        grep -qxF "$line" "crates/$crate/src/lib.rs" || { echo "$crate: no line $line" >&2; exit 1; }
    done
done
host=$(rustc -vV | sed -n 's/^host: //p')
bare=$PWD/target/bare
rm -rf "$bare/lib"
mkdir -p "$bare/lib/rustlib/$host/lib"
for library in core alloc compiler_builtins; do
    ln -sf "$(rustc --print sysroot)/lib/rustlib/$host/lib/lib$library"-*.r* "$bare/lib/rustlib/$host/lib/"
done
RUSTFLAGS="--sysroot $bare" cargo check --quiet --lib -p divvy-policy -p divvy-market -p divvy-site --target "$host" --target-dir "$bare/build"
echo 'divvy-policy, divvy-market, divvy-site: pure'
# No arrow points outward: who knows no system call may not learn of one through a dependency either.
for crate in divvy-engine divvy-sim; do
    [ -d "crates/$crate" ] || continue
    known=$(cargo tree -p "$crate" -e normal --prefix none)
    if printf '%s\n' "$known" | grep -E '^(divvy-(linux|cli|daemon)|libc|nix|rustix) '; then
        echo "$crate must not know the system" >&2
        exit 1
    fi
    echo "$crate: knows no system call"
done

# Whoever builds `divvy` builds no server.
if cargo tree -p divvy-cli -e normal,build --prefix none | grep -E '^(divvy-daemon|tokio|axum|hyper|rusqlite) '; then
    echo "divvy must not know divvyd" >&2
    exit 1
fi
echo "divvy-cli: knows no server"

step programs
# Tests of `divvy` start this `divvyd`, which is another package's.
cargo build --bin divvy --bin divvyd

step tests
skips=$(mktemp)
trap 'rm -f "$skips"' EXIT
export DIVVY_TEST_SKIPS="$skips"
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace
else
    cargo test --workspace --lib --bins --tests
fi
cargo test --workspace --doc
# shellcheck disable=SC2086  # a list of words
cargo test $kernel --target-dir target/kernel --lib --tests

step "skipped: $(wc -l <"$skips")"
cat "$skips"
