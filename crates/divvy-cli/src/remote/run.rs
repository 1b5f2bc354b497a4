//! `divvy run`: a command as a client, in this terminal.
//!
//! This process forks. The child becomes a client and then the command: it has our terminal, standard streams, directory,
//! environment and process group. We only stand in for it with whoever called us, for a shell whose own child is
//! suspended believes that Ctrl-Z was pressed: signals are passed on, and we end as it does. A client that is paused cannot
//! take a signal; so it is resumed by one that asks for the end.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use divvy_api::client::Api;
use divvy_api::cpus::Keeper;
use divvy_api::types::{Change, ClientState, NewClient};
use divvy_linux::stand_in::{Fork, end_by_signal, fork};
use divvy_linux::{CpuMask, Exit, Signal};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::args::RunArgs;
use super::{group, of_its_currency};
use crate::share::check_command;
use crate::{Code, Failure, cpus, tell};

pub(crate) fn run(args: &RunArgs) -> Result<Code, Failure> {
    let program = args.command.first().ok_or_else(|| Failure::new(Code::Usage, "no command"))?;
    check_command(program)?;
    args.terms.cpus()?; // Refused before anything is started.
    args.which.warn_of_own();
    let base = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    if matches!(&*base, "divvy" | "divvyd") {
        let text = format!(
            "{base} is nobody's client, for it is never held: run it by itself, or, to have what it starts in one client, as sh -c '{base} ...'"
        );
        return Err(Failure::new(Code::Usage, text));
    }
    let (told, tell) =
        std::io::pipe().map_err(|e| Failure::new(Code::System, format!("open a pipe: {e}")))?;
    let mut client = ClientName { told, text: String::new() };
    // SAFETY: no thread has been started; one that waits for this one to end (`main`) holds no lock.
    match unsafe { fork(&base) }? {
        Fork::Child => {
            drop(client);
            become_client(args, &base, tell)
        }
        Fork::Parent(stand_in) => match stand_in.wait(|signal| resume_for(signal, args, &mut client))? {
            Exit::Code(code) => Ok(Code::Command(u8::try_from(code).unwrap_or(u8::MAX))),
            Exit::Signal(signal) => {
                end_by_signal(signal);
                Ok(Code::Signalled(signal)) // The signal is one that ends nobody.
            }
        },
    }
}

/// Which client the child has become, as it tells through a pipe.
struct ClientName {
    told: PipeReader,
    text: String,
}

impl ClientName {
    /// Its number, if it has one already.
    fn get(&mut self) -> Option<&str> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::from_borrowed_fd(self.told.as_fd(), PollFlags::IN)];
        if self.text.is_empty() && poll(&mut polled, Some(&now)).is_ok_and(|n| n > 0) {
            let mut bytes = [0; 32];
            let n = self.told.read(&mut bytes).unwrap_or(0);
            self.text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        }
        Some(self.text.as_str()).filter(|text| !text.is_empty())
    }
}

/// Resumes our client, if it is paused, so that it can take a signal that asks for its end.
fn resume_for(signal: Signal, args: &RunArgs, client: &mut ClientName) {
    if ![Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal) {
        return;
    }
    let Some(client) = client.get() else { return };
    // A divvyd that is gone, or refuses, holds nobody for us to resume.
    let Ok(api) = args.which.choice().and_then(|choice| Ok(choice.api()?)) else { return };
    if api.client(client).is_ok_and(|client| client.state == ClientState::Paused) {
        let _ = api.change(client, Change { paused: Some(false), ..Change::default() });
    }
}

/// The CPUs that we have to keep to by ourselves: where divvyd, whom they are not to be told then, has no cpusets. All that are
/// divided, where none were asked for.
fn own_cpus(args: &RunArgs, new: &mut NewClient) -> Result<Option<CpuMask>, Failure> {
    let divvyd = args.which.ask(Api::status)?;
    let Some((mask, list)) = new.bounds.cpus.zip(args.terms.cpus.as_ref()) else {
        return cpus::to_start_on(&divvyd.backend);
    };
    cpus::check(&format!("--cpus {list}"), &mask, Keeper::Starter, &divvyd.cpus, &divvyd.backend.used)?;
    Ok(if divvyd.backend.keeps_cpus { None } else { new.bounds.cpus.take() })
}

/// In the child. Only comes back if something fails; the client ends with this process.
fn become_client(args: &RunArgs, base: &str, mut tell_id: PipeWriter) -> Result<Code, Failure> {
    let system = args.which.is_system()?;
    let mut new = NewClient {
        name: Some(args.name.clone().unwrap_or_else(|| base.to_owned())),
        numbered: args.name.is_none(),
        selector: Some(format!("tree:{}", std::process::id())),
        ..args.terms.client(system)?
    };
    let cpus = own_cpus(args, &mut new)?;
    group::set(&mut new, args.group.as_ref());
    let added = args.which.try_ask(|api| api.add(&new))?;
    let client = added.map_err(|e| of_its_currency(args.terms.from.as_deref(), e))?;
    args.terms.warn_of_no_effect(&args.which);
    // Whoever stands in for us may be gone, and then needs no name.
    let _ = tell_id.write_all(client.id.to_string().as_bytes());
    if args.json {
        let line = serde_json::to_string(&client).map_err(|e| Failure::new(Code::System, e))?;
        tell(line);
    }
    if let Some(cpus) = cpus {
        // Not sooner: a divvyd that had to be started divides what its starter may use.
        match (cpus.apply(rustix::process::getpid()), &args.terms.cpus) {
            (Err(e), Some(_)) => return Err(e.into()),
            (Err(e), None) => {
                tell(format_args!("divvy: warning: it runs on other CPUs than those that are divided: {e}"))
            }
            _ => {}
        }
    }
    let program = &args.command[0];
    let mut command = std::process::Command::new(program);
    command.args(&args.command[1..]);
    let cause = command.exec();
    // A script whose interpreter is missing is not found either.
    let is_missing = cause.kind() == std::io::ErrorKind::NotFound;
    let code = if is_missing { Code::NotFound } else { Code::NotExecutable };
    Err(Failure::new(code, format!("start '{}': {cause}", program.to_string_lossy())))
}
