//! Which divvyd a command asks: the system's, or the user's own.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use divvy_api::client::{Api, ApiError, Asked, Choice};
use divvy_api::launch::{LaunchError, with_choice};
use divvy_api::types::ErrorCode;
use divvy_linux::{Selector, SelectorError};

use crate::{Code, Failure, nearest, tell};

/// For commands that either divvyd can answer. Without any of these the system's is asked where its socket is there, else
/// the user's own; `DIVVY_MODE` decides otherwise.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "Which divvyd")]
pub(crate) struct Which {
    /// Your own, even where the system's runs (as DIVVY_MODE=user does)
    #[arg(long, conflicts_with_all = ["system", "system_socket"])]
    own: bool,

    /// The system's, and no other (as DIVVY_MODE=system does)
    #[arg(long)]
    system: bool,

    /// The system's, at this socket [default: $DIVVY_SYSTEM_SOCKET, else /run/divvy/api.sock]
    #[arg(long, value_name = "PATH")]
    system_socket: Option<PathBuf>,
}

impl Which {
    /// Whether one's own was asked for.
    pub(crate) const fn is_own(&self) -> bool {
        self.own
    }

    /// Whether nobody said on the command line who is to be asked.
    pub(super) const fn is_by_default(&self) -> bool {
        !self.own && !self.system && self.system_socket.is_none()
    }

    /// As the words of a command line say that is not whole yet.
    pub(crate) fn among(words: impl IntoIterator<Item = String>) -> Self {
        let (mut which, mut words) = (Self::default(), words.into_iter());
        while let Some(word) = words.next() {
            match word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value))) {
                ("--own", None) => which.own = true,
                ("--system", None) => which.system = true,
                ("--system-socket", Some(path)) => which.system_socket = Some(path.into()),
                ("--system-socket", None) => which.system_socket = words.next().map(PathBuf::from),
                _ => {}
            }
        }
        which
    }

    /// The one that is to be asked.
    ///
    /// # Errors
    /// [`Failure`] where `DIVVY_MODE` is no mode.
    pub(crate) fn choice(&self) -> Result<Choice, Failure> {
        let asked = match (self.own, self.system || self.system_socket.is_some()) {
            (true, _) => Some(Asked::Own),
            (false, true) => Some(Asked::System),
            (false, false) => None,
        };
        Ok(Choice::new(asked, self.system_socket.clone())?)
    }

    /// Whether that is the system's, which has a market.
    ///
    /// # Errors
    /// As [`Which::choice`].
    pub(crate) fn is_system(&self) -> Result<bool, Failure> {
        Ok(matches!(self.choice()?, Choice::System(_)))
    }

    /// Before something becomes a client: says so where that is the user's own divvyd's though the machine has a system's, which
    /// does not run.
    pub(super) fn warn_of_own(&self) {
        if self.is_by_default() {
            warn_of_own();
        }
    }

    /// Asks it; the user's own is started if none runs.
    ///
    /// # Errors
    /// [`Failure`] where there is none, or it refuses.
    pub(crate) fn ask<T>(&self, call: impl Fn(&Api) -> Result<T, ApiError>) -> Result<T, Failure> {
        self.try_ask(call)?.map_err(Failure::from)
    }

    /// The same, with what came back as it is.
    ///
    /// # Errors
    /// As [`Which::choice`].
    pub(super) fn try_ask<T>(
        &self,
        call: impl Fn(&Api) -> Result<T, ApiError>,
    ) -> Result<Result<T, LaunchError>, Failure> {
        Ok(with_choice(&self.choice()?, call))
    }
}

/// Says so where the user's own divvyd is asked though the machine has a system's, which does not run.
pub(crate) fn warn_of_own() {
    if let Some(set_up) = Choice::instead_of_system() {
        let set_up = set_up.display();
        tell(format_args!(
            "divvy: the system's divvyd does not run, though it is set up here ({set_up}): your own divides this, not among all \
             users; --own, or DIVVY_MODE=user, says that it is meant"
        ));
    }
}

/// How a command answers, and who is asked: [`Which`] or [`System`].
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct Ask<W: ClapArgs> {
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) of: W,
}

/// A selector with its kind: a number alone is a pid.
pub(crate) fn whole_selector(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(_) => format!("pid:{text}"),
        Err(_) => text.to_owned(),
    }
}

/// Reads `tree:4711`, or `@tree:4711` as among the tasks of `divvy share`; a number alone is a pid. Whether there is such a
/// process, or such a user, is divvyd's to say.
pub(super) fn parse_selector(text: &str) -> Result<String, String> {
    let text = text.trim();
    let whole = whole_selector(text.strip_prefix('@').unwrap_or(text));
    let read: Result<Selector, SelectorError> = whole.parse();
    match read {
        Err(e) if !e.is_of_an_unknown_user() => Err(format!("{e}{}", nearest::selector_hint(&whole))),
        _ => Ok(whole),
    }
}

/// What a command cannot have that only the system's divvyd serves. What that does not permit has a code of its own; all else
/// is as for every command.
pub(crate) fn refused_by_system(e: ApiError) -> Failure {
    match &e {
        ApiError::Refused(info) if info.code == ErrorCode::NotPermitted => Failure::new(Code::Denied, e),
        // A divvyd of one's own keeps no market that one could ask instead.
        ApiError::NoSystem(path) => {
            let text = format!(
                "the system's divvyd does not run, and no other keeps a market: nobody listens at {}; its administrator \
                 starts it (divvyd --system)",
                path.display()
            );
            Failure::new(Code::Scheduler, text)
        }
        _ => e.into(),
    }
}

/// For the market's commands: only the system's divvyd has one.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Which divvyd")]
pub(crate) struct System {
    /// The system's socket [default: $DIVVY_SYSTEM_SOCKET, else /run/divvy/api.sock]
    #[arg(long, value_name = "PATH")]
    system_socket: Option<PathBuf>,
}

impl System {
    /// The system's divvyd.
    ///
    /// # Errors
    /// [`Failure`] where it does not run, or is a stranger's.
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let choice = Choice::new(Some(Asked::System), self.system_socket.clone());
        choice.and_then(|choice| choice.api()).map_err(refused_by_system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_line_says_whom_to_ask() {
        let among = |line: &str| {
            let which = Which::among(line.split(' ').map(str::to_owned));
            (which.own, which.system, which.system_socket)
        };
        assert_eq!(among("divvy -- divvy set jo"), (false, false, None));
        assert_eq!(among("divvy set --own jo"), (true, false, None));
        assert_eq!(among("divvy set --system jo"), (false, true, None));
        for line in ["divvy set --system-socket=/s jo", "divvy set --system-socket /s jo"] {
            assert_eq!(among(line), (false, false, Some("/s".into())));
        }
        assert_eq!(among("divvy set jo --system-socket"), (false, false, None));
    }

    #[test]
    fn selectors_are_read_in_one_notation() {
        for (text, read) in [
            ("4711", "pid:4711"),
            ("pid:4711", "pid:4711"),
            ("tree:4711", "tree:4711"),
            ("@tree:4711", "tree:4711"),
            ("name:make*", "name:make*"),
            ("below:make:name:cc1*", "below:make:name:cc1*"),
            ("user:no-such-user", "user:no-such-user"),
        ] {
            assert_eq!(parse_selector(text).as_deref(), Ok(read));
        }
        for (text, said) in [
            ("tre:4711", "'tre' is no kind of selector; write pid:, tree:,"),
            ("tre:4711", "; did you mean 'tree'?"),
            ("make", "it does not say what kind of selector it is"),
            ("0", "'0' is no process number"),
            ("-1", "'-1' is no process number"),
            ("99999999999", "'99999999999' is no process number"),
            ("tree:x", "'x' is no process number"),
            ("cgroup:a/b", "is no absolute path"),
        ] {
            let e = parse_selector(text).expect_err(text);
            assert!(e.contains(said), "{text}: {e}");
            assert_eq!(e.contains("did you mean"), text.starts_with("tre:"), "{text}: {e}");
        }
    }
}
