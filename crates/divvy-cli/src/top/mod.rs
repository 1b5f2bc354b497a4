//! `divvy top`: the clients on a screen, while they run or from a recording.

mod app;
pub(crate) mod daemon;
mod render;
mod replay;
pub(crate) mod source;
mod terminal;
#[cfg(test)]
mod tests;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use divvy_policy::Nanos;

use self::daemon::Daemon;
use self::render::Look;
use self::replay::Replay;
use self::source::Source;
use crate::remote::which::Which;
use crate::strip::Signs;
use crate::{Code, Failure, capable, print};

#[derive(Debug, ClapArgs)]
pub(crate) struct TopArgs {
    /// Watch a trace that `divvy share --trace` wrote, in the time that it took, instead of what runs now
    #[arg(long, value_name = "TRACE")]
    pub(crate) replay: Option<PathBuf>,

    /// How fast the trace is played: 0.001 to 1000 times
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = parse_speed, requires = "replay")]
    pub(crate) speed: u64,

    /// Begin at this time of the trace: 2s, 1500ms (with --json, the end if not given)
    #[arg(long, value_name = "TIME", value_parser = divvy_api::time::parse, requires = "replay")]
    pub(crate) at: Option<Duration>,

    /// Time between two looks, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Draw with ASCII only; without it, where the locale is not UTF-8
    #[arg(long)]
    pub(crate) ascii: bool,

    /// Print what is there now as JSON, once, and end
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) which: Which,
}

/// A speed in thousandths.
fn parse_speed(text: &str) -> Result<u64, String> {
    let speed = text.parse::<f64>().map_err(|_| "expected a number such as 2 or 0.5".to_owned())?;
    if (0.001..=1000.0).contains(&speed) {
        Ok((speed * 1000.0).round() as u64)
    } else {
        Err("expected 0.001 to 1000".into())
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = divvy_api::time::parse(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        Ok(interval)
    } else {
        Err("expected 100ms to 1h".into())
    }
}

pub(crate) fn run(args: &TopArgs) -> Result<Code, Failure> {
    let mut source = open(args)?;
    if args.json {
        let snapshot = source.snapshot(Nanos::ZERO).map_err(|why| Failure::new(Code::System, why))?;
        print(serde_json::to_string_pretty(&snapshot).unwrap_or_default())?;
        return Ok(Code::Done);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let text = "divvy top needs a terminal; --json prints the same once";
        return Err(Failure::new(Code::Usage, text));
    }
    if capable::is_dumb() {
        let text =
            "divvy top draws in place, which this terminal cannot (TERM is dumb); use --json, or divvy ls";
        return Err(Failure::new(Code::Usage, text));
    }
    terminal::show(source, args.interval, look(args.ascii))
}

fn open(args: &TopArgs) -> Result<Box<dyn Source>, Failure> {
    match &args.replay {
        Some(path) => {
            let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let begin = args.at.map_or(if args.json { Nanos::MAX } else { Nanos::ZERO }, nanos);
            Ok(Box::new(Replay::open(path, begin, args.speed)?))
        }
        None => Ok(Box::new(Daemon::connect(&args.which.choice()?)?)),
    }
}

fn look(ascii: bool) -> Look {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(capable::variable).unwrap_or_default();
    let signs = if ascii || !is_utf8(&locale) { Signs::Ascii } else { Signs::Blocks };
    Look { signs, color: capable::has_color() }
}

fn is_utf8(locale: &str) -> bool {
    let charset = locale.split(['.', '@']).nth(1).unwrap_or_default();
    charset.replace('-', "").eq_ignore_ascii_case("utf8")
}
