//! Who ran when: a row for each client or CPU, a bar for each run.

use plotters::prelude::DrawingBackend;

use crate::axis::{Range, Scale};
use crate::canvas::{Canvas, GRID, colour};
use crate::frame::{Frame, Key, Surroundings};
use crate::{Axis, PlotError};

/// A Gantt chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Gantt {
    /// Above it.
    pub title: String,
    /// Time; always linear.
    pub time: Axis,
    /// Names of the rows, from above.
    pub rows: Vec<String>,
    /// What the colours mean, in order; empty if each row has its own.
    pub colours: Vec<String>,
    /// The beginning of time.
    pub start: f64,
    /// The end of time.
    pub end: f64,
    /// The runs.
    pub bars: Vec<Bar>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The row, from 0.
    pub row: usize,
    /// Which of the colours; the row's own where the chart has no list of them.
    pub colour: usize,
    /// Beginning.
    pub from: f64,
    /// End.
    pub to: f64,
}

/// Half a pixel of PNG.
const FINEST: f64 = 0.25;

impl Gantt {
    pub(crate) fn around(&self) -> Result<Surroundings<'_>, PlotError> {
        if self.rows.is_empty() {
            return Err(PlotError::new("no rows to draw"));
        }
        let x = Range::of([self.start, self.end].into_iter(), Scale::Linear, 8, false);
        let Some(x) = x else { return Err(PlotError::new("the end of time is not finite")) };
        let legend = self.colours.iter().enumerate();
        let legend =
            legend.map(|(i, name)| Key { name: name.clone(), colour: colour(i), dashed: false }).collect();
        Ok(Surroundings {
            title: &self.title,
            x_label: &self.time.label,
            y_label: "",
            x,
            y: rows(&self.rows),
            across: false,
            legend,
            inset: 0.0,
        })
    }

    pub(crate) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        let nr = self.rows.len();
        let frame = Frame::draw(canvas, self.around()?)?;
        let height = (frame.bottom - frame.top) / nr as f64;
        let middle = |row: usize| frame.top + (row as f64 + 0.5) * height;
        if nr <= 60 {
            for row in 0..nr {
                canvas.line(&[(frame.left, middle(row)), (frame.right, middle(row))], GRID, 1.0)?;
            }
        }
        let half = (height * 0.36).min(16.0);
        let mut drawn = vec![(f64::NEG_INFINITY, 0); nr];
        for bar in self.bars.iter().filter(|bar| bar.row < nr) {
            let (from, to) = (frame.at(bar.from, 0.0).0, frame.at(bar.to, 0.0).0);
            // Of very many runs, those that would only paint over the last one of the same colour are left out.
            if to < drawn[bar.row].0 + FINEST && bar.colour == drawn[bar.row].1 {
                continue;
            }
            drawn[bar.row] = (to, bar.colour);
            let colour = colour(if self.colours.is_empty() { bar.row } else { bar.colour });
            // A gap of a point, where there is room for it, shows where one run ends and the next begins.
            let to = if to - from > 3.0 { to - 1.0 } else { to };
            canvas.rect((from, middle(bar.row) - half), (to, middle(bar.row) + half), colour)?;
        }
        Ok(())
    }
}

/// Rows as an axis on which row i is at -i; of very many rows, not all are named.
fn rows(names: &[String]) -> Range {
    let nr = names.len() as f64;
    let every = names.len().div_ceil(26);
    let mut range = Range::of([-nr + 0.5, 0.5].into_iter(), Scale::Linear, 2, false)
        .unwrap_or_else(|| unreachable!("a count is finite"));
    range.ticks = names
        .iter()
        .enumerate()
        .filter(|(i, _)| i.is_multiple_of(every))
        .map(|(i, name)| (-(i as f64), name.clone()))
        .collect();
    range
}
