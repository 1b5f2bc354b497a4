//! Every command that a page shows is run by a test, or stands on a list with the reason why not; then it is read at least.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../crates/divvy-cli/tests/live/page.rs"]
mod page;

const PAGES: &str = "crates/divvy-cli/tests/live/pages.rs";
const INSTALLED: &str = "xtask/tests/dist.rs";
const CLUSTER: &str = "xtask/src/cluster/page.rs";
const CGROUP: &str =
    "needs cgroups with memory and io; xtask/tests/machine/inside/bounds.rs does it in the test machine";

/// A page, what its blocks of commands are marked as, and who runs them.
const RUN: [(&str, &[&str], &str); 29] = [
    ("README.md", &["sh"], PAGES),
    ("docs/admin.md", &["sh", "sh systemd"], "crates/divvy-cli/tests/live/admin.rs"),
    ("docs/admin.md", &["sh iocost", "sh cgroup"], "xtask/tests/machine/inside/disk/page.rs"),
    ("docs/backends.md", &["sh systemd"], "xtask/tests/machine/inside/systemd.rs"),
    ("docs/c.md", &["sh cc"], "crates/divvy-c/tests/c_program.rs"),
    ("docs/daemon.md", &["sh"], PAGES),
    ("docs/install.md", &["sh"], PAGES),
    ("docs/install.md", &["sh archive", "sh debian", "sh systemd"], INSTALLED),
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
    ("docs/usage.md", &["sh systemd"], INSTALLED),
    ("python/README.md", &["python"], "python/tests/test_docs.py"),
    ("docs/web.md", &["sh ctrl-c"], PAGES),
    ("docs/compare.md", &[], "crates/divvy-cli/tests/live/compare.rs"),
    ("docs/compare.md", &[], "xtask/tests/machine/inside/systemd.rs"),
];

/// Those that no test runs as they stand, and why.
const NOT_RUN: [(&str, &str, &str); 8] = [
    ("CONTRIBUTING.md", "sh", "for whoever changes divvy: minutes to hours, and CI runs scripts/test.sh"),
    (
        "contrib/slurm/README.md",
        "sh",
        "needs a site of Slurm; xtask/tests/cluster.rs has one and does it there",
    ),
    (
        "crates/divvy-cli/README.md",
        "sh",
        "needs a project to make; docs/tutorial.md has the same with what is there",
    ),
    (
        "crates/divvy-daemon/README.md",
        "sh",
        "a divvyd without an end; docs/daemon.md and docs/admin.md begin the same",
    ),
    ("docs/install.md", "sh sources", "builds for release; xtask/src/install.rs tests what it does then"),
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

/// Every page of the repository, by its path, but those of results, which are made by commands and not followed.
fn pages() -> Vec<(String, String)> {
    fn walk(dir: &str, paths: &mut Vec<String>) {
        for entry in std::fs::read_dir(root().join(dir)).expect("a directory") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            let is_ours =
                !name.starts_with('.') && !["target", "results", "__pycache__"].contains(&name.as_str());
            if is_ours && entry.file_type().expect("a type").is_dir() {
                walk(&path, paths);
            } else if name.ends_with(".md") {
                paths.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk("", &mut paths);
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

/// The words of a line without its comment, as a shell takes them apart: of quotes no more than the pages have.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.split(" #").next().unwrap_or_default().trim_end().chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// What no test runs is what programs would take, and names what is there.
#[test]
fn what_is_not_run_can_be_read() {
    let mut read = 0;
    for (page, text) in pages() {
        let blocks = page::blocks(&text);
        let not_run = blocks.iter().filter(|b| NOT_RUN.iter().any(|row| (row.0, row.1) == (&page, b.kind)));
        for line in not_run.flat_map(|block| block.text.lines()) {
            let words = words(line);
            let all: Vec<&str> = words.iter().map(String::as_str).collect();
            let own = match all.as_slice() {
                ["divvy", ..] => Some(divvy_cli::command()),
                ["divvyd", ..] => Some(divvy_daemon::command()),
                _ => None,
            };
            if let Some(own) = own {
                let taken = own.try_get_matches_from(&words);
                assert!(taken.is_ok(), "{page}: {line}: {}", taken.unwrap_err());
                read += 1;
            }
            if let ["cargo", "xtask", options @ ..] = all.as_slice() {
                // Whatever comes after `--` is another program's.
                let options = options.split(|word| *word == "--").next().unwrap_or_default();
                let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
                let help = xtask.args(options).arg("--help").output().expect("run xtask");
                assert!(help.status.success(), "{page}: {line}: {}", String::from_utf8_lossy(&help.stderr));
                read += 1;
            }
            let is_source =
                |word: &&str| ["scripts/", "crates/", "contrib/"].iter().any(|dir| word.starts_with(dir));
            for path in all.into_iter().filter(is_source).filter(|word| !word.contains("/target/")) {
                assert!(root().join(path).exists(), "{page}: {line}: {path} is not there");
                read += 1;
            }
        }
    }
    assert!(read >= 30, "{read} commands and files");
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
