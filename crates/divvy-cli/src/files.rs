//! Files that are written: whole or not at all, and into directories that are there.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::{Code, Failure};

/// A file that cannot be read, or written: `verb` says which.
pub(crate) fn failed(verb: &str, file: &Path, e: &std::io::Error) -> Failure {
    let why = match e.kind() {
        // Whoever writes makes the file.
        ErrorKind::NotFound if verb != "read" => "there is no such directory".to_owned(),
        _ => cause(e),
    };
    Failure::new(Code::File, format!("{verb} {}: {why}", file.display()))
}

/// Why a file cannot be read, for people; as the system says it where there is nothing to add.
pub(crate) fn cause(e: &std::io::Error) -> String {
    match e.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::IsADirectory => "it is a directory; name a file in it".to_owned(),
        ErrorKind::NotADirectory => "what would be its directory is a file".to_owned(),
        ErrorKind::PermissionDenied => {
            "its permissions, or those of its directory, do not let you (ls -l)".to_owned()
        }
        ErrorKind::ReadOnlyFilesystem => {
            "nothing can be written there: the file system is mounted read-only".to_owned()
        }
        ErrorKind::StorageFull => "no space is left on its file system (df)".to_owned(),
        _ => e.to_string(),
    }
}

/// `FILE.WORD`.
pub(crate) fn beside(file: &Path, word: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    name.into()
}

/// Whether the directory is there into which `file` is to be written; better known before anything runs.
///
/// # Errors
/// [`Failure`] of a file, which says what to make.
pub(crate) fn check_dir(file: &Path) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        let text = "write -: name a file; /dev/stdout is the standard output, and ./- a file of that name";
        return Err(Failure::new(Code::Usage, text));
    }
    let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) else { return Ok(()) };
    match std::fs::metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let (file, dir) = (file.display(), dir.display());
            let text = format!("write {file}: there is no directory {dir}; make it first (mkdir -p {dir})");
            Err(Failure::new(Code::File, text))
        }
        // Whatever else is wrong is told by the call that opens it.
        _ => Ok(()),
    }
}

/// The same, of each file that an option names to be written, none of which may be another's, or one that is read.
///
/// # Errors
/// As [`check_dir`]; [`Failure`] of usage, which names both.
pub(crate) fn check_outputs<'a>(
    outputs: &[(&str, &Option<PathBuf>)],
    read: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let read: Vec<Kept> = read.into_iter().filter_map(Kept::of).collect();
    let mut written: Vec<(&str, Kept)> = Vec::new();
    for (option, file) in outputs.iter().filter_map(|(option, file)| Some((*option, file.as_deref()?))) {
        check_dir(file)?;
        let Some(kept) = Kept::of(file) else { continue };
        let why = match written.iter().find(|(_, other)| *other == kept) {
            Some((other, _)) => format!("{other} writes that file as well"),
            None if read.contains(&kept) => "that file is read, and would be lost".to_owned(),
            None => {
                written.push((option, kept));
                continue;
            }
        };
        let text = format!("{option} {}: {why}; name another", file.display());
        return Err(Failure::new(Code::Usage, text));
    }
    Ok(())
}

const LINKS_MAX: u32 = 40;

/// A file that keeps what is written to it, by whatever name, whether it is there yet or not.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    There { dev: u64, ino: u64 },
    ToBeMade(PathBuf),
}

impl Kept {
    /// `None` for what keeps nothing: devices and pipes, which several may write to.
    fn of(file: &Path) -> Option<Self> {
        Self::behind(file, LINKS_MAX)
    }

    /// The same where so many links lead to it at most; of more the system makes no file.
    fn behind(file: &Path, links: u32) -> Option<Self> {
        if let Ok(there) = std::fs::metadata(file) {
            return there.is_file().then(|| Self::There { dev: there.dev(), ino: there.ino() });
        }
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match std::fs::read_link(file) {
            Ok(to) => Self::behind(&dir.join(to), links.checked_sub(1)?),
            Err(_) => Some(Self::ToBeMade(dir.canonicalize().ok()?.join(file.file_name()?))),
        }
    }
}

/// Puts `text` in the place of what is in `file`, by another file beside it.
///
/// # Errors
/// [`Failure`] of a file; what was there is there still.
pub(crate) fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    check_dir(file)?;
    let new = beside(file, "new");
    let mut out = File::create(&new).map_err(|e| failed("write", &new, &e))?;
    let mut write = || -> std::io::Result<()> {
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&new, file)
    };
    write().map_err(|e| failed("write", file, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let said = |file: &str| check_dir(Path::new(file)).map_err(|failure| failure.text);
        let text = "write /nosuch/a/x: there is no directory /nosuch/a; make it first (mkdir -p /nosuch/a)";
        assert_eq!(said("/nosuch/a/x"), Err(text.to_owned()));
        assert!(said("-").is_err_and(|text| text.contains("/dev/stdout")) && said("./-").is_ok());
        assert_eq!([said("x"), said("/x"), said("/dev/null/x")], [Ok(()), Ok(()), Ok(())]);
        let outputs = [("--svg", &None), ("--png", &Some("/nosuch/x".into()))];
        assert_eq!(check_outputs(&outputs, []).unwrap_err().code, Code::File);
    }

    #[test]
    fn no_file_is_written_over_one_that_is_read_or_twice() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("trace"), "").expect("written");
        std::os::unix::fs::symlink(at("trace"), at("link")).expect("made");
        std::fs::create_dir(at("sub")).expect("made");
        let check = |svg: &str, png: &str| {
            let (svg, png) = (Some(at(svg)), Some(at(png)));
            let read = [at("trace"), PathBuf::from("/dev/null")];
            check_outputs(&[("--svg", &svg), ("--png", &png)], read.iter().map(PathBuf::as_path))
        };
        let refused = |svg: &str, png: &str| check(svg, png).expect_err(png);
        for name in ["trace", "sub/../trace", "link"] {
            let failure = refused("x", name);
            let said =
                format!("--png {}: that file is read, and would be lost; name another", at(name).display());
            assert_eq!((failure.code, failure.text), (Code::Usage, said));
        }
        for link in ["a", "b"] {
            std::os::unix::fs::symlink("to-be-made", at(link)).expect("made");
        }
        assert!(refused("a", "b").text.ends_with("--svg writes that file as well; name another"));
        std::os::unix::fs::symlink("loop", at("loop")).expect("made");
        assert!(check("loop", "x").is_ok(), "told by whoever opens it");
        let twice = refused("x", "sub/../x").text;
        assert!(twice.ends_with("x: --svg writes that file as well; name another"), "{twice}");
        for (svg, png) in [("x", "y"), ("x", "sub/x"), ("/dev/null", "/dev/null")] {
            assert!(check(svg, png).is_ok(), "{svg} {png}");
        }
    }

    #[test]
    fn what_the_system_says_is_put_for_people() {
        let open = |path: &str| File::open(path).expect_err("nothing to open");
        let read = |path: &str| failed("read", Path::new(path), &open(path)).text;
        assert_eq!(read("/nosuch"), "read /nosuch: there is no such file");
        assert_eq!(read("/dev/null/x"), "read /dev/null/x: what would be its directory is a file");
        let made = File::create("/nosuch/x").expect_err("no directory");
        assert_eq!(
            failed("write", Path::new("/nosuch/x"), &made).text,
            "write /nosuch/x: there is no such directory"
        );
        assert_eq!(cause(&File::create("/").expect_err("there")), "it is a directory; name a file in it");
        assert_eq!(cause(&std::io::Error::from_raw_os_error(5)), "Input/output error (os error 5)");
    }

    #[test]
    fn a_file_is_replaced_or_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        for text in ["one", "two"] {
            replace(&file, text).expect("replaced");
            assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
        }
        // Where its new content cannot be written, the old one is there.
        std::fs::create_dir(beside(&file, "new")).expect("in the way");
        assert_eq!(replace(&file, "three").expect_err("refused").code, Code::File);
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "two");
    }
}
