//! Every command that a page shows is run by a test, or stands on a list with the reason why not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[path = "../../crates/divvy-cli/tests/live/page.rs"]
mod page;

const PAGES: &str = "crates/divvy-cli/tests/live/pages.rs";
const INSTALLED: &str = "xtask/tests/dist.rs";
const CLUSTER: &str = "xtask/src/cluster/page.rs";
const SYSTEMD: &str = "needs systemd; xtask/tests/machine/inside/systemd.rs does it in the test machine";
const CGROUP: &str =
    "needs cgroups with memory and io; xtask/tests/machine/inside/bounds.rs does it in the test machine";

/// A page, what its blocks of commands are marked as, and who runs them.
const RUN: [(&str, &[&str], &str); 27] = [
    ("README.md", &["sh"], PAGES),
    ("docs/admin.md", &["sh"], "crates/divvy-cli/tests/live/admin.rs"),
    ("docs/admin.md", &["sh cgroup"], "xtask/tests/machine/inside/disk/page.rs"),
    ("docs/backends.md", &["sh systemd"], "xtask/tests/machine/inside/systemd.rs"),
    ("docs/c.md", &["sh cc"], "crates/divvy-c/tests/c_program.rs"),
    ("docs/daemon.md", &["sh"], PAGES),
    ("docs/install.md", &["sh"], PAGES),
    ("docs/install.md", &["sh archive", "sh debian"], INSTALLED),
    ("docs/kernel.md", &["sh kernel"], "xtask/tests/machine/inside/kernel/page.rs"),
    ("docs/limits.md", &["sh"], PAGES),
    ("docs/market.md", &["sh"], "crates/divvy-cli/tests/live/site.rs"),
    ("docs/python.md", &["python"], "python/tests/test_docs.py"),
    ("docs/python.md", &["sh wheel"], "xtask/tests/python.rs"),
    ("docs/recipes.md", &["python"], "python/tests/test_docs.py"),
    ("docs/recipes.md", &["sh"], PAGES),
    ("docs/recipes.md", &["sh system"], "crates/divvy-cli/tests/live/admin.rs"),
    ("docs/rules.md", &["sh"], "crates/divvy-cli/tests/live/rules.rs"),
    ("docs/seeing.md", &["sh"], "crates/divvy-cli/tests/live/plot.rs"),
    ("docs/share.md", &["sh"], PAGES),
    ("docs/sim.md", &["console", "console exit=2", "console exit=4"], "crates/divvy-cli/tests/sim.rs"),
    ("docs/slurm.md", &["sh", "sh n1", "sh n2", "sh nodes"], CLUSTER),
    ("docs/tutorial.md", &["sh", "sh ctrl-c"], PAGES),
    ("docs/tutorial.md", &[], INSTALLED),
    ("docs/usage.md", &["sh", "sh script"], "crates/divvy-cli/tests/live/usage.rs"),
    ("docs/web.md", &["sh ctrl-c"], PAGES),
    ("docs/compare.md", &[], "crates/divvy-cli/tests/live/compare.rs"),
    ("docs/compare.md", &[], "xtask/tests/machine/inside/systemd.rs"),
];

/// Those that no test runs as they stand, and why.
const NOT_RUN: [(&str, &str, &str); 6] = [
    (
        "docs/admin.md",
        "sh systemd",
        "needs systemd; its units are looked at by crates/divvy-cli/tests/live/admin.rs",
    ),
    ("docs/install.md", "sh sources", "builds for release; xtask/src/install.rs tests what it does then"),
    ("docs/install.md", "sh systemd", SYSTEMD),
    (
        "docs/kernel.md",
        "sh build",
        "builds for release; xtask/tests/machine/main.rs builds the same for its tests, and copies it",
    ),
    ("docs/limits.md", "sh cgroup", CGROUP),
    (
        "docs/limits.md",
        "sh disk",
        "needs a disk; xtask/tests/machine/inside/disk.rs does it in the test machine",
    ),
];

/// Words with which a command begins.
const COMMANDS: [&str; 9] =
    ["divvy", "divvyd", "divvy-scx", "cargo", "sudo", "apt", "systemctl", "systemd-run", "pip"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The README and every page below docs, by its path in the repository. Pages of results are made by commands, not followed.
fn pages() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(root().join("docs")).expect("docs");
    let names = docs.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let mut paths: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    paths.push("README.md".to_owned());
    paths.sort();
    let text = |path: &String| std::fs::read_to_string(root().join(path)).expect("a page");
    paths.iter().map(|path| (path.clone(), text(path))).collect()
}

#[test]
fn every_command_is_run_or_it_is_said_why_not() {
    let mut found = BTreeSet::new();
    for (path, text) in pages() {
        for block in page::blocks(&text) {
            let language = block.kind.split(' ').next().unwrap_or_default();
            if ["sh", "console", "python"].contains(&language) {
                found.insert((path.clone(), block.kind.to_owned()));
                continue;
            }
            // What is marked as no command has none.
            let begins = |line: &str| COMMANDS.contains(&line.split(' ').next().unwrap_or_default());
            let odd = block.text.lines().find(|line| !["text", "c"].contains(&language) && begins(line));
            assert_eq!(
                odd, None,
                "{path}: mark the block of this command, as `sh` if it can be run anywhere"
            );
        }
    }
    let rows = RUN.iter().flat_map(|(page, marks, _)| marks.iter().map(|mark| (*page, *mark)));
    let rows: Vec<(&str, &str)> = rows.chain(NOT_RUN.iter().map(|(page, mark, _)| (*page, *mark))).collect();
    let listed: BTreeSet<(String, String)> =
        rows.iter().map(|(page, mark)| ((*page).to_owned(), (*mark).to_owned())).collect();
    assert_eq!(listed.len(), rows.len(), "no block is listed twice");
    assert_eq!(found, listed, "blocks on pages (left) and in the lists of this test (right)");
}

/// Whoever is said to run a page knows it, and what is pointed at is there.
#[test]
fn who_runs_a_page_names_it() {
    for (page, _, by) in RUN {
        let text = std::fs::read_to_string(root().join(by)).unwrap_or_else(|e| panic!("{by}: {e}"));
        let name = page.rsplit('/').next().expect("a name");
        assert!(text.contains(name), "{by} does not know {page}");
    }
    for (page, _, why) in NOT_RUN {
        for path in why.split([' ', ';']).filter(|word| word.contains('/')) {
            assert!(root().join(path).exists(), "{page}: {path} is not there");
        }
    }
}
