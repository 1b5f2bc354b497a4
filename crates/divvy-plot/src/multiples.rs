//! Small multiples: where curves are too many to be told apart in one frame, each has a frame of its own.

use plotters::prelude::DrawingBackend;

use crate::canvas::{Anchor, Canvas, INK, OTHERS, Point, colour};
use crate::frame::{Frame, LABEL, MARGIN, Marked, TICK, TITLE, draw_title, y_room};
use crate::lines::{Line, Lines, Style};
use crate::{PlotError, SIZE};

/// Curves in frames of their own, side by side and below each other, in the order of the curves. All have the same axes and colour, and
/// the other curves stand faintly behind each.
#[derive(Clone, Debug, PartialEq)]
pub struct Multiples(pub Lines);

/// Above and below all frames.
const HEAD: f64 = MARGIN + TITLE + 12.0;
const FOOT: f64 = MARGIN + LABEL + TICK + 12.0;
/// A frame with the name above it.
const ROW: f64 = 150.0;
const NAME: f64 = TICK + 10.0;
/// Between frames, to the side and downwards.
const GAP: (f64, f64) = (26.0, 14.0);
/// Points of a curve that stands behind.
const BEHIND_MAX: usize = 60;

impl Multiples {
    fn columns(&self) -> usize {
        if self.0.lines.len() > 12 { 4 } else { 3 }
    }

    fn rows(&self) -> usize {
        self.0.lines.len().div_ceil(self.columns()).max(1)
    }

    /// How high it has to be to be read, in points of SVG.
    #[must_use]
    pub fn height(&self) -> u32 {
        (HEAD + self.rows() as f64 * ROW + FOOT) as u32
    }

    pub(crate) fn size(&self) -> (u32, u32) {
        (SIZE.0, self.height())
    }

    /// The room to the left and to the right of all frames.
    pub(crate) fn rooms<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(f64, f64), PlotError> {
        Ok((y_room(canvas, &self.0.y.label, &self.0.ranges(3, 3)?.1), MARGIN))
    }

    pub(crate) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        let lines = &self.0;
        let (x, y) = lines.ranges(3, 3)?;
        let left = self.rooms(canvas)?.0.max(canvas.rooms.0);
        let (right, bottom) = (canvas.width - MARGIN, canvas.height - FOOT);
        let nr = lines.lines.len();
        let (columns, rows) = (self.columns(), self.rows());
        let width = (right - left + GAP.0) / columns as f64 - GAP.0;
        let height = (bottom - HEAD + GAP.1) / rows as f64 - GAP.1;
        draw_title(canvas, &lines.title)?;
        for (i, line) in lines.lines.iter().enumerate() {
            let (row, column) = (i / columns, i % columns);
            let at = left + column as f64 * (width + GAP.0);
            let top = HEAD + row as f64 * (height + GAP.1);
            let edges = (at, at + width, top + NAME, top + height);
            let frame = Frame::new(edges, x.clone(), y.clone(), lines.inset());
            // Labels stand at the outer frames alone: the others have the same.
            let below = if i + columns >= nr { Marked::Labelled } else { Marked::Plain };
            let last = column + 1 == columns || i + 1 == nr;
            let below = if below == Marked::Labelled && !last { Marked::LabelledButTheLast } else { below };
            let beside = if column == 0 { Marked::Labelled } else { Marked::Plain };
            frame.draw_axes(canvas, true, (below, beside))?;
            let name = canvas.shortened(&line.name, TICK, width);
            canvas.text(&name, (at, top + NAME / 2.0), Anchor::Start, TICK, INK)?;
            for (_, other) in lines.lines.iter().enumerate().filter(|(at, _)| *at != i) {
                behind(canvas, &frame, other)?;
            }
            line.draw(canvas, &frame, colour(0), 0.0)?;
        }
        let middle = f64::midpoint(left, right);
        canvas.text(&lines.x.label, (middle, canvas.height - MARGIN - LABEL), Anchor::Below, LABEL, INK)?;
        let at =
            (left - y_room(canvas, &lines.y.label, &y) + MARGIN + LABEL / 2.0, f64::midpoint(HEAD, bottom));
        canvas.text(&lines.y.label, at, Anchor::Upwards, LABEL, INK)
    }
}

/// A curve behind another one, roughly.
fn behind<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, frame: &Frame, line: &Line) -> Result<(), PlotError> {
    if line.style == Style::Dots {
        return Ok(());
    }
    let every = line.points.len().div_ceil(BEHIND_MAX).max(1);
    let is_there = |&(x, y): &Point| x.is_finite() && y.is_finite();
    let last = line.points.len().saturating_sub(1);
    let some = line.points.iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last);
    let some: Vec<Point> = some.map(|(_, point)| *point).collect();
    for stretch in some.chunk_by(|a, b| is_there(a) == is_there(b)) {
        if stretch.first().is_some_and(is_there) {
            let places: Vec<Point> = stretch.iter().map(|&(x, y)| frame.at(x, y)).collect();
            canvas.line(&places, OTHERS, 0.6)?;
        }
    }
    Ok(())
}
