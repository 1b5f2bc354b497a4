//! Who is never touched: the standard list, what divvyd was told, and the shells that ask.

use divvy_linux::{Pid, Protection, StartTime, procfs};

/// The names that divvyd was told, and the living shells that have attached something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelter {
    names: Vec<String>,
    shells: Vec<(Pid, StartTime)>,
}

fn start_of(pid: Pid) -> Option<StartTime> {
    procfs::stat(pid).ok().flatten().filter(|s| !s.state.is_ended()).map(|s| s.start)
}

impl Shelter {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { names, shells: Vec::new() }
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
        self.names.iter().for_each(|name| protection.add_name(name.clone()));
        self.shells.iter().for_each(|&(pid, _)| protection.add_caller(pid));
        protection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut shelter = Shelter::new(vec!["no-such-name".into()]);
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
