//! What is run: real programs, each a few lines of shell in a directory of its own, that work until they are ended.
//!
//! A script finds its inputs in `$IN`, which it does not change, and counts what it does: a byte to the file `$C` for each
//! unit (`m` does that), or by this program's help (`$X real feed`) in `$W`. A server writes nothing: its load counts the
//! answers.

use super::load::Load;

/// How the units of work are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Bytes in a file.
    Marks,
    /// A number in a file.
    Word,
    /// Requests that were answered, with the time that each took.
    Requests,
}

/// One program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    /// What has to be installed.
    pub(super) needs: &'static [&'static str],
    /// Written into `$IN` before all else.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Makes the rest of `$IN`, in it.
    pub(super) prepare: &'static [&'static str],
    pub(super) run: &'static str,
    pub(super) count: Count,
    pub(super) unit: &'static str,
    /// Who asks, where it is a server.
    pub(super) load: Option<Load>,
    /// Whether it wants all of a CPU all the time, by itself.
    pub(super) computes: bool,
    /// Before it is measured.
    pub(super) warm_ms: u64,
    /// How many times as long as others it is watched: where a unit takes long, few are done.
    pub(super) longer: u64,
}

const BASE: Program = Program {
    name: "",
    kind: "",
    needs: &[],
    files: &[],
    prepare: &[],
    run: "",
    count: Count::Marks,
    unit: "",
    load: None,
    computes: true,
    warm_ms: 400,
    longer: 1,
};

const SMALL_C: (&str, &str) = ("small.c", include_str!("inputs/small.c"));
/// A megabyte of text that compresses as text does, the same each time.
const TEXT: &str = "awk 'BEGIN { x = 1; for (i = 0; i < 24000; i++) { x = (x * 16807) % 2147483647; \
    printf \"word%d %s%s line %d of the text %d\\n\", x % 997, substr(\"aeioubcdfg\", x % 10 + 1, 1), \
    substr(\"lorem ipsum dolor sit amet\", x % 20 + 1, 6), i, x % 100000 } }' >text\n";
/// Thirty directories of ten files.
const TREE: &str = "mkdir tree; for d in $(seq 30); do mkdir tree/$d; for f in $(seq 10); do \
    sed -n \"$((d * 100 + f * 10)),$((d * 100 + f * 10 + 60))p\" text >tree/$d/$f.txt; done; done\n";
/// Twenty-four C files, and a makefile that marks each that was compiled.
const SOURCES: &str = "mkdir src; for i in $(seq 24); do sed \"s/work/work$i/\" small.c >src/f$i.c; done\n\
    printf '%s\\n' 'all: $(patsubst %.c,%.o,$(wildcard *.c))' '%.o: %.c' '\t@gcc -c $< -o $@ && printf . >>$$C' >src/Makefile\n";

/// Five of the directories under git, with twenty commits.
const REPOSITORY: &str = "mkdir repository; cp -r tree/1 tree/2 tree/3 tree/4 tree/5 repository; cd repository; git init -q; \
    git add .; git commit -qm first; for i in $(seq 20); do echo $i >>1/$i.txt; git add .; git commit -qm $i; done\n";
/// What servers serve: 64 KiB.
const PAGE: &str = "head -c 65536 text >page.txt\n";

macro_rules! make {
    ($name:literal, $jobs:literal) => {
        Program {
            name: $name,
            kind: "builds",
            needs: &["gcc", "make"],
            files: &[SMALL_C],
            prepare: &[SOURCES],
            run: concat!("cp $IN/src/* .; while :; do make -s -j", $jobs, "; rm -f *.o; done"),
            unit: "files",
            ..BASE
        }
    };
}

macro_rules! python {
    ($name:literal, $kind:literal, $file:literal, $arguments:literal, $unit:literal) => {
        Program {
            name: $name,
            kind: $kind,
            needs: &["python3"],
            files: &[($file, include_str!(concat!("inputs/", $file)))],
            run: concat!("exec python3 $IN/", $file, " ", $arguments),
            unit: $unit,
            ..BASE
        }
    };
}

/// A filter that is fed a text without end.
macro_rules! filter {
    ($name:literal, $program:literal, $command:literal) => {
        Program {
            name: $name,
            kind: "compressors and coders",
            needs: &[$program],
            prepare: &[TEXT],
            run: concat!("$X real feed $IN/text $W | ", $command, " >/dev/null"),
            count: Count::Word,
            unit: "4 KiB",
            // It takes its input in gulps.
            longer: 2,
            ..BASE
        }
    };
}

const BUILDS: &[Program] = &[
    Program {
        name: "gcc loop",
        kind: "builds",
        needs: &["gcc"],
        files: &[SMALL_C],
        run: "while gcc -c $IN/small.c -o o.o; do m; done",
        unit: "files",
        ..BASE
    },
    Program {
        name: "gcc -O2 -pipe loop",
        kind: "builds",
        needs: &["gcc"],
        files: &[SMALL_C],
        run: "while gcc -O2 -pipe -c $IN/small.c -o o.o; do m; done",
        unit: "files",
        longer: 2,
        ..BASE
    },
    make!("make -j1", "1"),
    make!("make -j2", "2"),
    make!("make -j4", "4"),
    Program {
        name: "rustc loop",
        kind: "builds",
        needs: &["rustc"],
        files: &[("small.rs", include_str!("inputs/small.rs"))],
        run: "while $RUSTC --edition 2021 --crate-type lib --emit metadata --out-dir . $IN/small.rs; do m; done",
        unit: "files",
        ..BASE
    },
    Program {
        name: "java loop",
        kind: "builds",
        needs: &["java", "javac"],
        files: &[("Start.java", include_str!("inputs/Start.java"))],
        prepare: &["javac Start.java"],
        run: "while java -cp $IN Start; do m; done",
        unit: "starts",
        longer: 3,
        ..BASE
    },
];

const SCRIPTS: &[Program] = &[
    Program {
        name: "grep -r loop",
        kind: "scripts",
        needs: &["grep"],
        prepare: &[TEXT, TREE],
        run: "while grep -rc 'word1[0-9]* .*7$' $IN/tree; do m; done",
        unit: "searches",
        ..BASE
    },
    Program {
        name: "git status loop",
        kind: "scripts",
        needs: &["git"],
        prepare: &[TEXT, TREE, REPOSITORY],
        run: "cp -r $IN/repository .; cd repository; while git status -s && git log --stat -5; do m; done",
        unit: "rounds",
        ..BASE
    },
    Program {
        name: "git commit loop",
        kind: "scripts",
        needs: &["git"],
        prepare: &[TEXT, TREE, REPOSITORY],
        run: "cp -r $IN/repository .; cd repository; i=0; \
              while i=$((i + 1)); echo $i >>1/1.txt; git commit -qam $i; do m; done",
        unit: "commits",
        computes: false,
        ..BASE
    },
    Program {
        name: "find -exec loop",
        kind: "scripts",
        needs: &["find"],
        prepare: &[TEXT, TREE],
        run: "while find $IN/tree/1 -type f -exec sha256sum {} \\;; do m; done",
        unit: "rounds",
        ..BASE
    },
    Program {
        name: "sed | awk | sort",
        kind: "scripts",
        prepare: &[TEXT],
        run: "head -4000 $IN/text >t; while sed 's/o/0/g' t | awk '{ n[$1]++ } END { for (w in n) print n[w], w }' | sort -n; do m; done",
        unit: "rounds",
        ..BASE
    },
    Program {
        name: "sort",
        kind: "scripts",
        prepare: &[TEXT],
        run: "while sort -k3 $IN/text -o o; do m; done",
        unit: "files",
        ..BASE
    },
    Program {
        name: "tar | gzip",
        kind: "scripts",
        needs: &["tar", "gzip"],
        prepare: &[TEXT, TREE],
        run: "while tar cf - -C $IN/tree 1 2 3 4 5 | gzip -5 >o; do m; done",
        unit: "archives",
        ..BASE
    },
    Program {
        name: "xargs -P4",
        kind: "scripts",
        needs: &["xargs"],
        prepare: &[TEXT, TREE],
        run: "while ls $IN/tree/*/1.txt | xargs -P4 -n2 md5sum; do m; done",
        unit: "rounds",
        ..BASE
    },
    Program {
        name: "shell arithmetic",
        kind: "scripts",
        run: "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; m; done",
        unit: "rounds",
        ..BASE
    },
    Program {
        name: "bc loop",
        kind: "scripts",
        needs: &["bc"],
        run: "while echo 'scale=120; 4*a(1)' | bc -l; do m; done",
        unit: "values",
        ..BASE
    },
    Program {
        name: "perl fork loop",
        kind: "scripts",
        needs: &["perl"],
        files: &[("fork.pl", include_str!("inputs/fork.pl"))],
        run: "exec perl $IN/fork.pl $C",
        unit: "children",
        ..BASE
    },
    python!("python subprocess loop", "scripts", "children.py", "$C", "programs"),
    Program {
        name: "a daemon with an empty environment",
        kind: "scripts",
        run: "(setsid env -i /bin/sh -c 'while :; do i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; printf . >>'$C'; done' &)\n\
              exec sleep 1000",
        unit: "rounds",
        ..BASE
    },
];

const CODERS: &[Program] = &[
    filter!("xz -T1", "xz", "xz -T1 -0"),
    filter!("xz -T2", "xz", "xz -T2 -0 --block-size=256KiB"),
    filter!("bzip2", "bzip2", "bzip2 -1"),
    filter!("zstd", "zstd", "zstd -q -9"),
    filter!("gzip | gunzip", "gzip", "gzip | gunzip"),
    filter!("openssl sha512", "openssl", "openssl dgst -sha512"),
    filter!(
        "flac",
        "flac",
        "flac -s -8 --force-raw-format --endian=little --sign=signed --channels=2 --bps=16 --sample-rate=44100 -c -"
    ),
    Program {
        name: "sha256sum loop",
        kind: "compressors and coders",
        prepare: &["head -c 2000000 /dev/zero >zeros"],
        run: "while sha256sum $IN/zeros; do m; done",
        unit: "files",
        ..BASE
    },
];

const INTERPRETERS: &[Program] = &[
    python!("python", "interpreters", "compute.py", "$C", "pieces"),
    python!("python, 4 threads", "interpreters", "threads.py", "$C 4 count", "pieces"),
    python!("python, 3 hashing threads", "interpreters", "threads.py", "$C 3 hash", "MiB"),
    python!("python, 300 threads", "interpreters", "threads.py", "$C 2 hash 298", "MiB"),
    python!("python, pool of 4", "interpreters", "pool.py", "$C", "tasks"),
    Program {
        name: "perl regex",
        kind: "interpreters",
        needs: &["perl"],
        files: &[("regex.pl", include_str!("inputs/regex.pl"))],
        prepare: &[TEXT],
        run: "head -2000 $IN/text >t; exec perl $IN/regex.pl $C t",
        unit: "rounds",
        ..BASE
    },
    Program {
        name: "node",
        kind: "interpreters",
        needs: &["node"],
        files: &[("work.js", include_str!("inputs/work.js"))],
        run: "exec node $IN/work.js $C",
        unit: "pieces",
        warm_ms: 1_000,
        ..BASE
    },
    Program {
        name: "lua",
        kind: "interpreters",
        needs: &["lua5.4"],
        files: &[("work.lua", include_str!("inputs/work.lua"))],
        run: "exec lua5.4 $IN/work.lua $C",
        unit: "pieces",
        ..BASE
    },
    Program {
        name: "java, 2 threads",
        kind: "interpreters",
        needs: &["java", "javac"],
        files: &[("Work.java", include_str!("inputs/Work.java"))],
        prepare: &["javac Work.java"],
        run: "exec java -cp $IN Work $C",
        unit: "pieces",
        warm_ms: 2_000,
        ..BASE
    },
];

const SERVERS: &[Program] = &[
    Program {
        name: "nginx under load",
        kind: "databases and servers",
        needs: &["nginx"],
        files: &[("nginx.conf", include_str!("inputs/nginx.conf"))],
        prepare: &[TEXT, PAGE],
        run: "sed \"s|PORT|$PORT|; s|DIR|$IN|\" $IN/nginx.conf >conf; exec nginx -p $PWD -c $PWD/conf",
        count: Count::Requests,
        unit: "requests",
        load: Some(Load::Http),
        ..BASE
    },
    Program {
        name: "redis under load",
        kind: "databases and servers",
        needs: &["redis-check-rdb"],
        // Debian's package of tools has the whole server under the name of one of its tools.
        run: "ln -s $(command -v redis-check-rdb) redis-server\n\
              exec ./redis-server --bind 127.0.0.1 --port $PORT --save '' --appendonly no",
        count: Count::Requests,
        unit: "requests",
        load: Some(Load::Redis),
        ..BASE
    },
    Program {
        name: "python http.server under load",
        kind: "databases and servers",
        needs: &["python3"],
        files: &[("server.py", include_str!("inputs/server.py"))],
        prepare: &[TEXT, PAGE],
        run: "exec python3 $IN/server.py $PORT $IN",
        count: Count::Requests,
        unit: "requests",
        load: Some(Load::Http),
        ..BASE
    },
    Program {
        name: "sqlite selects",
        kind: "databases and servers",
        needs: &["sqlite3"],
        prepare: &["sqlite3 db 'create table t as with recursive n(i) as \
                    (select 1 union all select i + 1 from n where i < 20000) \
                    select i, i * 7919 % 10007 as a, hex(i * 31337 % 65521) as b from n'"],
        run: "while sqlite3 $IN/db \"select count(*), sum(a) from t where b like '%7%' group by a % 10\"; do m; done",
        unit: "queries",
        ..BASE
    },
    Program {
        name: "sqlite inserts",
        computes: false,
        ..python!("sqlite inserts", "databases and servers", "inserts.py", "$C", "commits")
    },
];

const SLEEPERS: &[Program] = &[
    Program {
        name: "dd conv=fsync",
        kind: "I/O and sleep",
        run: "while dd if=/dev/zero of=o bs=1M count=4 conv=fsync; do m; done",
        unit: "files",
        computes: false,
        ..BASE
    },
    Program {
        name: "dd to /dev/null",
        kind: "I/O and sleep",
        prepare: &["head -c 64000000 /dev/zero >zeros"],
        run: "while dd if=$IN/zeros of=/dev/null bs=64k; do m; done",
        unit: "files",
        ..BASE
    },
    Program {
        name: "small reads, writes and syncs",
        kind: "I/O and sleep",
        needs: &["perl"],
        files: &[("smallio.pl", include_str!("inputs/smallio.pl"))],
        run: "exec perl $IN/smallio.pl $C",
        unit: "syncs",
        computes: false,
        ..BASE
    },
    python!("a byte to and fro", "I/O and sleep", "pingpong.py", "$C", "200 rounds"),
    Program {
        name: "5 ms of work, 5 ms of sleep",
        kind: "I/O and sleep",
        run: "exec $X real duty $W 5 5",
        count: Count::Word,
        unit: "rounds",
        computes: false,
        ..BASE
    },
    Program {
        name: "80 ms of work, 240 ms of sleep",
        kind: "I/O and sleep",
        run: "exec $X real duty $W 80 240",
        count: Count::Word,
        unit: "rounds",
        computes: false,
        ..BASE
    },
    SLEEPING_SERVER,
];

/// The server that mostly sleeps: 1 ms of work every 20 ms.
pub(super) const SLEEPING_SERVER: Program = Program {
    name: "sleeping server",
    kind: "I/O and sleep",
    run: "exec $X real nap $R 1000 20000",
    count: Count::Requests,
    unit: "requests",
    computes: false,
    ..BASE
};

/// All of them, in the order of the page.
pub(super) fn all() -> Vec<Program> {
    [BUILDS, SCRIPTS, CODERS, INTERPRETERS, SERVERS, SLEEPERS].concat()
}
