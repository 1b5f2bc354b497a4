//! The table of peers is made by one command, in a quick run too, and leaves nothing behind.

use std::path::Path;
use std::process::Command;

/// Cells of a file of the page's data, with its head.
fn csv(path: &Path) -> (Vec<String>, Vec<Vec<String>>) {
    let text = std::fs::read_to_string(path).expect("data");
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    (lines.next().expect("a head"), lines.collect())
}

fn marked(pid: u32) -> Vec<String> {
    let mark = format!("DIVVY_PEERS={pid}-").into_bytes();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let has = |e: &std::fs::DirEntry| {
        std::fs::read(e.path().join("environ"))
            .is_ok_and(|env| env.split(|&b| b == 0).any(|v| v.starts_with(&mark)))
    };
    all.filter(has).map(|e| e.path().display().to_string()).collect()
}

#[test]
fn a_quick_run_makes_the_page_and_leaves_nothing() {
    let out = std::env::temp_dir().join(format!("peers-test-{}", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["paper", "peers", "--quick", "--out"]).arg(&out);
    let mut child = command.spawn().expect("xtask");
    let pid = child.id();
    assert!(child.wait().expect("our child").success());
    let page = std::fs::read_to_string(out.join("peers.md")).expect("a page");
    assert!(page.contains("**This is a quick run**") && page.contains("## Goals: "), "{page}");
    for file in ["error", "used", "overhead", "windows"] {
        let png = std::fs::read(out.join(format!("peers/{file}.png"))).expect("a plot");
        assert!(png.starts_with(b"\x89PNG"), "{file}");
    }
    // Each tool has its rows, or the page says why it has none.
    let (_, rows) = csv(&out.join("peers/shares.csv"));
    let of_divvy = ["divvy signals", "divvy freezer", "divvy cgroup"];
    for tool in ["cpulimit", "nice", "weights by hand", "minimal loop"].into_iter().chain(of_divvy) {
        let n = rows.iter().filter(|row| row[1] == tool).count();
        assert!(n == 2 || n == 0 && page.contains(&format!("**Without {tool}**: ")), "{tool}: {n}");
    }
    let (head, rows) = csv(&out.join("peers/leftovers.csv"));
    assert_eq!(head, ["tool", "killed", "clients", "standing", "reniced", "cgroups", "moved"]);
    let nothing = ["3", "0", "0", "0", "0"];
    for row in rows.iter().filter(|row| row[0].starts_with("divvy")) {
        if row[1] == "divvy and its guardian" {
            assert!(row[0] != "divvy freezer" || row[3] != "0", "nobody is left to thaw: {row:?}");
        } else {
            assert_eq!(row[2..], nothing, "{row:?}");
        }
    }
    assert_eq!(marked(pid), Vec::<String>::new());
    std::fs::remove_dir_all(&out).expect("clean up");
}
