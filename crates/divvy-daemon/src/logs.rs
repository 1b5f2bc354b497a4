//! What a system's divvyd says, for the journal or as JSON. It is written by a thread of its own: whoever reads it slowly,
//! or not at all, holds nobody up, and loses lines.

use std::fmt;
use std::io::IsTerminal as _;
use std::sync::OnceLock;

use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Lines that wait to be written, at most; more are dropped.
const LINES: usize = 10_000;

/// What the lines are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people, and for the journal with priorities
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Writes what is left when it is dropped.
pub(crate) struct Log {
    _writer: WorkerGuard,
}

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// From now on everything is logged in this form, to standard error.
pub(crate) fn start(format: Format) -> Log {
    let builder = NonBlockingBuilder::default().buffered_lines_limit(LINES).thread_name("divvyd-log");
    let (writer, guard) = builder.finish(std::io::stderr());
    let _ = DROPPED.set(writer.error_counter());
    let subscriber = tracing_subscriber::fmt().with_max_level(Level::INFO).with_writer(writer);
    // Another subscriber can only be there if this was called before: then that one goes on.
    let _ = match format {
        Format::Json => tracing::subscriber::set_global_default(
            subscriber
                .json()
                .flatten_event(true)
                .with_target(false)
                .with_current_span(false)
                .with_span_list(false)
                .finish(),
        ),
        Format::Text => {
            let form = Lines { journal: writes_to_journal() };
            tracing::subscriber::set_global_default(
                subscriber.fmt_fields(DefaultFields::new()).event_format(form).finish(),
            )
        }
    };
    Log { _writer: guard }
}

/// Whether a log was started: then it is where everything is to be said.
pub(crate) fn is_started() -> bool {
    DROPPED.get().is_some()
}

/// Lines that nobody will read: there was no room for them.
pub(crate) fn dropped() -> u64 {
    DROPPED.get().map_or(0, |count| count.dropped_lines() as u64)
}

/// systemd says in the environment that standard error is the journal's.
#[expect(clippy::disallowed_methods, reason = "this is the edge where the environment is read")]
fn writes_to_journal() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some() && !std::io::stderr().is_terminal()
}

/// `divvyd: what happened key=value`, after the priority (for the journal, which has its own clock) or the time.
struct Lines {
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.journal {
            write!(to, "<{}>", priority(level))?;
        } else {
            SystemTime.format_time(&mut to)?;
            write!(to, " {level:>5} divvyd: ")?;
        }
        context.field_format().format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

/// As syslog counts.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn line(journal: bool) -> String {
        let kept = Kept::default();
        let to = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .fmt_fields(DefaultFields::new())
            .event_format(Lines { journal })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(clients = 3, "policy is as before");
        });
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_journal_gets_a_priority_and_others_the_time() {
        assert_eq!(line(true), "<4>policy is as before clients=3\n");
        let text = line(false);
        assert!(text.ends_with("Z  WARN divvyd: policy is as before clients=3\n"), "{text:?}");
    }
}
