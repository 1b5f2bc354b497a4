//! What users install: an archive of static programs for any Linux, a Debian package, the library for C, and the Python package.
//!
//! The archive's programs are linked statically with musl and need nothing of the machine. The package's are linked with
//! the machine's C library, so that they know the users of a directory service (LDAP, SSSD) too, which a static program
//! cannot ask.

mod archive;
mod deb;
mod dev;
mod musl;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::{Args as ClapArgs, ValueEnum};

use crate::{ci, install};

/// What is distributed.
pub(crate) const PROGRAMS: [&str; 2] = ["divvy", "divvyd"];
/// Bytes of a program at most: it is to be fetched and kept.
const PROGRAM_MAX: u64 = 15_000_000;

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DistArgs {
    /// Where to
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,

    /// Only one of them
    #[arg(long, value_enum)]
    only: Option<Kind>,

    /// Pack the programs of this directory instead of building them (for tests); needs --only
    #[arg(long, value_name = "DIR", requires = "only")]
    from: Option<PathBuf>,

    /// Pack programs however large they are, such as those of a debug build (for tests)
    #[arg(long, requires = "from")]
    any_size: bool,

    /// How hard the package is compressed, 0 to 9
    #[arg(long, value_name = "LEVEL", default_value_t = 6, value_parser = clap::value_parser!(u8).range(0..=9))]
    level: u8,

    /// The version; the workspace's if not given
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// An archive of static programs
    Static,
    /// A Debian package
    Deb,
    /// The library for C, as a Debian package
    Lib,
    /// The Python package, as a wheel
    Wheel,
}

/// Makes what was asked for, and says each file.
///
/// # Errors
/// What is missing on this machine, with the fix, or what failed.
pub(crate) fn run(args: &DistArgs) -> Result<()> {
    ensure!(
        !args.version.is_empty()
            && args.version.chars().all(|c| c.is_ascii_alphanumeric() || ".+~".contains(c)),
        "--version {:?}: give letters, digits, '.', '+' and '~'",
        args.version
    );
    std::fs::create_dir_all(&args.out).with_context(|| format!("create {}", args.out.display()))?;
    let out = args.out.canonicalize().with_context(|| format!("find {}", args.out.display()))?;
    let work = Work::new(&out)?;
    let wanted = |kind| args.only.is_none_or(|only| only == kind);
    let mut files = Vec::new();
    if wanted(Kind::Static) {
        let programs = programs(args, musl::build)?;
        files.push(archive::write(&programs, &args.version, &work.0.join("archive"), &out)?);
    }
    if wanted(Kind::Deb) {
        let programs = programs(args, release)?;
        files.push(deb::write(&programs, &args.version, args.level, &work.0.join("deb"), &out)?);
    }
    if wanted(Kind::Lib) {
        let built = args.from.clone().map_or_else(dev::build, Ok)?;
        files.push(dev::write(&built, &args.version, args.level, &work.0.join("dev"), &out)?);
    }
    if wanted(Kind::Wheel) {
        files.push(wheel::write(&args.version, &work.0.join("wheel"), &out)?);
    }
    for file in &files {
        let bytes = std::fs::metadata(file).with_context(|| format!("look at {}", file.display()))?.len();
        println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}

/// The directory of what is packed: the programs of `--from`, else those that are built.
fn programs(args: &DistArgs, build: fn() -> Result<PathBuf>) -> Result<PathBuf> {
    let dir = args.from.clone().map_or_else(build, Ok)?;
    if !args.any_size {
        check_sizes(&dir)?;
    }
    Ok(dir)
}

/// Programs for this machine.
fn release() -> Result<PathBuf> {
    let mut dir = PathBuf::new();
    for program in PROGRAMS {
        let built = install::built(program)?;
        dir = built.parent().context("a program is in a directory")?.to_owned();
    }
    Ok(dir)
}

/// # Errors
/// Where a program is larger than it may be, or not there.
fn check_sizes(programs: &Path) -> Result<()> {
    for program in PROGRAMS {
        let path = programs.join(program);
        ensure!(path.is_file(), "{}: no such program; build it, or leave --from out", path.display());
        let bytes = std::fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?.len();
        ensure!(
            bytes <= PROGRAM_MAX,
            "{}: {bytes} bytes, and {PROGRAM_MAX} are the most: strip it, or see what has grown (cargo bloat)",
            path.display()
        );
    }
    Ok(())
}

/// Runs a program of this machine to its end and gives what it printed.
///
/// # Errors
/// Where it is not there, with the package that has it, or fails, with what it said.
fn call(command: &mut Command, package: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().with_context(|| format!("run {program} (Debian: apt install {package})"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// When what is packed is from, in seconds since 1970: `SOURCE_DATE_EPOCH`, else the last commit, so that packing the same
/// twice gives the same bytes.
#[expect(clippy::disallowed_methods, reason = "reproducible-builds.org: the environment says the date")]
fn epoch() -> Result<String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        ensure!(epoch.parse::<u64>().is_ok(), "SOURCE_DATE_EPOCH={epoch}: give seconds since 1970");
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(ci::root());
    let said = call(&mut git, "git").context("no date to pack with; set SOURCE_DATE_EPOCH")?;
    Ok(said.trim().to_owned())
}

/// A directory to pack in, on the same file system, removed at the end.
struct Work(PathBuf);

impl Work {
    fn new(out: &Path) -> Result<Self> {
        let dir = out.join(format!(".work-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
