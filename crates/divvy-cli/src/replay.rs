//! `divvy replay`: does the same policy decide the same again?

use std::fs::File;
use std::io::{BufRead as _, BufReader};

use crate::args::ReplayArgs;
use crate::{Code, Failure, print};

pub(crate) fn run(args: &ReplayArgs) -> Result<Code, Failure> {
    let unreadable =
        |e: std::io::Error| Failure::new(Code::File, format!("read {}: {e}", args.trace.display()));
    let file = BufReader::new(File::open(&args.trace).map_err(unreadable)?);
    // A line that cannot be read (no text, say) ends the trace with an error of its own.
    let mut broken = None;
    let lines = file.lines().map_while(|line| line.map_err(|e| broken = Some(e)).ok());
    let replayed = divvy_engine::replay(lines);
    if let Some(e) = broken {
        return Err(unreadable(e));
    }
    match replayed {
        Ok(decisions) => {
            print(format_args!("{decisions} decisions, all as recorded"))?;
            Ok(Code::Done)
        }
        Err(e) => Err(Failure::new(Code::Failed, format!("{}: {e}", args.trace.display()))),
    }
}
