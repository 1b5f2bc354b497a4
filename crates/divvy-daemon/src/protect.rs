//! Who is never touched: the standard list, what divvyd was told, and the shells that ask.

use std::path::Path;
use std::sync::Arc;

use divvy_linux::{Pid, Protection, StartTime, procfs};

/// The names that divvyd was told, and the living shells that have attached something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelter {
    /// With the list that each is on.
    names: Vec<(String, Arc<str>)>,
    shells: Vec<(Pid, StartTime)>,
    /// It is of many users, who might call a program anything.
    many_users: bool,
}

/// A name of processes that are not to be touched, as it was given.
///
/// # Errors
/// Says what to write for a path: nobody would be protected by it.
pub(crate) fn checked(name: &str) -> Result<String, String> {
    if !name.starts_with('/') {
        return Ok(name.to_owned());
    }
    let fix = match name.rsplit('/').next() {
        Some("") | None => "write the name alone".to_owned(),
        Some(last) => format!("write {last}"),
    };
    Err(format!("'{name}' is a path, and processes are known by their names: {fix}"))
}

fn start_of(pid: Pid) -> Option<StartTime> {
    procfs::stat(pid).ok().flatten().filter(|s| !s.state.is_ended()).map(|s| s.start)
}

impl Shelter {
    /// Of a user's own divvyd: whom its `--protect` names.
    pub(crate) fn own(names: Vec<String>) -> Self {
        Self::default().and(names, "your list of processes not to be touched (--protect of your divvyd)")
    }

    /// Of the system's divvyd: whom its `--protect` names, and the policy in `file`.
    pub(crate) fn system(names: Vec<String>, of_policy: Vec<String>, file: &Path) -> Self {
        const LIST: &str = "the administrator's list of processes not to be touched";
        let policy = format!("{LIST} (protect in [scheduler] of {})", file.display());
        let shelter = Self { many_users: true, ..Self::default() };
        shelter.and(of_policy, &policy).and(names, &format!("{LIST} (--protect of divvyd --system)"))
    }

    fn and(mut self, names: Vec<String>, list: &str) -> Self {
        let list = list.into();
        self.names.extend(names.into_iter().map(|name| (name, Arc::clone(&list))));
        self
    }

    /// From now on whoever called `caller`, and its ancestors, are sheltered for as long as they live. The caller itself
    /// is a `divvy`, and those are sheltered by their name.
    pub(crate) fn add_caller(&mut self, caller: Pid) {
        self.shells.retain(|&(pid, start)| start_of(pid) == Some(start));
        let parent = procfs::stat(caller).ok().flatten().and_then(|s| s.ppid);
        if let Some(shell) = parent.and_then(|pid| Some((pid, start_of(pid)?)))
            && !self.shells.contains(&shell)
        {
            self.shells.push(shell);
        }
    }

    /// The whole list.
    pub(crate) fn protection(&self) -> Protection {
        let mut protection = Protection::standard();
        if self.many_users {
            protection = protection.believing_root_only();
        }
        self.names.iter().for_each(|(name, list)| protection.add_name(name.clone(), list));
        self.shells.iter().for_each(|&(pid, _)| protection.add_caller(pid));
        protection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asks why something is not touched is told whose list it is on, and where that is changed.
    #[test]
    fn a_list_is_somebodys() {
        // It has its name when it writes.
        let mut command = std::process::Command::new("cat");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let names = || vec!["ca[t]".to_owned()];
        let (pid, file) = (Pid::from_child(&child), Path::new("/etc/divvy/divvyd.toml"));
        for (shelter, list) in [
            (Shelter::own(names()), "your list of processes not to be touched (--protect of your divvyd)"),
            (
                Shelter::system(names(), Vec::new(), file),
                "the administrator's list of processes not to be touched (--protect of divvyd --system)",
            ),
            (
                Shelter::system(Vec::new(), names(), file),
                "the administrator's list of processes not to be touched (protect in [scheduler] of /etc/divvy/divvyd.toml)",
            ),
        ] {
            let why = shelter.protection().check(pid).map(|why| why.to_string());
            assert_eq!(why, Some(format!("it is on {list}")));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_shell_is_sheltered_for_as_long_as_it_lives() {
        // A shell that calls something: here it only waits for it.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line)
            .unwrap();
        let caller = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let mut shelter = Shelter::own(vec!["no-such-name".into()]);
        shelter.add_caller(caller);
        shelter.add_caller(caller);
        assert_eq!(shelter.shells.len(), 1);
        assert!(shelter.protection().check(Pid::from_child(&shell)).is_some());
        assert!(shelter.protection().check(caller).is_none(), "what it started is not");
        rustix::process::kill_process(caller, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        shelter.add_caller(rustix::process::getpid());
        assert_eq!(shelter.shells.len(), 1, "the dead are forgotten, and our own parent has come");
        assert_ne!(shelter.shells[0].0, Pid::from_child(&shell));
    }
}
