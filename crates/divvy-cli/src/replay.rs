//! `divvy replay`: does the same policy decide the same again?

use divvy_engine::Divergence;
use serde_json::json;

use crate::args::ReplayArgs;
use crate::{Code, Failure, print, trace_file};

pub(crate) fn run(args: &ReplayArgs) -> Result<Code, Failure> {
    match trace_file::with_lines(&args.trace, |lines| divvy_engine::replay(lines))? {
        Ok(decisions) if args.json => {
            print(json!({ "version": 1, "decisions": decisions, "equal": true, "difference": null }))?;
            Ok(Code::Done)
        }
        Ok(decisions) => {
            print(format_args!("{decisions} decisions, all as recorded"))?;
            Ok(Code::Done)
        }
        Err(e @ Divergence::Header(_)) => Err(trace_file::unusable(&args.trace, &e)),
        // A file that is no whole trace says nothing of the policy.
        Err(e @ (Divergence::Spec(_) | Divergence::Line { .. } | Divergence::CutOff { .. })) => {
            Err(Failure::new(Code::File, format!("{}: {e}; is it a whole trace?", args.trace.display())))
        }
        Err(e) => {
            if args.json {
                let difference = e.to_string();
                print(json!({ "version": 1, "decisions": null, "equal": false, "difference": difference }))?;
            }
            Err(Failure::new(Code::Failed, format!("{}: {e}", args.trace.display())))
        }
    }
}
