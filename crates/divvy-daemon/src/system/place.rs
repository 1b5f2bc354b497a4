//! Where a system's divvyd is: its runtime directory, its state, and the policy file. All of it is root's alone to change.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use divvy_api::place::PlaceError;
use divvy_linux::guard::{RuntimeDir, SYSTEM_DIR};
use rustix::fs::Mode;

use crate::place::{Lock, Locked, listen_in, lock_in, remove_socket_in};

/// Where the socket, the lock and the table are, unless another place is named.
pub(crate) const RUN_DIR: &str = SYSTEM_DIR;
/// Where the market is kept.
pub(crate) const STATE_DIR: &str = "/var/lib/divvy";
/// What the administrator decided.
pub(crate) const POLICY_FILE: &str = "/etc/divvy/divvyd.toml";
/// Bytes in a policy at most.
const POLICY_MAX: u64 = 1 << 20;

/// Why a place of the system's divvyd cannot be used. Its text has the fix.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SystemPlaceError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{what} {}: give the whole path, from / on ({option})", path.display())]
    Relative { what: &'static str, option: &'static str, path: PathBuf },
    #[error("{what} {}: {why}; {fix}, or name another one ({option})", path.display())]
    Unsafe { what: &'static str, option: &'static str, path: PathBuf, why: String, fix: String },
    #[error("{operation} {}: {cause}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("another divvyd serves from {} already{}", path.display(), pid.map_or_else(String::new, |p| format!(" (pid {p})")))]
    Taken { path: PathBuf, pid: Option<i32> },
    #[error("policy {}: {why}", path.display())]
    Policy { path: PathBuf, why: String },
}

/// One kind of directory: how it is named in errors, and who may do what with it.
struct Kind {
    what: &'static str,
    option: &'static str,
    /// The mode that it is made with.
    mode: u32,
    /// What nobody may have in it.
    forbidden: u32,
}

/// Everybody comes to the socket, and only root changes anything.
const RUN: Kind = Kind { what: "runtime directory", option: "--run-dir", mode: 0o755, forbidden: 0o022 };
/// The market says who did what: it is nobody else's to read.
const STATE: Kind = Kind { what: "state directory", option: "--state-dir", mode: 0o700, forbidden: 0o077 };

/// The directories of a system's divvyd, and the locks that say that it is the one.
#[derive(Debug)]
pub(crate) struct SystemPlace {
    run: RuntimeDir,
    state: RuntimeDir,
    /// Kept as long as it serves.
    _locks: [Lock; 2],
}

impl SystemPlace {
    /// Opens both directories, made if they are not there, and takes their locks.
    ///
    /// # Errors
    /// [`SystemPlaceError`] names what is wrong with one of them and the fix, or says that another divvyd serves there.
    pub(crate) fn open_or_create(run: &Path, state: &Path) -> Result<Self, SystemPlaceError> {
        let is_new = std::fs::symlink_metadata(run).is_err();
        let run_dir = open(run, &RUN)?;
        let state = open(state, &STATE).inspect_err(|_| {
            if is_new {
                // Empty, and ours: nothing is left of what was refused.
                let _ = std::fs::remove_dir(run);
            }
        })?;
        let locks = [lock(&run_dir)?, lock(&state)?];
        Ok(Self { run: run_dir, state, _locks: locks })
    }

    pub(crate) fn run_dir(&self) -> &RuntimeDir {
        &self.run
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// A listening socket that everybody may connect to.
    pub(crate) fn listen(&self) -> Result<UnixListener, SystemPlaceError> {
        Ok(listen_in(&self.run, 0o666)?)
    }

    /// Nobody new finds us any more.
    pub(crate) fn remove_socket(&self) {
        remove_socket_in(&self.run);
    }
}

fn lock(dir: &RuntimeDir) -> Result<Lock, SystemPlaceError> {
    match lock_in(dir)? {
        Locked::Ours(lock) => Ok(lock),
        Locked::Theirs(pid) => Err(SystemPlaceError::Taken { path: dir.path().to_owned(), pid }),
    }
}

fn open(path: &Path, kind: &Kind) -> Result<RuntimeDir, SystemPlaceError> {
    let Kind { what, option, .. } = *kind;
    if path.is_relative() {
        return Err(SystemPlaceError::Relative { what, option, path: path.to_owned() });
    }
    check_parents(path, kind)?;
    let wrong = |e: divvy_linux::Error| match e {
        divvy_linux::Error::UnsafeDirectory { path, what: why, .. } => {
            let fix = fix_of(&path);
            SystemPlaceError::Unsafe { what, option, path, why, fix }
        }
        e => SystemPlaceError::Place(e.into()),
    };
    let dir = match RuntimeDir::open(path).map_err(wrong)? {
        Some(dir) => dir,
        None => {
            let made = RuntimeDir::open_or_create(path).map_err(wrong)?;
            // Whatever the mask of this process is: others come through the one directory, and not through the other.
            rustix::fs::fchmod(&made, Mode::from_raw_mode(kind.mode))
                .map_err(|e| file_error("set the mode of", path, e.into()))?;
            made
        }
    };
    let mode = rustix::fs::fstat(&dir).map_err(|e| file_error("stat", path, e.into()))?.st_mode & 0o7777;
    if mode & kind.forbidden != 0 {
        let (path, why) = (path.to_owned(), format!("it is open to others (mode {mode:o})"));
        return Err(SystemPlaceError::Unsafe {
            what,
            option,
            path,
            why,
            fix: format!("chmod {:o} it", kind.mode),
        });
    }
    Ok(dir)
}

/// What helps where a path is no directory of ours alone. A directory may hold everybody's market: it is not to be removed.
fn fix_of(path: &Path) -> String {
    match std::fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() && about.uid() == rustix::process::geteuid().as_raw() => {
            "chmod go-w it, if all in it is divvyd's".to_owned()
        }
        Ok(about) if about.is_dir() => "chown it to divvyd's user, if all in it is divvyd's".to_owned(),
        _ => "remove it".to_owned(),
    }
}

/// Refuses a directory that somebody else can put another one in the place of: by a directory above it that is not
/// root's (or ours), or that others can write to, unless it is sticky.
fn check_parents(path: &Path, kind: &Kind) -> Result<(), SystemPlaceError> {
    let Some((dir, why)) = unsafe_above(path)? else { return Ok(()) };
    let (what, option, path) = (kind.what, kind.option, path.to_owned());
    let fix = format!("make {} root's alone (chown root, chmod go-w)", dir.display());
    Err(SystemPlaceError::Unsafe { what, option, path, why, fix })
}

/// A directory above `path` that lets somebody else put something in its place, and why it does.
fn unsafe_above(path: &Path) -> Result<Option<(PathBuf, String)>, SystemPlaceError> {
    let Some(parent) = path.parent() else { return Ok(None) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let real = std::fs::canonicalize(parent).map_err(|e| file_error("look up", parent, e))?;
    let own = rustix::process::geteuid().as_raw();
    for dir in real.ancestors() {
        let stat = rustix::fs::lstat(dir).map_err(|e| file_error("stat", dir, e.into()))?;
        let mode = stat.st_mode & 0o7777;
        let why = if stat.st_uid != 0 && stat.st_uid != own {
            format!("{}, above it, belongs to user {}", dir.display(), stat.st_uid)
        } else if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            format!("others can write to {}, above it (mode {mode:o})", dir.display())
        } else {
            continue;
        };
        return Ok(Some((dir.to_owned(), why)));
    }
    Ok(None)
}

/// The text of the policy at `path`; `None` where there is none and none has to be.
///
/// # Errors
/// [`SystemPlaceError`] where it cannot be read, or where somebody else could have written it.
pub(crate) fn read_policy(path: &Path, has_to_be: bool) -> Result<Option<String>, SystemPlaceError> {
    let policy = |why: String| SystemPlaceError::Policy { path: path.to_owned(), why };
    // Without waiting for whoever would write to it, were it a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !has_to_be => return Ok(None),
        Err(e) => return Err(file_error("open policy", path, e)),
    };
    let about = file.metadata().map_err(|e| file_error("stat", path, e))?;
    let (mode, own) = (about.mode() & 0o7777, rustix::process::geteuid().as_raw());
    if !about.is_file() {
        return Err(policy("it is no file; name one with --policy-file".to_owned()));
    }
    if about.uid() != 0 && about.uid() != own {
        return Err(policy(format!("it belongs to user {}; chown root it", about.uid())));
    }
    if mode & 0o022 != 0 {
        return Err(policy(format!("others can write to it (mode {mode:o}); chmod go-w it")));
    }
    // Where it is, and where a link to it leads.
    let real = std::fs::canonicalize(path).map_err(|e| file_error("look up", path, e))?;
    for place in [path, real.as_path()] {
        if let Some((dir, why)) = unsafe_above(place)? {
            let fix = format!("make {} root's alone (chown root, chmod go-w)", dir.display());
            return Err(policy(format!("somebody else could put another in its place: {why}; {fix}")));
        }
    }
    let mut text = String::new();
    let read = file
        .take(POLICY_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| file_error("read policy", path, e))?;
    if read as u64 > POLICY_MAX {
        return Err(policy(format!("it is longer than {POLICY_MAX} bytes")));
    }
    Ok(Some(text))
}

fn file_error(operation: &'static str, path: &Path, cause: std::io::Error) -> SystemPlaceError {
    SystemPlaceError::File { operation, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::place::tests::unlocked;

    fn chmod(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn refused(run: &Path, state: &Path) -> String {
        SystemPlace::open_or_create(run, state).unwrap_err().to_string()
    }

    #[test]
    fn both_directories_are_made_as_they_have_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let (run, state) = (dir.path().join("run"), dir.path().join("state"));
        let place = SystemPlace::open_or_create(&run, &state).unwrap();
        assert_eq!((mode(&run), mode(&state)), (0o755, 0o700));
        let listener = place.listen().unwrap();
        assert_eq!(mode(&run.join("api.sock")), 0o666);
        drop(listener);
        place.remove_socket();
        assert!(!run.join("api.sock").exists());
        // One at a time, of either directory.
        let ours = format!("(pid {})", std::process::id());
        assert!(refused(&run, &dir.path().join("another")).ends_with(&ours));
        let error = refused(&dir.path().join("other"), &state);
        assert!(error.contains("another divvyd serves from") && error.ends_with(&ours), "{error}");
        drop(place);
        unlocked(|| SystemPlace::open_or_create(&run, &state).is_ok());
    }

    #[test]
    fn a_directory_that_somebody_else_can_change_is_refused_with_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let (run, state) = (dir.path().join("run"), dir.path().join("state"));
        drop(SystemPlace::open_or_create(&run, &state).unwrap());
        for open in [0o777, 0o775, 0o757, 0o1777] {
            chmod(&run, open);
            let error = refused(&run, &state);
            assert!(error.contains("others can write to it") && error.contains("--run-dir"), "{error}");
            assert!(error.contains("; chmod go-w it, if all in it is divvyd's"), "{error}");
        }
        chmod(&run, 0o755);
        for open in [0o750, 0o701, 0o770] {
            chmod(&state, open);
            let error = refused(&run, &state);
            assert!(
                error.starts_with("state directory ") && error.contains(&format!("(mode {open:o})")),
                "{error}"
            );
            assert!(error.contains("--state-dir"), "a fix: {error}");
        }
        chmod(&state, 0o700);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&run, &link).unwrap();
        assert!(
            refused(&link, &state).contains("it is a symbolic link; remove it"),
            "{}",
            refused(&link, &state)
        );
        assert!(refused(&run, &link).contains("it is a symbolic link"));
        assert!(refused(Path::new("run"), &state).contains("give the whole path"));
        // What is above it counts too, but for a sticky one as /tmp is.
        let above = dir.path().join("above");
        std::fs::create_dir(&above).unwrap();
        chmod(&above, 0o777);
        let error = refused(&above.join("run"), &state);
        assert!(error.contains("others can write to") && error.contains("(mode 777)"), "{error}");
        chmod(&above, 0o1777);
        unlocked(|| SystemPlace::open_or_create(&above.join("run"), &state).is_ok());
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED foreign owners: only root can give a directory away");
            return;
        }
        std::os::unix::fs::chown(&run, Some(54_321), None).unwrap();
        assert!(refused(&run, &state).contains("it belongs to user 54321"), "{}", refused(&run, &state));
        std::os::unix::fs::chown(&above, Some(54_321), None).unwrap();
        let error = refused(&above.join("run"), &state);
        assert!(error.contains("above it, belongs to user 54321"), "{error}");
    }

    #[test]
    fn a_policy_that_somebody_else_could_have_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("divvyd.toml");
        assert_eq!(read_policy(&path, false).unwrap(), None);
        assert!(read_policy(&path, true).unwrap_err().to_string().starts_with("open policy "));
        std::fs::write(&path, "[limits]\n").unwrap();
        chmod(&path, 0o644);
        assert_eq!(read_policy(&path, true).unwrap().as_deref(), Some("[limits]\n"));
        chmod(&path, 0o664);
        let error = read_policy(&path, true).unwrap_err().to_string();
        assert!(error.ends_with("others can write to it (mode 664); chmod go-w it"), "{error}");
        chmod(&path, 0o600);
        std::fs::write(&path, vec![b'#'; POLICY_MAX as usize + 1]).unwrap();
        assert!(read_policy(&path, true).unwrap_err().to_string().contains("longer than"));
        assert!(read_policy(dir.path(), true).unwrap_err().to_string().contains("it is no file"));
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(
            read_policy(&pipe, true).unwrap_err().to_string().contains("it is no file"),
            "and nobody waits"
        );
        // Nor one in whose place somebody else can put another, nor by a link from a better place.
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        let (there, link) = (open.join("divvyd.toml"), dir.path().join("link"));
        std::fs::write(&there, "").unwrap();
        chmod(&there, 0o644);
        std::os::unix::fs::symlink(&there, &link).unwrap();
        for (mode, safe) in [(0o755, true), (0o777, false), (0o775, false), (0o1777, true)] {
            chmod(&open, mode);
            for path in [&there, &link] {
                match read_policy(path, true) {
                    Ok(_) => assert!(safe, "{mode:o}"),
                    Err(e) => {
                        assert!(!safe && e.to_string().contains("another in its place"), "{mode:o}: {e}")
                    }
                }
            }
        }
    }
}
