//! `divvy`, its manual pages, completions, units of systemd and pages for users, where they are looked for below a prefix.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;

use crate::{ci, man};

/// What is installed; `divvyd` must be where `divvy` is.
const PROGRAMS: [&str; 2] = ["divvy", "divvyd"];

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct InstallArgs {
    /// Below which directory
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    pub(crate) prefix: PathBuf,

    /// Put everything below this directory, as if it were / (for packages)
    #[arg(long, value_name = "DIR")]
    pub(crate) destdir: Option<PathBuf>,

    /// Install the programs from this directory; they are built for release if not given
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,

    /// Remove what would be installed
    #[arg(long)]
    pub(crate) uninstall: bool,
}

/// systemd's units of the system's divvyd.
const UNITS: [&str; 4] =
    ["divvyd.service", "divvyd.socket", "divvy-usage.service", "divvy-site-sync.service"];
/// What an administrator may put beside a unit.
const DROP_INS: [&str; 1] = ["kernel.conf"];
/// Where the units in the repository expect the programs.
const UNITS_PREFIX: &str = "/usr/local/bin/";
/// Where documentation is, and what is to be copied from there.
const DOC: &str = "share/doc/divvy";

/// One file: where it comes from, where it goes below the prefix, and its permissions.
struct Item {
    from: PathBuf,
    to: PathBuf,
    mode: u32,
}

/// Installs, or removes, and says each path.
///
/// # Errors
/// Names the file that could not be read or written; what was written before stays.
pub(crate) fn run(args: &InstallArgs) -> Result<()> {
    let paths = carry_out(args)?;
    let done = if args.uninstall { "removed " } else { "" };
    paths.iter().for_each(|path| println!("{done}{}", path.display()));
    Ok(())
}

/// Puts the programs of a directory, and what belongs to them, below `root` as if that were /.
///
/// # Errors
/// As [`run`].
pub(crate) fn stage(programs: &Path, prefix: &str, root: &Path) -> Result<()> {
    let args = InstallArgs {
        prefix: PathBuf::from(prefix),
        destdir: Some(root.to_owned()),
        from: Some(programs.to_owned()),
        uninstall: false,
    };
    carry_out(&args).map(drop)
}

/// The paths that were written, or removed.
fn carry_out(args: &InstallArgs) -> Result<Vec<PathBuf>> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    ensure!(args.prefix.is_absolute(), "--prefix {}: give a path that begins with /", args.prefix.display());
    let root = match &args.destdir {
        Some(dir) => dir.join(args.prefix.strip_prefix("/").unwrap_or(&args.prefix)),
        None => args.prefix.clone(),
    };
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let work = std::env::temp_dir().join(format!("divvy-install-{}-{count}", std::process::id()));
    let done = items(args, &work).and_then(|items| {
        let mut paths = Vec::new();
        for item in &items {
            let path = if args.uninstall { remove(item, &root)? } else { Some(put(item, &root)?) };
            paths.extend(path);
        }
        Ok(paths)
    });
    // Nothing but what was made above is in it.
    let _ = std::fs::remove_dir_all(&work);
    done
}

fn items(args: &InstallArgs, work: &Path) -> Result<Vec<Item>> {
    man::run(work)?;
    let mut items = Vec::new();
    for program in PROGRAMS {
        let to = Path::new("bin").join(program);
        if args.uninstall {
            items.push(Item { from: PathBuf::new(), to, mode: 0 });
            continue;
        }
        let from = match &args.from {
            Some(dir) => dir.join(program),
            None => built(program)?,
        };
        ensure!(from.is_file(), "{}: no such program; build it, or leave --from out", from.display());
        items.push(Item { from, to, mode: 0o755 });
    }
    let mut pages: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(work).with_context(|| format!("read {}", work.display()))? {
        let path = entry.with_context(|| format!("read {}", work.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "1") {
            pages.push(path);
        }
    }
    pages.sort();
    for from in pages {
        let name = from.file_name().unwrap_or_default();
        items.push(Item { to: Path::new("share/man/man1").join(name), from, mode: 0o644 });
    }
    let examples = Path::new(DOC).join("examples");
    let units = UNITS.map(|unit| (unit, PathBuf::from("lib/systemd/system")));
    for (unit, dir) in units.into_iter().chain(DROP_INS.map(|drop_in| (drop_in, examples.clone()))) {
        let from = work.join(unit);
        let here = ci::root().join("dist/systemd").join(unit);
        let text = std::fs::read_to_string(&here).with_context(|| format!("read {}", here.display()))?;
        let bin = format!("{}/", args.prefix.join("bin").display());
        std::fs::write(&from, text.replace(UNITS_PREFIX, &bin))
            .with_context(|| format!("write {}", from.display()))?;
        items.push(Item { from, to: dir.join(unit), mode: 0o644 });
    }
    for (example, mode) in [("divvyd.toml", 0o644), ("far-over", 0o755)] {
        items.push(Item { from: ci::root().join("dist").join(example), to: examples.join(example), mode });
    }
    items.extend(pages_for_users()?);
    // What a distribution installs is looked for elsewhere than what its user does.
    let zsh = if args.prefix == Path::new("/usr") { "vendor-completions" } else { "site-functions" };
    for program in PROGRAMS {
        for (file, to) in [
            (format!("{program}.bash"), format!("share/bash-completion/completions/{program}")),
            (format!("_{program}"), format!("share/zsh/{zsh}/_{program}")),
            (format!("{program}.fish"), format!("share/fish/vendor_completions.d/{program}.fish")),
        ] {
            items.push(Item { from: work.join("completions").join(file), to: to.into(), mode: 0o644 });
        }
    }
    Ok(items)
}

/// The pages and schemas that help texts and pages name as `docs/NAME`, under the same names.
fn pages_for_users() -> Result<Vec<Item>> {
    let docs = ci::root().join("docs");
    let mut items = Vec::new();
    for entry in std::fs::read_dir(&docs).with_context(|| format!("read {}", docs.display()))? {
        let from = entry.with_context(|| format!("read {}", docs.display()))?.path();
        if from.extension().is_some_and(|extension| extension == "md" || extension == "json") {
            let name = from.file_name().unwrap_or_default();
            items.push(Item { to: Path::new(DOC).join("docs").join(name), from, mode: 0o644 });
        }
    }
    items.sort_by(|a, b| a.to.cmp(&b.to));
    Ok(items)
}

/// Where cargo builds.
#[expect(clippy::disallowed_methods, reason = "cargo is told by the environment where to build")]
pub(crate) fn target_dir() -> PathBuf {
    let root = ci::root();
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Builds a program for release.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    let root = ci::root();
    let status = ci::cargo(&root).args(["build", "--release", "--bin", program]).status();
    let status = status.context("start cargo")?;
    ensure!(status.success(), "cargo build --release --bin {program}: {status}");
    Ok(target_dir().join("release").join(program))
}

/// Writes beside the place first: a program that runs there goes on, and a reader never sees half a file.
fn put(item: &Item, root: &Path) -> Result<PathBuf> {
    let to = root.join(&item.to);
    let dir = to.parent().unwrap_or(root);
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = dir.join(name);
    let placed = std::fs::copy(&item.from, &new)
        .with_context(|| format!("copy {} to {}", item.from.display(), new.display()))
        .and_then(|_| {
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(item.mode))
                .with_context(|| format!("set the permissions of {}", new.display()))
        })
        .and_then(|()| std::fs::rename(&new, &to).with_context(|| format!("write {}", to.display())));
    if placed.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    placed.map(|()| to)
}

/// The path, if there was anything to remove.
fn remove(item: &Item, root: &Path) -> Result<Option<PathBuf>> {
    let to = root.join(&item.to);
    match std::fs::remove_file(&to) {
        Ok(()) => Ok(Some(to)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("remove {}", to.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("divvy-test-install-{name}-{}", std::process::id()));
            std::fs::create_dir_all(dir.join("built")).unwrap();
            Self(dir)
        }

        /// Programs that say their names.
        fn build(&self) {
            for program in PROGRAMS {
                let text = format!("#!/bin/sh\necho {program}\n");
                std::fs::write(self.0.join("built").join(program), text).unwrap();
            }
        }

        fn args(&self) -> InstallArgs {
            InstallArgs {
                prefix: "/opt/divvy".into(),
                destdir: Some(self.0.join("root")),
                from: Some(self.0.join("built")),
                uninstall: false,
            }
        }

        fn files(&self) -> Vec<String> {
            fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
                for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                    if entry.path().is_dir() { walk(&entry.path(), found) } else { found.push(entry.path()) }
                }
            }
            let (root, mut found) = (self.0.join("root/opt/divvy"), Vec::new());
            walk(&root, &mut found);
            let mut names: Vec<String> =
                found.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn everything_goes_where_programs_look_and_away_again() {
        let scratch = Scratch::new("all");
        scratch.build();
        run(&scratch.args()).unwrap();
        let files = scratch.files();
        for file in [
            "bin/divvy",
            "bin/divvyd",
            "share/man/man1/divvy.1",
            "share/man/man1/divvy-share.1",
            "share/man/man1/divvy-top.1",
            "share/man/man1/divvyd.1",
            "share/bash-completion/completions/divvy",
            "share/zsh/site-functions/_divvy",
            "share/fish/vendor_completions.d/divvy.fish",
            "lib/systemd/system/divvyd.service",
            "lib/systemd/system/divvyd.socket",
            "lib/systemd/system/divvy-usage.service",
            "lib/systemd/system/divvy-site-sync.service",
            "share/doc/divvy/examples/divvyd.toml",
            "share/doc/divvy/docs/limits.md",
            "share/doc/divvy/docs/report.schema.json",
            "share/bash-completion/completions/divvyd",
            "share/zsh/site-functions/_divvyd",
            "share/fish/vendor_completions.d/divvyd.fish",
        ] {
            assert!(files.iter().any(|found| found == file), "{file}: {files:#?}");
        }
        assert!(!files.iter().any(|file| file.contains(".new-")), "a half-written file is left: {files:#?}");
        let root = scratch.0.join("root/opt/divvy");
        for program in PROGRAMS {
            let said = Command::new(root.join("bin").join(program)).output().unwrap();
            assert_eq!(said.stdout, format!("{program}\n").as_bytes());
        }
        for (file, options) in [
            ("lib/systemd/system/divvyd.service", ""),
            ("share/doc/divvy/examples/kernel.conf", " --backend kernel"),
        ] {
            let unit = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(
                unit.contains(&format!("\nExecStart=/opt/divvy/bin/divvyd --system{options}\n")),
                "{unit}"
            );
        }
        let page = std::fs::metadata(root.join("share/man/man1/divvy.1")).unwrap();
        assert_eq!(page.permissions().mode() & 0o777, 0o644);
        run(&scratch.args()).unwrap(); // Over itself.
        assert_eq!(scratch.files(), files);
        run(&InstallArgs { uninstall: true, ..scratch.args() }).unwrap();
        assert_eq!(scratch.files(), Vec::<String>::new());
        run(&InstallArgs { uninstall: true, ..scratch.args() }).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_named_and_nothing_is_installed() {
        let scratch = Scratch::new("none");
        let error = format!("{:#}", run(&scratch.args()).unwrap_err());
        assert!(error.contains("built/divvy: no such program"), "{error}");
        assert_eq!(scratch.files(), Vec::<String>::new());
        let relative = InstallArgs { prefix: "opt".into(), ..scratch.args() };
        assert!(run(&relative).unwrap_err().to_string().contains("begins with /"));
    }

    /// bash reads the script, and asks the program that was installed with it what the words may go on with.
    #[test]
    fn bash_completes() {
        let scratch = Scratch::new("bash");
        scratch.build();
        let asked = "#!/bin/sh\n[ \"$DIVVY_COMPLETE\" = bash ] && echo \"asked: $*\"\n";
        std::fs::write(scratch.0.join("built/divvy"), asked).unwrap();
        run(&scratch.args()).unwrap();
        let script = scratch.0.join("root/opt/divvy/share/bash-completion/completions/divvy");
        let line = "PATH=$2:$PATH; source \"$1\"; COMP_WORDS=(divvy comp); COMP_CWORD=1; \
                    f=$(complete -p divvy | sed 's/.*-F \\([^ ]*\\).*/\\1/'); $f divvy comp divvy; \
                    printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["-c", line, "bash"]).arg(&script).arg(scratch.0.join("root/opt/divvy/bin"));
        let Ok(output) = bash.output() else {
            eprintln!("SKIPPED bash_completes: there is no bash");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "asked: -- divvy comp\n", "{said}");
    }
}
