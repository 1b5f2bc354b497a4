//! Policies that are not of the library: one in a crate of its own, outside of the workspace, and two made as
//! `docs/new-policy.md` says, in one file and one line each. Each is compiled, and schedules live processes.
//!
//! What is compiled stays below the target directory, so that a second run is quick; crates that others have published are
//! taken from the workspace's own build.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// How far a fraction of all CPU time may be from what is due where the machine is busy with other things.
const MAX_FRACTION_ERROR: f64 = 0.05;
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// An empty directory below that of the build's temporary files, the same at every run.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Writes a file unless it says just that: what has not changed is not compiled again.
fn write(path: &Path, text: &[u8]) {
    if std::fs::read(path).ok().as_deref() != Some(text) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Builds the program `name` of the workspace or crate in `directory` with what the workspace's own build has left.
fn build(directory: &Path, name: &str) -> PathBuf {
    let builds = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let own = directory.join("target");
    // The lock file is the workspace's, less what is not needed here.
    let out = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--bin", name])
        .env("CARGO_TARGET_DIR", &own)
        .env("CARGO_BUILD_BUILD_DIR", builds)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    own.join("debug").join(name)
}

/// What a program prints that ends well.
fn output(program: &Path, args: &[&str]) -> String {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    let out = command.args(args).env("XDG_RUNTIME_DIR", state.path()).output().unwrap();
    let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(out.status.success(), "{args:?}: {stderr}");
    stdout
}

fn json(program: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&output(program, args)).unwrap()
}

/// Checks what two clients with the shares 1 and 3 received.
fn check_fractions(fractions: [f64; 2], due: [f64; 2]) {
    let near = fractions.iter().zip(due).all(|(fraction, due)| (fraction - due).abs() <= MAX_FRACTION_ERROR);
    assert!(near, "received {fractions:?}, due {due:?}");
}

#[test]
fn a_gate_outside_of_the_workspace_divides_live_processes() {
    let own = directory("outside-crate");
    let mut manifest = String::from(
        "[package]\nname = \"own-gate\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [profile.dev]\ndebug = \"line-tables-only\"\n\n[dependencies]\n",
    );
    for name in ["divvy-policy", "divvy-engine", "divvy-linux"] {
        let path = repository().join("crates").join(name);
        manifest += &format!("{name} = {{ path = {path:?} }}\n");
    }
    write(&own.join("Cargo.toml"), manifest.as_bytes());
    std::fs::copy(repository().join("Cargo.lock"), own.join("Cargo.lock")).unwrap();
    let example = repository().join("crates/divvy-linux/examples/own_gate.rs");
    write(&own.join("src/main.rs"), &std::fs::read(example).unwrap());
    let said = output(&build(&own, "own-gate"), &[]);
    let fractions: Vec<f64> =
        said.lines().map(|line| line.split_whitespace().nth(2).unwrap().parse().unwrap()).collect();
    check_fractions(fractions.try_into().unwrap(), [0.25, 0.75]);
}

/// A policy that the library has as an example, in the place of the copy that a reader of `docs/new-policy.md` makes of it.
struct Copy {
    folder: &'static str,
    example: &'static str,
    /// What is called otherwise in the copy, `src/FOLDER/mine.rs`.
    names: &'static [(&'static str, &'static str)],
    /// What is written into `src/FOLDER/mod.rs`, and in what place.
    lines: &'static [(&'static str, &'static str)],
}

const COPIES: [Copy; 2] = [
    Copy {
        folder: "dispatch",
        example: "lifo.rs",
        names: &[("Lifo", "Mine"), ("\"lifo\"", "\"my-stack\"")],
        lines: &[("pub mod las;\n", "pub mod mine;\n"), ("    las::Las,\n", "    mine::Mine,\n")],
    },
    Copy {
        folder: "gate",
        example: "turns.rs",
        names: &[("Turns", "Mine"), ("TURNS", "MINE"), ("\"turns\"", "\"my-turns\"")],
        lines: &[("mod kernel;\n", "mod mine;\n"), ("GATES: &[&GateEntry] = &[", "&mine::MINE, ")],
    },
];

/// Where the copy has its crates. Cargo tells packages apart by their place in their workspace: in the same one they would take
/// the place of the repository's among what was built.
const COPY: &str = "copies";

/// The workspace with [`COPIES`] in it.
fn workspace_with_two_more() -> PathBuf {
    let (from, own) = (repository(), directory("outside-workspace"));
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("\"xtask\"", "").replace("\"crates/", &format!("\"{COPY}/"));
    write(&own.join("Cargo.toml"), manifest.as_bytes());
    // Whatever is not added to is the repository's own.
    let link = |path: PathBuf, to: PathBuf| {
        let _ = std::fs::remove_file(&to);
        symlink(path, to).unwrap();
    };
    let links = |path: PathBuf, to: &Path, but: &str| {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap).filter(|e| e.file_name() != but) {
            link(entry.path(), to.join(entry.file_name()));
        }
    };
    let (crates, copies) = (from.join("crates"), own.join(COPY));
    let (policy, own_policy) = (crates.join("divvy-policy"), copies.join("divvy-policy"));
    link(from.join("docs"), own.join("docs"));
    links(crates, &copies, "divvy-policy");
    links(policy.clone(), &own_policy, "src");
    std::fs::copy(from.join("Cargo.lock"), own.join("Cargo.lock")).unwrap();
    let (sources, own_sources) = (policy.join("src"), own_policy.join("src"));
    copy_sources(&sources, &own_sources, &|path, text| {
        let copy = COPIES.iter().find(|copy| path.ends_with(Path::new(copy.folder).join("mod.rs")));
        copy.map_or(text.clone(), |copy| {
            copy.lines.iter().fold(text, |text, (after, line)| {
                assert_eq!(text.matches(after).count(), 1, "{after:?} stands once in {}", path.display());
                text.replace(after, &format!("{after}{line}"))
            })
        })
    });
    for copy in COPIES {
        let text = std::fs::read_to_string(sources.join(copy.folder).join(copy.example)).unwrap();
        let text = copy.names.iter().fold(text, |text, (old, new)| text.replace(old, new));
        write(&own_sources.join(copy.folder).join("mine.rs"), text.as_bytes());
    }
    own
}

/// Makes `to` a copy of `from`, of each file what `change` makes of it.
fn copy_sources(from: &Path, to: &Path, change: &dyn Fn(&Path, String) -> String) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match path.is_dir() {
            true => copy_sources(&path, &to, change),
            false => {
                let text = std::fs::read_to_string(&path).unwrap();
                write(&to, change(&path, text).as_bytes());
            }
        }
    }
}

/// What each of the two clients of a report received, as a fraction of both.
fn fractions(clients: &Value) -> [f64; 2] {
    let service = [0, 1].map(|i| clients[i]["service_ns"].as_f64().unwrap());
    service.map(|own| own / (service[0] + service[1]))
}

#[test]
fn one_file_and_one_line_add_a_policy_to_every_command() {
    let own = workspace_with_two_more();
    let divvy = build(&own, "divvy");
    let listed = output(&divvy, &["policies"]);
    let scenario = own.join("gate.toml");
    write(&scenario, b"gate = \"exact\"\nquantum = \"10ms\"\nshares = [1, 3]\nrun.until = \"2s\"\n");
    let scenario = scenario.to_str().unwrap();
    let above = output(&divvy, &["compare", scenario, "--policies", "exact,my-turns,my-stack", "--csv"]);
    let alone = output(&divvy, &["compare", "--shares", "1,3", "--policies", "my-stack,vtrr", "--csv"]);
    assert!(alone.contains("my-stack,jain,0.5,") && alone.contains("vtrr,jain,1,"), "{alone}");
    let task = "ulimit -t 60; while :; do :; done"; // It ends, whatever becomes of the test.
    let (one, three) = (&*format!("1:{task}"), &*format!("3:{task}"));
    // The last to come starves the first; in turns, shares have no effect.
    for (name, option, due) in [("my-stack", "--policy", [0.0, 1.0]), ("my-turns", "--gate", [0.5, 0.5])] {
        assert!(listed.lines().any(|line| line.trim_start().starts_with(name)), "{listed}");
        assert!(above.contains(&format!("\n{name},utilization,")), "{above}");
        let sim = ["sim", "--shares", "1,3", "--until", "2s", option, name, "--json"];
        check_fractions(fractions(&json(&divvy, &sim)["per_client"]), due);
        let share = ["share", "--for", "2s", "--cpus", "0", "--policy", name, "--json", one, three];
        check_fractions(fractions(&json(&divvy, &share)["clients"]), due);
    }
}
