//! The Debian package, as a machine's administrator meets it: installed, upgraded, removed and purged in a clean Debian
//! root that mmdebstrap makes, in namespaces of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod common;
#[path = "../../crates/divvy-cli/tests/live/page.rs"]
mod page;

use common::{lacks, skip};

const INSTALL: &str = include_str!("../../docs/install.md");
const USAGE: &str = include_str!("../../docs/usage.md");
const TUTORIAL: &str = include_str!("../../docs/tutorial.md");
/// What is done in the root. Each step says itself.
const STEPS: &str = include_str!("dist/steps.sh");
/// Where apt and dpkg keep books on what they did: these grow, and are not the package's.
const BOOKS: [&str; 5] = ["var/log/apt", "var/log/dpkg.log", "var/lib/apt", "var/cache/apt", "var/lib/dpkg"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// The programs of this build, without the tables for debuggers.
fn programs(dir: &Path) {
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--workspace", "--bin", "divvy", "--bin", "divvyd"])
        .args((!cfg!(debug_assertions)).then_some("--release"));
    assert!(build.status().expect("cargo").success(), "the divvy that is packed is of this build");
    std::fs::create_dir_all(dir).expect("a directory");
    let built = Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("a directory");
    for program in ["divvy", "divvyd"] {
        done(Command::new("strip").arg("-o").arg(dir.join(program)).arg(built.join(program)));
    }
}

fn package(version: &str, programs: &Path, out: &Path) {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["dist", "--only", "deb", "--level", "0", "--version", version]);
    xtask.args(cfg!(debug_assertions).then_some("--any-size"));
    done(xtask.arg("--from").arg(programs).arg("--out").arg(out));
}

/// An archive of a clean root of this machine's release, made once and kept: it is fetched by apt. `None` where this is no
/// Debian: its programs would need another C library.
///
/// # Errors
/// Why none could be made.
#[expect(clippy::disallowed_methods, reason = "where caches are is said by the environment")]
fn clean_root() -> Result<Option<PathBuf>, String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |key: &str| release.lines().find_map(|line| line.strip_prefix(key));
    let (Some("debian"), Some(suite)) = (field("ID="), field("VERSION_CODENAME=")) else { return Ok(None) };
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    let cache = cache.ok_or("no directory for caches")?.join("divvy/dist");
    std::fs::create_dir_all(&cache).map_err(|e| format!("create {}: {e}", cache.display()))?;
    let root = cache.join(format!("{suite}.tar"));
    if !root.is_file() {
        let new = cache.join(format!("{suite}-{}.tar", std::process::id()));
        let mut mmdebstrap = Command::new("mmdebstrap");
        mmdebstrap.args(["--quiet", "--variant=apt", "--mode=root", suite]).arg(&new);
        let made = mmdebstrap.output().map_err(|e| format!("mmdebstrap: {e}"))?;
        if !made.status.success() {
            let _ = std::fs::remove_file(&new);
            return Err(format!("mmdebstrap: {}", text(&made.stderr).trim()));
        }
        std::fs::rename(&new, &root).map_err(|e| format!("write {}: {e}", root.display()))?;
    }
    Ok(Some(root))
}

/// Every path of `root`, but for the books of apt and dpkg.
fn paths(root: &Path) -> BTreeSet<PathBuf> {
    fn walk(dir: &Path, root: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = entry.path();
            let below = path.strip_prefix(root).expect("below the root").to_owned();
            if BOOKS.iter().any(|book| below.starts_with(book)) {
                continue;
            }
            if entry.file_type().expect("a type").is_dir() {
                walk(&path, root, found);
            }
            found.insert(below);
        }
    }
    let mut found = BTreeSet::new();
    walk(root, root, &mut found);
    found
}

/// The first command of the tutorial that ends by itself, on a CPU that we may use, and what is shown below it.
fn of_the_tutorial() -> (String, &'static str) {
    let blocks = page::blocks(TUTORIAL);
    let first = blocks.iter().position(|block| block.kind == "sh" && block.text.contains("--for"));
    let first = first.expect("a command");
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("CPUs");
    let cpu = cpus.trim().split([',', '-']).next().expect("a CPU");
    let shown = blocks[first + 1];
    assert_eq!(shown.kind, "text", "what it prints is below it");
    (blocks[first].text.replace("--cpus 0", &format!("--cpus {cpu}")), shown.text)
}

#[test]
fn a_package_comes_stays_and_goes_without_a_trace() {
    const TEST: &str = "dist::a_package_comes_stays_and_goes_without_a_trace";
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "not root: packages are root's to install");
    }
    let archive = match clean_root() {
        Ok(Some(archive)) => archive,
        Ok(None) => return skip(TEST, "this machine is no Debian"),
        Err(why) => return lacks(TEST, "clean root", &why),
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (built, root) = (dir.path().join("built"), dir.path().join("root"));
    programs(&built);
    std::fs::create_dir(&root).expect("a directory");
    done(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&root));
    let before = paths(&root);
    assert!(before.contains(Path::new("usr/bin/apt-get")), "a root with apt");

    let packages = dir.path().join("packages");
    for version in ["0.1.0~one", "0.1.0~two"] {
        package(version, &built, &packages);
    }
    std::fs::write(packages.join("steps.sh"), STEPS).expect("write the steps");
    std::fs::write(packages.join("install.sh"), page::block(INSTALL, "sh debian")).expect("write");
    for (name, page) in [("enable.sh", INSTALL), ("usage.sh", USAGE)] {
        std::fs::write(packages.join(name), page::block(page, "sh systemd")).expect("write");
    }
    let (command, shown) = of_the_tutorial();
    std::fs::write(packages.join("tutorial.sh"), command).expect("write");
    // What is mounted here is seen by nobody else, and what is started ends with it.
    let within = "mount -t proc proc \"$1/proc\" && mount --rbind /dev \"$1/dev\" && mount -t tmpfs none \"$1/tmp\" && \
                  mount --bind \"$2\" \"$1/mnt\" && exec chroot \"$1\" /bin/sh -eu /mnt/steps.sh";
    let mut machine = Command::new("unshare");
    machine.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", within, "sh"]);
    machine.arg(&root).arg(&packages).env_clear();
    machine.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
    let output = done(machine.stdin(std::process::Stdio::null()));
    let said = text(&output.stdout);
    eprintln!("{said}");
    assert!(said.ends_with("== the end\n"), "{said}\n{}", text(&output.stderr));
    let printed = said.split("== tutorial\n").nth(1).and_then(|rest| rest.split("== ").next());
    page::check(shown, printed.expect("what the tutorial's command printed")).unwrap();

    let after = paths(&root);
    let left: Vec<&PathBuf> = after.difference(&before).collect();
    let gone: Vec<&PathBuf> = before.difference(&after).collect();
    assert!(left.is_empty() && gone.is_empty(), "left: {left:#?}, gone: {gone:#?}");
    for entry in std::fs::read_dir(root.join("var/lib/dpkg/info")).expect("dpkg's books") {
        let name = entry.expect("an entry").file_name();
        assert!(!name.to_string_lossy().starts_with("divvy"), "dpkg remembers {}", name.display());
    }
    let status = std::fs::read_to_string(root.join("var/lib/dpkg/status")).expect("dpkg's status");
    assert!(!status.contains("Package: divvy\n"), "dpkg remembers the package");
}

/// Everything that the archive is to have, but for a build with musl, which takes minutes.
#[test]
fn an_archive_is_unpacked_over_a_prefix() {
    let dir = tempfile::tempdir().expect("a directory");
    let built = dir.path().join("built");
    std::fs::create_dir(&built).expect("a directory");
    for program in ["divvy", "divvyd"] {
        std::fs::write(built.join(program), format!("#!/bin/sh\necho {program}\n")).expect("write");
    }
    let pack = |out: &str| {
        let out = dir.path().join(out);
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["dist", "--only", "static", "--version", "1.2.3"]).env("SOURCE_DATE_EPOCH", "1000000000");
        done(xtask.arg("--from").arg(&built).arg("--out").arg(&out));
        let files: Vec<PathBuf> = std::fs::read_dir(&out)
            .expect("what was made")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert_eq!(files.len(), 1, "the archive, and nothing half-made: {files:?}");
        files[0].clone()
    };
    let (one, two) = (pack("one"), pack("two"));
    assert_eq!(std::fs::read(&one).expect("read"), std::fs::read(&two).expect("read"), "equal bytes");
    let name = format!("divvy-1.2.3-{}-linux.tar.gz", std::env::consts::ARCH);
    assert_eq!(one.file_name().expect("a name"), name.as_str());
    // As the page has it, with another prefix, and this version and machine.
    let prefix = dir.path().join("prefix");
    std::fs::create_dir(&prefix).expect("a directory");
    let commands = page::blocks(INSTALL).into_iter().filter(|block| block.kind == "sh archive");
    let at = prefix.display().to_string();
    let commands: Vec<String> = commands
        .map(|block| block.text.replace("divvy-0.1.0-x86_64-linux.tar.gz", &one.display().to_string()))
        .map(|text| text.replace("/usr/local", &at).replace(" /var/", &format!(" {at}/var/")))
        .map(|text| text.replace(" /etc/", &format!(" {at}/etc/")))
        .collect();
    // What root is to do here, it does below this directory: a path that none of these words is, is the host's.
    let own = dir.path().display().to_string();
    for word in
        commands.iter().flat_map(|text| text.split(|c: char| c.is_whitespace() || "'\"=:;,(){}".contains(c)))
    {
        // Patterns have slashes too, with no name after them.
        let is_path =
            word.strip_prefix('/').is_some_and(|rest| rest.starts_with(|c: char| c.is_alphanumeric()));
        assert!(!is_path || word.starts_with(&own), "{word} is none of ours: {commands:#?}");
    }
    let [unpack, remove] = commands.as_slice() else { panic!("two blocks: {commands:#?}") };
    done(Command::new("sh").args(["-euc", unpack]));
    assert_eq!(text(&done(&mut Command::new(prefix.join("bin/divvyd"))).stdout), "divvyd\n");
    for file in ["share/man/man1/divvy.1", "lib/systemd/system/divvyd.service", "share/doc/divvy/LICENSE-MIT"]
    {
        assert!(prefix.join(file).is_file(), "{file}");
    }
    check_pages(&prefix.join("share/doc/divvy"));
    std::fs::create_dir_all(prefix.join("etc/divvy")).expect("a directory");
    done(Command::new("sh").args(["-euc", remove]));
    let left = done(
        Command::new("find")
            .arg(&prefix)
            .args(["-not", "-type", "d", "-o", "-name", "divvy", "-path", "*/etc/*"]),
    );
    assert_eq!(text(&left.stdout), "", "nothing but directories is left");
}

#[test]
fn what_cannot_be_packed_is_refused_with_the_cause() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |args: &[&str], why: &str| {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = xtask.arg("dist").args(args).arg("--out").arg(dir.path()).output().expect("run xtask");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{args:?}: {said}");
    };
    refused(&["--only", "deb", "--from", "/no/such"], "/no/such/divvy: no such program");
    refused(&["--from", "/bin"], "--only");
    refused(&["--only", "deb", "--any-size"], "--from");
    refused(&["--only", "static", "--from", "/bin", "--version", "1 2"], "--version \"1 2\": give letters");
    for (program, bytes) in [("divvy", 1_000), ("divvyd", 15_000_001)] {
        let file = std::fs::File::create(dir.path().join(program)).expect("a file");
        file.set_len(bytes).expect("a length");
    }
    let from = dir.path().to_str().expect("a path");
    for kind in ["static", "deb"] {
        refused(
            &["--only", kind, "--from", from],
            "divvyd: 15000001 bytes, and 15000000 are the most: strip it",
        );
    }
}

/// The package of the library, unpacked: a program is compiled with what pkg-config would say, and runs with the shared one.
#[test]
fn the_library_is_packed_as_programs_look_for_it() {
    const TEST: &str = "dist::the_library_is_packed_as_programs_look_for_it";
    if let Err(e) = Command::new("dpkg-deb").arg("--version").output() {
        return lacks(TEST, "dpkg-deb", &e.to_string());
    }
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--quiet", "--workspace", "--lib"])
        .args((!cfg!(debug_assertions)).then_some("--release"));
    assert!(build.status().expect("cargo").success(), "the library that is packed is of this build");
    let dir = tempfile::tempdir().expect("a directory");
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["dist", "--only", "lib", "--level", "0", "--version", "1.2.3", "--from"]);
    xtask
        .arg(Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("a directory"))
        .arg("--out")
        .arg(dir.path());
    let packed = text(&done(&mut xtask).stdout).split(" (").next().expect("a path").to_owned();
    let root = dir.path().join("root");
    done(Command::new("dpkg-deb").arg("-x").arg(&packed).arg(&root));
    let field = |name: &str| text(&done(Command::new("dpkg-deb").args(["-f", &packed, name])).stdout);
    assert_eq!((field("Package").trim(), field("Version").trim()), ("libdivvy-dev", "1.2.3"));
    assert!(field("Depends").contains("libc6"), "{}", field("Depends"));
    let triplet = text(&done(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH")).stdout);
    let lib = root.join("usr/lib").join(triplet.trim());
    let links =
        ["libdivvy.so", "libdivvy.so.0"].map(|name| std::fs::read_link(lib.join(name)).expect("a link"));
    assert_eq!(links, [Path::new("libdivvy.so.1.2.3"), Path::new("libdivvy.so.1.2.3")]);
    let pc = std::fs::read_to_string(lib.join("pkgconfig/divvy.pc")).expect("divvy.pc");
    let line = |name: &str| pc.lines().find_map(|line| line.strip_prefix(name)).expect(name).to_owned();
    let words = |text: String| {
        let text = text
            .replace("${includedir}", "/usr/include")
            .replace("${libdir}", &format!("/usr/lib/{}", triplet.trim()));
        let below = text.replace("/usr/", &format!("{}/usr/", root.display()));
        below.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let source = dir.path().join("version.c");
    let program =
        "#include <divvy.h>\n#include <stdio.h>\nint main(void) { return puts(divvy_version()) < 0; }\n";
    std::fs::write(&source, program).expect("write");
    for (out, libs) in
        [("shared", words(line("Libs: "))), ("static", vec![lib.join("libdivvy.a").display().to_string()])]
    {
        let out = dir.path().join(out);
        let private = if libs.len() == 1 { words(line("Libs.private: ")) } else { Vec::new() };
        done(
            Command::new("cc")
                .args(words(line("Cflags: ")))
                .arg("-o")
                .arg(&out)
                .arg(&source)
                .args(libs)
                .args(private),
        );
        let said = done(Command::new(&out).env("LD_LIBRARY_PATH", &lib));
        assert_eq!(text(&said.stdout).trim(), env!("CARGO_PKG_VERSION"));
    }
}

/// As a user installs what was built: everything is where it is looked for, works from there, and goes again.
#[test]
fn an_installation_works_below_its_prefix_and_goes_without_a_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    let (built, prefix) = (dir.path().join("built"), dir.path().join("prefix"));
    programs(&built);
    let install = |more: &[&str]| {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        text(&done(xtask.arg("install").arg("--prefix").arg(&prefix).args(more)).stdout)
    };
    let files = || {
        let all = if prefix.exists() { paths(&prefix) } else { BTreeSet::new() };
        all.into_iter().filter(|path| prefix.join(path).is_file()).collect::<Vec<_>>()
    };
    let said = install(&["--from", built.to_str().expect("a path")]);
    let mut said: Vec<&Path> = said.lines().map(Path::new).collect();
    said.sort();
    let there: Vec<PathBuf> = files().iter().map(|path| prefix.join(path)).collect();
    assert_eq!(said, there, "it says what it has written");
    for file in [
        "share/man/man1/divvy.1",
        "share/man/man1/divvy-share.1",
        "share/man/man1/divvyd.1",
        "share/bash-completion/completions/divvy",
        "share/zsh/site-functions/_divvy",
        "share/fish/vendor_completions.d/divvyd.fish",
        "lib/systemd/system/divvyd.service",
        "lib/systemd/system/divvyd.socket",
        "lib/systemd/system/divvy-usage.service",
        "lib/systemd/system/divvy-site-sync.service",
        "share/doc/divvy/examples/divvyd.toml",
        "share/doc/divvy/examples/far-over",
        "share/doc/divvy/examples/kernel.conf",
    ] {
        let path = prefix.join(file);
        assert!(std::fs::metadata(&path).is_ok_and(|of| of.len() > 0), "{}", path.display());
    }
    check_pages(&prefix.join("share/doc/divvy"));
    they_run(&prefix.join("bin"));
    install(&["--uninstall"]);
    assert_eq!(files(), Vec::<PathBuf>::new());
}

/// Whatever page the help of a command names, and the README's pages, are in a directory of documentation, as they are here.
fn check_pages(doc: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let read = |path: PathBuf| std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let sources = ["crates/divvy-cli/src", "crates/divvy-daemon/src"].map(|dir| root.join(dir));
    let files = sources.iter().flat_map(|dir| paths(dir).into_iter().map(move |file| dir.join(file)));
    let rust = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    let mut named = BTreeSet::new();
    for text in rust.chain([root.join("README.md")]).map(|file| text(&read(file))) {
        let found = text.split("docs/").skip(1).map(|rest| {
            let end =
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c))).unwrap_or(rest.len());
            rest[..end].trim_end_matches('.').to_owned()
        });
        named.extend(found.filter(|name| name.ends_with(".md") || name.ends_with(".json")));
    }
    assert!(named.len() >= 20 && named.contains("limits.md"), "{named:?}");
    for name in named {
        let page = Path::new("docs").join(name);
        assert_eq!(read(doc.join(&page)), read(root.join(&page)), "{}", page.display());
    }
}

/// The programs of a directory start, and one divides.
fn they_run(bin: &Path) {
    let version = env!("CARGO_PKG_VERSION");
    for program in ["divvy", "divvyd"] {
        let said = text(&done(Command::new(bin.join(program)).arg("--version").env_clear()).stdout);
        assert_eq!(said, format!("{program} {version}\n"));
    }
    let mut share = Command::new(bin.join("divvy"));
    share.args(["share", "--for", "500ms", "--json", "1:while :; do :; done"]).env_clear();
    let said = text(&done(share.stdin(std::process::Stdio::null())).stdout);
    assert!(said.contains("\"achieved_fraction\""), "{said}");
}

/// Why no static programs can be built here, if so.
fn lacks_musl() -> Option<String> {
    if let Err(e) = Command::new("musl-gcc").arg("--version").output() {
        return Some(format!("musl-gcc: {e}; scripts/setup.sh installs musl-tools"));
    }
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let libdir = Command::new("rustc").args(["--print", "target-libdir", "--target", &target]).output();
    let has_std = libdir.is_ok_and(|said| Path::new(text(&said.stdout).trim()).is_dir());
    (!has_std).then(|| format!("no standard library for {target}; scripts/setup.sh adds it by rustup"))
}

/// The archive as it is distributed: built for release with musl.
#[test]
fn the_archive_has_static_programs_that_run_and_are_small() {
    const TEST: &str = "dist::the_archive_has_static_programs_that_run_and_are_small";
    if let Some(why) = lacks_musl() {
        return lacks(TEST, "musl", &why);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["dist", "--only", "static", "--out"]).arg(dir.path().join("out"));
    // Beside a machine that is emulated: with two jobs they had half a CPU each, and both took twice as long.
    xtask.env("CARGO_BUILD_JOBS", "1");
    let archive = text(&done(&mut xtask).stdout).split(" (").next().expect("a path").to_owned();
    let prefix = dir.path().join("prefix");
    std::fs::create_dir(&prefix).expect("a directory");
    done(Command::new("tar").args(["--strip-components=1", "-xf", &archive, "-C"]).arg(&prefix));
    for program in ["divvy", "divvyd"] {
        let path = prefix.join("bin").join(program);
        let headers = text(&done(Command::new("readelf").arg("-ldW").arg(&path)).stdout);
        assert!(headers.contains("LOAD"), "{headers}");
        assert!(!headers.contains("INTERP") && !headers.contains("(NEEDED)"), "{headers}");
        let bytes = std::fs::metadata(&path).expect("a program").len();
        assert!(bytes <= 15_000_000, "{program}: {bytes} bytes");
    }
    they_run(&prefix.join("bin"));
}
