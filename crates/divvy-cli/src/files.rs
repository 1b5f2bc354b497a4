//! Files that are written whole or not at all.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{Code, Failure};

/// `FILE.WORD`.
pub(crate) fn beside(file: &Path, word: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    name.into()
}

/// Puts `text` in the place of what is in `file`, by another file beside it.
///
/// # Errors
/// [`Failure`] of a file; what was there is there still.
pub(crate) fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let new = beside(file, "new");
    let write = || -> std::io::Result<()> {
        let mut out = File::create(&new)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&new, file)
    };
    write().map_err(|e| Failure::new(Code::File, format!("write {}: {e}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

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
