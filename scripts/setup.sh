#!/bin/sh
# Makes a Debian (or Ubuntu) machine with Rust ready to build and test divvy. Does nothing where all is there already.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Programs that building or testing needs, and the Debian package of each.
missing=''
for pair in cc:gcc ld:binutils sha256sum:coreutils setpriv:util-linux setsid:util-linux cpulimit:cpulimit \
    qemu-system-x86_64:qemu-system-x86 busybox:busybox-static strip:binutils tar:tar \
    mmdebstrap:mmdebstrap dpkg-shlibdeps:dpkg-dev busctl:systemd dbus-daemon:dbus-daemon mypy:mypy \
    musl-gcc:musl-tools; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
# Real programs that `cargo xtask paper real` divides: what is missing here is missing from its page. Servers live in sbin,
# which an ordinary user's path need not have.
for pair in make:make python3:python3 perl:perl git:git gzip:gzip bzip2:bzip2 xz:xz-utils zstd:zstd openssl:openssl \
    sqlite3:sqlite3 bc:bc lua5.4:lua5.4 flac:flac stress-ng:stress-ng redis-check-rdb:redis-tools nginx:nginx \
    apache2:apache2-bin ab:apache2-utils sysbench:sysbench lame:lame opusenc:opus-tools mke2fs:e2fsprogs; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
# What `cargo xtask paper services` runs beside these: pages in PHP, and Python's own tests.
[ -n "$(find /usr/lib/apache2/modules -name 'libphp*.so' 2>/dev/null)" ] || missing="$missing libapache2-mod-php php-mysql"
# The tests' package is named after Python's version. Where there is no python3 yet, Debian 12's comes with it.
/usr/bin/python3 -I -c 'import test.test_json' 2>/dev/null ||
    missing="$missing lib$(/usr/bin/python3 -I -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null || echo python3.11)-testsuite"
# The wheel of the Python package is built with Debian's setuptools, which refuses to come after pip.
/usr/bin/python3 -I -c 'import setuptools, wheel, pip' 2>/dev/null || missing="$missing python3-pip python3-setuptools python3-wheel"
# What `cargo xtask cluster` brings up, and builds a plugin for (contrib/slurm). Installed only: nothing of it is started.
for pair in slurmctld:slurmctld slurmd:slurmd slurmdbd:slurmdbd mariadbd:mariadb-server srun:slurm-client \
    munged:munge ip:iproute2; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
[ -e /usr/include/slurm/spank.h ] || missing="$missing libslurm-dev"
# A compiler without the C library's headers is no use.
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
# The kernel's scheduler (crates/divvy-kernel) needs a clang that compiles BPF programs, and what its loader is built from.
clang=''
for version in '' -18 -19 -20 -21 -22 -23 -24; do
    command -v "clang$version" >/dev/null 2>&1 || continue
    major=$("clang$version" -dumpversion | cut -d. -f1)
    [ "$major" -lt 18 ] || clang=clang$version
done
[ -n "$clang" ] || missing="$missing clang-19"
for pair in make:make pkg-config:pkg-config; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
[ -e /usr/include/libelf.h ] || missing="$missing libelf-dev"
[ -e /usr/include/zlib.h ] || missing="$missing zlib1g-dev"

# The page of `divvy web` is tested in a browser without a screen; Ubuntu has none as a package.
if ! command -v chromium-headless-shell >/dev/null 2>&1 && ! command -v chromium >/dev/null 2>&1 &&
    grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then
    missing="$missing chromium-headless-shell"
fi

if [ -n "$missing" ]; then
    command -v apt-get >/dev/null 2>&1 || die "these packages are missing, and there is no apt-get:$missing"
    if [ "$(id -u)" = 0 ]; then
        as_root=''
    elif command -v sudo >/dev/null 2>&1; then
        as_root=sudo
    else
        die "install as root: apt-get install$missing"
    fi
    say "installing:$missing"
    $as_root apt-get update -q
    # A web server that is installed only to be measured shall not be started on this machine's port 80, nor Slurm
    # or a database.
    refusal=/usr/sbin/policy-rc.d
    if [ -e "$refusal" ]; then
        refusal=''
    else
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$refusal" >/dev/null
        $as_root chmod 755 "$refusal"
        trap '$as_root rm -f "$refusal"' EXIT
    fi
    # shellcheck disable=SC2086  # a list of words
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
    if [ -n "$refusal" ]; then
        $as_root rm -f "$refusal"
        trap - EXIT
    fi
fi

command -v cargo >/dev/null 2>&1 || die 'cargo is missing: install Rust with rustup'
wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
have=$(cargo --version | cut -d' ' -f2)
[ -n "$have" ] || die 'cargo does not run: repair the installation of Rust with rustup'
oldest=$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)
[ "$oldest" = "$wanted" ] || die "Rust $have is too old, $wanted is needed: run 'rustup update stable'"

for tool in fmt clippy; do
    cargo "$tool" --version >/dev/null 2>&1 && continue
    command -v rustup >/dev/null 2>&1 || die "cargo $tool is missing, and there is no rustup to add it"
    case $tool in fmt) rustup component add rustfmt ;; clippy) rustup component add clippy ;; esac
done

# The static programs of `cargo xtask dist` need Rust's standard library for musl.
musl=$(uname -m)-unknown-linux-musl
if [ ! -d "$(rustc --print target-libdir --target "$musl" 2>/dev/null)" ] && command -v rustup >/dev/null 2>&1; then
    rustup target add "$musl"
fi

say "ready: Rust $have"
