//! Programs in C that are compiled with `include/divvy.h`, linked with this build's library, and divide processes.
#![allow(clippy::disallowed_methods, reason = "these tests live in real time")]

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[path = "../../divvy-cli/tests/live/page.rs"]
mod page;

/// How far what is achieved may be from the target where the machine is busy with other things.
const MAX_FRACTION_ERROR: f64 = 0.08;

/// This build's library and `divvyd`, and a runtime directory of the test's own.
struct Bench {
    dir: TempDir,
    built: PathBuf,
}

/// With all of the workspace, whose features they have in common: what is built already is not built anew.
fn build_both() {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--lib", "--bin", "divvyd"]);
    let status = build.args((!cfg!(debug_assertions)).then_some("--release")).status().expect("cargo");
    assert!(status.success(), "the library and the divvyd that are tried are of this build");
}

impl Bench {
    fn new() -> Self {
        build_both();
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(profile);
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink(built.join("libdivvy.so"), dir.path().join("libdivvy.so.0"))
            .expect("a link");
        Self { dir, built }
    }

    /// Compiles a program; `how` links it.
    fn compile(&self, source: &str, how: &[&str]) -> PathBuf {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = self.dir.path().join("program");
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"])
            .arg(crate_dir.join("include"));
        cc.arg("-o").arg(&out).arg(crate_dir.join(source)).arg("-L").arg(&self.built).args(how);
        assert!(cc.status().expect("cc").success(), "{source} {how:?}");
        out
    }

    /// Does what the page has somebody type in the repository, with the source as their program.
    fn compile_as_shown(&self, command: &str, source: &str) -> PathBuf {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let here = tempfile::tempdir_in(self.dir.path()).expect("a directory").keep();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, here.join(name)).expect("a link");
        link(crate_dir.parent().expect("the crates"), "crates");
        std::fs::create_dir(here.join("target")).expect("a directory");
        link(&self.built, "target/release");
        link(&crate_dir.join(source), "program.c");
        let status = Command::new("sh").args(["-euc", command]).current_dir(&here).status().expect("sh");
        assert!(status.success(), "{command}");
        here.join("program")
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{}:{path}", self.built.display()))
            .env("LD_LIBRARY_PATH", self.dir.path())
            .env("DIVVY_RUNTIME_DIR", self.dir.path().join("run"))
            .env("DIVVY_SYSTEM_SOCKET", self.dir.path().join("none"))
            .env("DIVVY_CONFIG", self.dir.path().join("config.toml"))
            .env_remove("DIVVY_MODE")
            .stdin(Stdio::null());
        command
    }

    /// What a program prints that ends well.
    fn run(&self, program: &Path, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for Bench {
    /// The scheduler leaves by itself after its last client; only then its directory can go.
    fn drop(&mut self) {
        let socket = self.dir.path().join("run/api.sock");
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30)
            && std::os::unix::net::UnixStream::connect(&socket).is_ok()
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A process that is ended whatever happens.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").process_group(0).spawn().expect("sleep"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_call_does_what_the_header_says() {
    let bench = Bench::new();
    let sleeper = Sleeper::start();
    let program = bench.compile("tests/calls.c", &["-ldivvy"]);
    let told = bench.run(&program, &[&sleeper.0.id().to_string()]);
    let longest = "n".repeat(63);
    let expected = [
        ("no scheduler|1|2|", "no divvyd runs"),
        ("both|1|1|", "exclude each other"),
        ("no flag|1|1|", "flags 0x40"),
        ("open|0|0|", ""),
        ("null|1|1|", "the divvy is NULL"),
        ("no name|1|1|", "the name is NULL"),
        ("no utf-8|1|1|", "no UTF-8"),
        ("long|1|1|", "more than 63 bytes"),
        ("no pid|1|1|", "0 is no process"),
        ("no process|4|4|", "there is no process 4194304"),
        ("no share|1|1|", "a share is a whole number from 1 to 1000000"),
        ("selector|1|1|", "tribe"),
        ("unknown|4|4|", "nothing was added as 'a'"),
        ("empty|0|0|", ""),
        ("add|0|0|", ""),
        ("twice|1|1|", "is there already"),
        ("row|0|1|", &format!("{longest} share 2 limit 0 state asleep processes 1")),
        ("share|0|0|", ""),
        ("limit|0|0|", ""),
        ("no limit|1|1|", "-1 is no limit"),
        ("pause|0|0|", ""),
        ("paused|0|1|", &format!("{longest} share 5 limit 500000 state paused processes 1")),
        ("resume|0|0|", ""),
        ("unlimited|0|0|", ""),
        ("remove|0|0|", ""),
        ("gone|4|4|", "nothing was added"),
        ("group|0|0|", ""),
        ("again|0|1|", "again share 1 limit 0 state asleep processes 0"),
        ("version|0|0|", env!("CARGO_PKG_VERSION")),
    ];
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{told}");
    for (line, (head, words)) in lines.iter().zip(expected) {
        let rest = line.strip_prefix(head).unwrap_or_else(|| panic!("{head} {words}: {line}\n{told}"));
        assert!(rest.contains(words), "{head} {words}: {line}");
        assert!(!words.is_empty() || rest.is_empty(), "{line}");
    }
}

/// A program divides its own two processes, linked with the library that is shared and with the static one.
#[test]
fn a_program_divides_its_own_processes() {
    let bench = Bench::new();
    let allowed = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let list =
        allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list of CPUs");
    let cpu = list.trim().split([',', '-']).next().expect("a CPU");
    bench.compile("examples/divide.c", &["-ldivvy"]);
    let page = page::block(include_str!("../../../docs/c.md"), "sh cc");
    let commands: Vec<&str> = page.lines().collect();
    // The library is that of this build, of whatever profile.
    let ["cargo build --release -p divvy-c", shared, linked] = commands[..] else { panic!("{page}") };
    for command in [shared, linked] {
        let program = bench.compile_as_shown(command, "examples/divide.c");
        // One CPU, of which both want all.
        let mut divvyd = bench.command(bench.built.join("divvyd"));
        divvyd.args(["--user", "--background", "--linger", "10s", "--cpus", cpu]);
        assert!(divvyd.status().expect("divvyd").success());
        let told = bench.run(&program, &[]);
        let rows: Vec<&str> = told.lines().collect();
        for (row, (name, target)) in
            rows.iter().zip([("render: share 3, ", 0.75), ("index: share 1, ", 0.25)])
        {
            let rest = row.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {told}"));
            let parts: Vec<f64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!((parts[1] / 100.0 - target).abs() < 1e-3, "{name} is to get {target}: {told}");
            assert!((parts[0] / 100.0 - target).abs() < MAX_FRACTION_ERROR, "{name} got: {told}");
            assert!(parts[2] > 0.1, "{name} has run: {told}");
        }
        assert_eq!(rows.len(), 2, "{told}");
    }
}
