//! `--trace`: the recording of a run, as it happens.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write as _};
use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum;
use divvy_engine::chrome::TraceEvents;
use divvy_engine::{Recorder, TraceHeader, TraceLine};

use super::outlet::Outlet;
use crate::END_WAIT;

/// What a trace is written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// Lines of JSON (docs/trace.md), for divvy replay, plot and top
    #[default]
    Lines,
    /// Chrome's trace format, for Perfetto and chrome://tracing
    Perfetto,
}

/// The first thing that went wrong; it is told at the end.
pub(super) type Failed = Rc<RefCell<Option<io::Error>>>;

enum Out {
    Lines(BufWriter<Outlet>),
    /// `None` once it has ended.
    Perfetto(Option<Box<TraceEvents<BufWriter<Outlet>>>>),
}

/// Bytes of a trace that may wait to be written: seconds of a run that decides much.
pub(super) const ROOM: usize = 32 << 20;

/// Writes a trace to a file. The first error ends it; scheduling goes on.
pub(super) struct TraceFile {
    out: Out,
    file: Outlet,
    failed: Failed,
}

impl TraceFile {
    pub(super) fn new(outlet: Outlet, format: TraceFormat, header: &TraceHeader, failed: Failed) -> Self {
        let mut file = BufWriter::with_capacity(1 << 18, outlet.clone());
        let out = match format {
            TraceFormat::Lines => {
                let written = line(&mut file, header);
                *failed.borrow_mut() = written.err();
                Out::Lines(file)
            }
            TraceFormat::Perfetto => Out::Perfetto(match TraceEvents::new(file, header) {
                Ok(events) => Some(Box::new(events)),
                Err(e) => {
                    *failed.borrow_mut() = Some(e);
                    None
                }
            }),
        };
        Self { out, file: outlet, failed }
    }
}

fn line(out: &mut BufWriter<Outlet>, line: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

impl Recorder for TraceFile {
    fn record(&mut self, recorded: &TraceLine) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_none() {
            *failed = match &mut self.out {
                Out::Lines(out) => line(out, recorded).err(),
                Out::Perfetto(events) => events.as_mut().and_then(|events| events.line(recorded).err()),
            };
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        let ended = match &mut self.out {
            Out::Lines(out) => out.flush(),
            Out::Perfetto(events) => events.take().map_or(Ok(()), |events| events.finish().map(drop)),
        };
        // What has failed already is not waited for.
        let limit = if self.failed.borrow().is_some() { Duration::ZERO } else { END_WAIT };
        if let Err(e) = ended.and(self.file.finish(limit)) {
            self.failed.borrow_mut().get_or_insert(e);
        }
    }
}
