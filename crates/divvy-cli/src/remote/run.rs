//! `divvy run`: a command as a client, in this terminal.
//!
//! This process forks. The child becomes a client and then the command: it has our terminal, standard streams, directory,
//! environment and process group. We only stand in for it with whoever called us, for a shell whose own child is
//! suspended believes that Ctrl-Z was pressed: signals are passed on, and we end as it does.

use std::os::unix::process::CommandExt as _;
use std::path::Path;

use divvy_daemon::types::NewClient;
use divvy_linux::Exit;
use divvy_linux::stand_in::{Fork, end_by_signal, fork};

use super::args::RunArgs;
use crate::share::check_command;
use crate::{Code, Failure, tell};

pub(crate) fn run(args: &RunArgs) -> Result<Code, Failure> {
    let program = args.command.first().ok_or_else(|| Failure::new(Code::Usage, "no command"))?;
    check_command(program)?;
    let base = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    // SAFETY: no thread has been started.
    match unsafe { fork(&base) }? {
        Fork::Child => become_client(args, &base),
        Fork::Parent(stand_in) => match stand_in.wait()? {
            Exit::Code(code) => Ok(Code::Command(u8::try_from(code).unwrap_or(u8::MAX))),
            Exit::Signal(signal) => {
                end_by_signal(signal);
                Ok(Code::Signalled(signal)) // The signal is one that ends nobody.
            }
        },
    }
}

/// In the child. Only comes back if something fails; the client ends with this process.
fn become_client(args: &RunArgs, base: &str) -> Result<Code, Failure> {
    let new = NewClient {
        name: Some(args.name.clone().unwrap_or_else(|| base.to_owned())),
        numbered: args.name.is_none(),
        share: args.share,
        selector: Some(format!("tree:{}", std::process::id())),
        ..NewClient::default()
    };
    let client = args.which.ask(|api| api.add(&new))?;
    if args.json {
        let line = serde_json::to_string(&client).map_err(|e| Failure::new(Code::System, e))?;
        tell(line);
    }
    let program = &args.command[0];
    let mut command = std::process::Command::new(program);
    command.args(&args.command[1..]);
    let cause = command.exec();
    Err(Failure::new(Code::NotStarted, format!("start '{}': {cause}", program.to_string_lossy())))
}
