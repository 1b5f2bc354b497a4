//! The machine's kernel: one package of Debian, pinned, fetched by apt into a cache of our own.
//!
//! apt is given directories of its own, so that nothing of this machine's packages changes; the mirror is the one that this
//! machine uses. apt checks the archive's signature, and the checksum below says that it is the package that was
//! tried. The kernel must have BTF, PSI, `SCHED_CLASS_EXT`, the io controller's BFQ and iocost, and a serial console.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

const SUITE: &str = "trixie-backports";
const PACKAGE: &str = "linux-image-6.18.15+deb13-cloud-amd64";
const VERSION: &str = "6.18.15-1~bpo13+1";
const SHA256: &str = "5a507681ea8c978d02265a7fec2f02c9588fb48b54b7f71edc1059e86007f3ec";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Modules of the machine, each after those that it needs; the first [`BOOT`] are loaded at once, the others for whoever asks
/// ([`super::load`]).
const MODULES: [&str; 4] =
    ["drivers/block/virtio_blk", "block/bfq", "fs/configfs/configfs", "drivers/block/null_blk/null_blk"];
const BOOT: usize = 2;

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// `vmlinuz`, and the modules as `NAME.ko`.
    pub(super) dir: PathBuf,
}

impl Kernel {
    pub(super) fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// Names and paths of the modules, in the order in which they are loaded, and whether that is done at once.
    pub(super) fn modules(&self) -> Vec<(String, PathBuf, bool)> {
        let name = |module: &&str| format!("{}.ko", module.rsplit('/').next().unwrap_or(module));
        let names = MODULES.iter().map(name).enumerate();
        names.map(|(i, name)| (name.clone(), self.dir.join(&name), i < BOOT)).collect()
    }
}

/// Where kernels are kept: `$DIVVY_VM_CACHE`, else below the user's cache directory, else below `target`.
#[expect(clippy::disallowed_methods, reason = "where caches are is said by the environment")]
fn cache() -> PathBuf {
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user =
        of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache"))).map(|dir| dir.join("divvy/vm"));
    let usable = |dir: &PathBuf| fs::create_dir_all(dir).is_ok();
    let mut places = [of("DIVVY_VM_CACHE"), user].into_iter().flatten();
    places.find(usable).unwrap_or_else(|| crate::ci::root().join("target/vm"))
}

/// The kernel, fetched if it is not there yet. Whoever comes second waits for the first.
///
/// # Errors
/// Why it cannot be had, and what would help.
pub(super) fn ready() -> Result<Kernel> {
    let cache = cache();
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock =
        fs::File::create(cache.join("lock")).with_context(|| format!("create {}/lock", cache.display()))?;
    rustix::fs::flock(lock.as_fd(), rustix::fs::FlockOperation::LockExclusive).context("lock the cache")?;
    // The checksum, and which modules were taken, are part of the name.
    let dir = cache.join(format!("{}-{}-{}", PACKAGE, &SHA256[..12], MODULES.len()));
    let kernel = Kernel { dir };
    if !kernel.dir.exists() {
        fetch(&cache, &kernel.dir).with_context(|| {
            let deb = cache.join("kernel.deb");
            format!(
                "the test machine's kernel ({PACKAGE} {VERSION} of {SUITE}) cannot be had; where there is no mirror of \
                 Debian, put the package itself at {}",
                deb.display()
            )
        })?;
    }
    Ok(kernel)
}

fn fetch(cache: &Path, to: &Path) -> Result<()> {
    let work = cache.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    let by_hand = cache.join("kernel.deb");
    let deb = if by_hand.exists() { by_hand } else { download(&work)? };
    let sum = text_of(Command::new("sha256sum").arg("--").arg(&deb))?;
    let sum = sum.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    ensure!(
        sum == SHA256,
        "{}: its SHA-256 is {sum}, not {SHA256}: another package, or a damaged one",
        deb.display()
    );
    let tree = work.join("tree");
    text_of(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&tree))?;
    let release = PACKAGE.trim_start_matches("linux-image-");
    let made = work.join("made");
    fs::create_dir(&made)?;
    let vmlinuz = tree.join("boot").join(format!("vmlinuz-{release}"));
    fs::copy(&vmlinuz, made.join("vmlinuz")).with_context(|| format!("copy {}", vmlinuz.display()))?;
    let modules = tree.join("usr/lib/modules").join(release).join("kernel");
    let kernel = Kernel { dir: made.clone() };
    for (module, (_, path, _)) in MODULES.iter().zip(kernel.modules()) {
        let packed = modules.join(format!("{module}.ko.xz"));
        let out = fs::File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut unpack = Command::new("busybox");
        unpack.arg("unxz").arg("-c").arg(&packed).stdout(out);
        let status = unpack.status().context("start busybox")?;
        ensure!(status.success(), "busybox unxz -c {}: {status}", packed.display());
    }
    fs::rename(&made, to).with_context(|| format!("rename {} to {}", made.display(), to.display()))?;
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

/// Fetches the package with apt into `work`.
fn download(work: &Path) -> Result<PathBuf> {
    eprintln!("vm: fetching {PACKAGE} {VERSION}, once");
    for dir in ["lists/partial", "cache/archives/partial", "parts"] {
        fs::create_dir_all(work.join(dir))?;
    }
    fs::write(work.join("status"), "")?;
    let mut failed = String::new();
    for mirror in mirrors()? {
        let line = format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {SUITE} main\n");
        fs::write(work.join("sources.list"), line)?;
        let wanted = format!("{PACKAGE}={VERSION}");
        let done = text_of(apt(work, "apt-get").args(["-qq", "update"]))
            .and_then(|_| text_of(apt(work, "apt-get").current_dir(work).args(["-qq", "download", &wanted])));
        if let Err(e) = done {
            failed = format!("{failed}; {e:#}");
            continue;
        }
        let entries = fs::read_dir(work)?.flatten().map(|entry| entry.path());
        if let Some(deb) = entries.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb")) {
            return Ok(deb);
        }
    }
    bail!("apt could not fetch it: {}", failed.trim_start_matches("; "))
}

/// apt with directories of its own.
fn apt(work: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    for (option, place) in [
        ("Dir::Etc::sourcelist", "sources.list"),
        ("Dir::Etc::sourceparts", "parts"),
        ("Dir::State::Lists", "lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache", "cache"),
    ] {
        command.arg("-o").arg(format!("{option}={}", work.join(place).display()));
    }
    // Whom apt becomes to download could not write there.
    command.args(["-o", "APT::Sandbox::User="]);
    command
}

/// Where this machine gets Debian's packages from: all that it uses, those for security last.
fn mirrors() -> Result<Vec<String>> {
    ensure!(Path::new(KEYRING).exists(), "{KEYRING} is missing: install debian-archive-keyring");
    let mut command = Command::new("apt-get");
    let text = text_of(command.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]))?;
    let mut all: Vec<String> = text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect();
    all.sort_by_key(|uri| (uri.contains("security"), uri.clone()));
    all.dedup();
    ensure!(!all.is_empty(), "apt on this machine knows no mirror; run apt-get update");
    Ok(all)
}

/// What a program prints.
fn text_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {}", output.status, errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
