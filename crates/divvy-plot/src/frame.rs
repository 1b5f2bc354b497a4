//! What plane charts have in common: a title, two axes with a grid, and a legend beside them.

use plotters::prelude::{DrawingBackend, RGBColor};

use crate::PlotError;
use crate::axis::Range;
use crate::canvas::{Anchor, Canvas, FAINT, GRID, INK, Point};

pub(crate) const MARGIN: f64 = 20.0;
pub(crate) const TITLE: f64 = 20.0;
pub(crate) const LABEL: f64 = 15.0;
pub(crate) const TICK: f64 = 14.0;
/// The widest label of a mark beside a frame.
const TICK_WIDTH: f64 = 220.0;
/// The most entries of a legend; the rest is counted.
const LEGEND_MAX: usize = 19;
const LEGEND_WIDTH: f64 = 190.0;
/// As wide as what is said of entries left out.
const REST: &str = "and 9999 more";

/// One entry of a legend.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) colour: RGBColor,
    pub(crate) dashed: bool,
}

/// What stands around the drawing.
pub(crate) struct Surroundings<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) x: Range,
    pub(crate) y: Range,
    /// Lines across at the marks of y.
    pub(crate) across: bool,
    pub(crate) legend: Vec<Key>,
    /// Room kept free at the left and right ends of x, in points.
    pub(crate) inset: f64,
}

/// How the marks of an axis are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// Without labels.
    Plain,
    /// With their labels.
    Labelled,
    /// With their labels, but for one at the upper end, in whose place another frame's first stands.
    LabelledButTheLast,
}

/// The rectangle in which a chart draws, and what its edges mean.
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    x: Range,
    y: Range,
    inset: f64,
}

impl Frame {
    /// A frame with these edges: left, right, top, bottom.
    pub(crate) fn new(
        (left, right, top, bottom): (f64, f64, f64, f64),
        x: Range,
        y: Range,
        inset: f64,
    ) -> Self {
        Self { left, right, top, bottom, x, y, inset }
    }

    /// Draws everything but the content, and says where that goes.
    pub(crate) fn draw<DB: DrawingBackend>(
        canvas: &Canvas<'_, DB>,
        around: Surroundings<'_>,
    ) -> Result<Self, PlotError> {
        let (left, right) = rooms(canvas, &around);
        let beside = y_room(canvas, around.y_label, &around.y);
        let Surroundings { title, x_label, y_label, x, y, across, legend, inset } = around;
        draw_title(canvas, title)?;
        let (left, right) = (left.max(canvas.rooms.0), canvas.width - right.max(canvas.rooms.1));
        let (top, bottom) = (MARGIN + TITLE + 20.0, canvas.height - MARGIN - LABEL - TICK - 12.0);
        let frame = Self::new((left, right, top, bottom), x, y, inset);
        frame.draw_axes(canvas, across, (Marked::Labelled, Marked::Labelled))?;
        let middle = f64::midpoint(left, right);
        canvas.text(x_label, (middle, bottom + TICK + 14.0), Anchor::Below, LABEL, INK)?;
        // Beside the marks' labels, however far from the edge these are.
        let at = (left - beside + MARGIN + LABEL / 2.0, f64::midpoint(top, bottom));
        canvas.text(y_label, at, Anchor::Upwards, LABEL, INK)?;
        draw_legend(canvas, (right + 18.0, top), &legend)?;
        Ok(frame)
    }

    /// Draws the axes with their marks, below and beside the frame, and a line at each mark; of the marks beside it only if
    /// `across`.
    pub(crate) fn draw_axes<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, DB>,
        across: bool,
        (below, beside): (Marked, Marked),
    ) -> Result<(), PlotError> {
        let (left, right, top, bottom) = (self.left, self.right, self.top, self.bottom);
        let mark_room = (right - left) / self.x.ticks.len().max(1) as f64 - 6.0;
        for (mark, label) in &self.x.ticks {
            let at = self.at(*mark, self.y.low).0;
            canvas.line(&[(at, top), (at, bottom)], GRID, 1.0)?;
            canvas.line(&[(at, bottom), (at, bottom + 4.0)], FAINT, 1.0)?;
            let at_the_end = at > right - TICK;
            if below == Marked::Plain || (below == Marked::LabelledButTheLast && at_the_end) {
                continue;
            }
            for (i, line) in wrapped(canvas, label, mark_room).iter().enumerate() {
                let top = bottom + 7.0 + i as f64 * (TICK + 1.0);
                canvas.text(line, (at, top), Anchor::Below, TICK, INK)?;
            }
        }
        for (mark, label) in &self.y.ticks {
            let at = self.at(self.x.low, *mark).1;
            if across {
                let colour = if *mark == 0.0 { FAINT } else { GRID };
                canvas.line(&[(left, at), (right, at)], colour, 1.0)?;
            }
            if beside != Marked::Plain {
                let label = canvas.shortened(label, TICK, TICK_WIDTH);
                canvas.text(&label, (left - 7.0, at), Anchor::End, TICK, INK)?;
            }
        }
        canvas.line(&[(left, top), (left, bottom), (right, bottom)], FAINT, 1.0)
    }

    /// Where the numbers `x`, `y` are.
    pub(crate) fn at(&self, x: f64, y: f64) -> Point {
        (
            self.left + self.inset + self.x.part(x) * (self.right - self.left - 2.0 * self.inset),
            self.bottom - self.y.part(y) * (self.bottom - self.top),
        )
    }
}

/// The room that a chart takes to the left and to the right of its frame.
pub(crate) fn rooms<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, around: &Surroundings<'_>) -> (f64, f64) {
    (y_room(canvas, around.y_label, &around.y), MARGIN + legend_width(canvas, &around.legend))
}

/// The room that the marks and the title of an axis take beside it, and the margin.
pub(crate) fn y_room<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, title: &str, y: &Range) -> f64 {
    let ticks = y.ticks.iter().map(|(_, label)| canvas.text_width(label, TICK));
    let title = if title.is_empty() { 0.0 } else { LABEL + 10.0 };
    MARGIN + title + ticks.fold(0.0, f64::max).min(TICK_WIDTH) + 8.0
}

/// `label` in at most two lines, broken after a colon or comma where it is wider than `room`.
fn wrapped<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, label: &str, room: f64) -> Vec<String> {
    let fits = |text: &str| canvas.text_width(text, TICK) <= room;
    if fits(label) {
        return vec![label.to_owned()];
    }
    let mut breaks =
        label.char_indices().filter(|(_, c)| matches!(c, ':' | ',')).map(|(at, c)| at + c.len_utf8());
    let cut = breaks.rfind(|&at| at < label.len() && fits(&label[..at]));
    match cut {
        Some(at) => vec![label[..at].to_owned(), canvas.shortened(&label[at..], TICK, room)],
        None => vec![canvas.shortened(label, TICK, room)],
    }
}

/// The title, at the upper left.
pub(crate) fn draw_title<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, title: &str) -> Result<(), PlotError> {
    let title = canvas.shortened(title, TITLE, canvas.width - 2.0 * MARGIN);
    canvas.text(&title, (MARGIN, MARGIN + TITLE / 2.0), Anchor::Start, TITLE, INK)
}

/// The room that a legend takes, with the gap before it.
pub(crate) fn legend_width<DB: DrawingBackend>(canvas: &Canvas<'_, DB>, legend: &[Key]) -> f64 {
    if legend.is_empty() {
        return 0.0;
    }
    let widest = legend.iter().map(|key| canvas.text_width(&key.name, TICK)).fold(0.0, f64::max);
    let rest = if legend.len() > LEGEND_MAX { canvas.text_width(REST, TICK) } else { 0.0 };
    widest.min(LEGEND_WIDTH).max(rest) + 18.0 + 24.0
}

/// The legend, from its upper left corner down.
pub(crate) fn draw_legend<DB: DrawingBackend>(
    canvas: &Canvas<'_, DB>,
    (left, top): Point,
    legend: &[Key],
) -> Result<(), PlotError> {
    for (i, key) in legend.iter().enumerate() {
        let y = top + 8.0 + i as f64 * 21.0;
        if i == LEGEND_MAX {
            let rest = format!("and {} more", legend.len() - i);
            return canvas.text(&rest, (left + 20.0, y), Anchor::Start, TICK, FAINT);
        }
        if key.dashed {
            canvas.dashes(&[(left, y), (left + 15.0, y)], key.colour, 3.0)?;
        } else {
            canvas.rect((left, y - 5.0), (left + 14.0, y + 5.0), key.colour)?;
        }
        let name = canvas.shortened(&key.name, TICK, LEGEND_WIDTH);
        canvas.text(&name, (left + 20.0, y), Anchor::Start, TICK, INK)?;
    }
    Ok(())
}
