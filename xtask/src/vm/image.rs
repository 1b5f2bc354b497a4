//! What the machine's first file system has in it: a cpio archive that the kernel unpacks into memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cpio::newc::{Builder, ModeFileType, trailer};

use super::kernel::Kernel;

/// Users of the machine, and their numbers: root, three ordinary ones, and the one who owns nothing.
const USERS: [(&str, u32); 5] =
    [("root", 0), ("alice", 1001), ("bob", 1002), ("carol", 1003), ("nobody", 65534)];
/// One static binary with everything that a shell needs.
const BUSYBOX: &str = "/bin/busybox";

#[derive(Debug)]
enum Node {
    Dir(u32),
    File { from: PathBuf, mode: u32 },
    Text { text: Vec<u8>, mode: u32 },
    Link(String),
}

/// A file system to be: paths in the machine, and what is there. Everything is root's.
#[derive(Debug, Default)]
pub(super) struct Image {
    nodes: BTreeMap<String, Node>,
}

impl Image {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn put(&mut self, path: &str, node: Node) {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]).filter(|parent| !parent.is_empty());
        for parent in parents {
            self.nodes.entry(parent.to_owned()).or_insert(Node::Dir(0o755));
        }
        self.nodes.insert(path.to_owned(), node);
    }

    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.put(path, Node::Link(to.to_owned()));
    }

    pub(super) fn text(&mut self, path: &str, text: &[u8], mode: u32) {
        self.put(path, Node::Text { text: text.to_vec(), mode });
    }

    /// Directories, users and busybox.
    ///
    /// # Errors
    /// Where there is no busybox.
    pub(super) fn base(&mut self) -> Result<()> {
        for dir in ["/proc", "/sys", "/dev", "/run", "/out", "/etc", "/bin", "/root", "/var/lib"] {
            self.put(dir, Node::Dir(0o755));
        }
        self.put("/tmp", Node::Dir(0o1777));
        for (user, id) in USERS.into_iter().skip(1) {
            self.put(&format!("/home/{user}"), Node::Dir(0o777));
            ensure!(id > 0, "{user} is not root");
        }
        self.link("/sbin", "bin");
        self.link("/usr/bin", "../bin");
        self.link("/var/tmp", "../tmp");
        let home = |user: &str| if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
        let passwd: String =
            USERS.iter().map(|(user, id)| format!("{user}:x:{id}:{id}::{}:/bin/sh\n", home(user))).collect();
        let group: String = USERS.iter().map(|(user, id)| format!("{user}:x:{id}:\n")).collect();
        self.text("/etc/passwd", passwd.as_bytes(), 0o644);
        self.text("/etc/group", group.as_bytes(), 0o644);
        self.text("/etc/nsswitch.conf", b"passwd: files\ngroup: files\n", 0o644);
        self.text("/etc/profile", b"PS1='divvy-vm \\w # '\n", 0o644);
        let busybox = find(&["/usr/bin/busybox", BUSYBOX])
            .context("busybox is missing: install busybox-static, or run scripts/setup.sh")?;
        ensure!(
            libraries(&busybox)?.is_empty(),
            "{} is not the static one: install busybox-static, or run scripts/setup.sh",
            busybox.display()
        );
        self.put(BUSYBOX, Node::File { from: busybox, mode: 0o755 });
        Ok(())
    }

    pub(super) fn modules(&mut self, kernel: &Kernel) -> Result<()> {
        let mut list = String::new();
        for (name, from, at_boot) in kernel.modules() {
            let path = format!("{}/{name}", super::guest::MODULES);
            ensure!(from.is_file(), "{}: missing; remove {}", from.display(), kernel.dir.display());
            self.put(&path, Node::File { from, mode: 0o644 });
            if at_boot {
                list.push_str(&format!("{name}\n"));
            }
        }
        self.text(&format!("{}/order", super::guest::MODULES), list.as_bytes(), 0o644);
        Ok(())
    }

    /// A program without its symbols, and the libraries that it needs where it looks for them. Any other file goes in as it is.
    pub(super) fn program(&mut self, from: &Path, path: &str, work: &Path) -> Result<()> {
        let mut start = [0; 4];
        let read = File::open(from).and_then(|mut file| std::io::Read::read(&mut file, &mut start));
        read.with_context(|| format!("read {}", from.display()))?;
        if start != *b"\x7fELF" {
            self.put(path, Node::File { from: from.to_owned(), mode: 0o755 });
            return Ok(());
        }
        let small = work.join(path.trim_start_matches('/').replace('/', "-"));
        let mut strip = Command::new("strip");
        strip.arg("--strip-all").arg("-o").arg(&small).arg(from);
        let status = strip.status().context("start strip (binutils)")?;
        ensure!(status.success(), "strip {}: {status}", from.display());
        self.put(path, Node::File { from: small, mode: 0o755 });
        for library in libraries(from)? {
            let real = library.canonicalize().with_context(|| format!("find {}", library.display()))?;
            self.put(&library.to_string_lossy(), Node::File { from: real, mode: 0o755 });
        }
        Ok(())
    }

    /// Writes the archive, the same for the same contents.
    pub(super) fn write(&self, to: &Path) -> Result<()> {
        let file = File::create(to).with_context(|| format!("create {}", to.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        for (number, (path, node)) in (1_u32..).zip(&self.nodes) {
            let entry = Builder::new(path.trim_start_matches('/')).ino(number).uid(0).gid(0).mtime(0);
            let (mode, kind, nlink) = match node {
                Node::Dir(mode) => (*mode, ModeFileType::Directory, 2),
                Node::File { mode, .. } | Node::Text { mode, .. } => (*mode, ModeFileType::Regular, 1),
                Node::Link(_) => (0o777, ModeFileType::Symlink, 1),
            };
            let entry = entry.mode(mode).set_mode_file_type(kind).nlink(nlink);
            let text: Vec<u8> = match node {
                Node::Dir(_) => Vec::new(),
                Node::File { from, .. } => {
                    std::fs::read(from).with_context(|| format!("read {}", from.display()))?
                }
                Node::Text { text, .. } => text.clone(),
                Node::Link(to) => to.clone().into_bytes(),
            };
            let mut writer = entry.write(&mut out, u32::try_from(text.len()).context("a file beyond 4 GiB")?);
            writer.write_all(&text)?;
            writer.finish()?;
        }
        trailer(&mut out)?;
        out.flush().with_context(|| format!("write {}", to.display()))
    }
}

fn find(places: &[&str]) -> Option<PathBuf> {
    places.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Shared libraries of a program, and its loader, by the paths under which they are looked for; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("start ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (found, missing) = parse_libraries(&text);
    ensure!(
        missing.is_empty(),
        "{} needs libraries that are not here: {}",
        program.display(),
        missing.join(", ")
    );
    Ok(found)
}

fn parse_libraries(text: &str) -> (Vec<PathBuf>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        let path = place.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        } else if place == "not found" {
            missing.push(name.to_owned());
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_under_the_names_they_are_looked_for() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x0007f)\n\t/lib64/ld.so.2 (0x7f)\n";
        let (found, missing) = parse_libraries(text);
        assert_eq!(found, [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld.so.2")]);
        assert_eq!(missing, [""; 0]);
        let (found, missing) = parse_libraries("\tlibz.so => not found\n");
        assert_eq!((found.len(), missing), (0, vec!["libz.so".to_owned()]));
        assert_eq!(parse_libraries("\tstatically linked\n"), (vec![], vec![]));
    }

    #[test]
    fn directories_around_a_file_come_before_it() {
        let mut image = Image::new();
        image.text("/a/b/c", b"text", 0o644);
        image.link("/a/d", "b");
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("cpio");
        image.write(&file).expect("written");
        let text = std::fs::read(&file).expect("an archive");
        let mut rest = std::io::Cursor::new(text);
        let mut seen = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(rest).expect("an entry");
            if reader.entry().is_trailer() {
                break;
            }
            let entry = reader.entry();
            seen.push((entry.name().to_owned(), entry.mode(), entry.file_size()));
            rest = reader.skip().expect("whole");
        }
        let dir = |name: &str| (name.to_owned(), 0o040_755, 0);
        let (file, link) = (("a/b/c".to_owned(), 0o100_644, 4), ("a/d".to_owned(), 0o120_777, 1));
        assert_eq!(seen, [dir("a"), dir("a/b"), file, link]);
    }
}
