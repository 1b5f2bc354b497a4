//! Curves over a common axis.

use plotters::prelude::{DrawingBackend, RGBColor};

use crate::axis::Range;
use crate::canvas::{Canvas, Point, colour};
use crate::frame::{Frame, Key, Surroundings};
use crate::{Axis, Chart, Multiples, PlotError};

/// A chart of curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Above it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The curves.
    pub lines: Vec<Line>,
}

/// One curve. Points that are not finite leave a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// By rising x.
    pub points: Vec<(f64, f64)>,
    /// Half the length of each point's error bar; empty for none.
    pub half_widths: Vec<f64>,
    /// How it is drawn.
    pub style: Style,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// A line, with dots where there are few points.
    #[default]
    Solid,
    /// A line of dashes: an ideal, a bound.
    Dashed,
    /// Dots alone, where there is nothing between points.
    Dots,
}

impl Line {
    /// A solid curve without error bars.
    #[must_use]
    pub fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().collect();
        Self { name: name.into(), points, half_widths: Vec::new(), style: Style::Solid }
    }

    /// The same curve of dashes.
    #[must_use]
    pub fn dashed(self) -> Self {
        Self { style: Style::Dashed, ..self }
    }

    fn ends(&self) -> impl Iterator<Item = f64> {
        self.points.iter().enumerate().flat_map(|(i, &(_, y))| {
            let half = self.half_widths.get(i).copied().filter(|half| half.is_finite()).unwrap_or(0.0);
            [y - half, y + half]
        })
    }

    /// Draws it in a frame, `shift` points to the right.
    pub(crate) fn draw<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, DB>,
        frame: &Frame,
        colour: RGBColor,
        shift: f64,
    ) -> Result<(), PlotError> {
        let aside = |(x, y): Point| (x + shift, y);
        let is_there = |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        for stretch in self.points.chunk_by(|a, b| is_there(a) == is_there(b)) {
            if !stretch.first().is_some_and(is_there) {
                continue;
            }
            let places: Vec<Point> = stretch.iter().map(|&(x, y)| aside(frame.at(x, y))).collect();
            match self.style {
                Style::Solid => canvas.line(&places, colour, 2.0)?,
                Style::Dashed => canvas.dashes(&places, colour, 2.0)?,
                Style::Dots => {}
            }
            let radius = match self.style {
                Style::Solid if self.points.len() <= DOTS_MAX => 3.0,
                Style::Dots => 4.5,
                Style::Solid | Style::Dashed => continue,
            };
            places.iter().try_for_each(|&place| canvas.dot(place, radius, colour))?;
        }
        for (&(x, y), &half) in self.points.iter().zip(&self.half_widths) {
            if is_there(&(x, y)) && half.is_finite() && half > 0.0 {
                let (low, high) = (aside(frame.at(x, y - half)), aside(frame.at(x, y + half)));
                canvas.line(&[low, high], colour, 1.0)?;
                for end in [low, high] {
                    canvas.line(&[(end.0 - 4.0, end.1), (end.0 + 4.0, end.1)], colour, 1.0)?;
                }
            }
        }
        Ok(())
    }
}

/// More points than this are drawn without dots.
const DOTS_MAX: usize = 40;
/// Between neighbouring curves with error bars, in points.
const APART: f64 = 5.0;
/// More curves than this cannot be told apart in one frame.
const CURVES_MAX: usize = 6;

impl Lines {
    /// A chart that is readable however many curves there are: in one frame where they are few, else in a frame of their own
    /// each ([`Multiples`]). Over an axis of words, whose room that would take, they stay in one.
    #[must_use]
    pub fn into_chart(self) -> Chart {
        if self.lines.len() > CURVES_MAX && self.x.words.is_empty() {
            Chart::Multiples(Multiples(self))
        } else {
            Chart::Lines(self)
        }
    }

    /// Curves with error bars.
    fn with_bars(&self) -> usize {
        let some = |line: &&Line| line.half_widths.iter().any(|half| half.is_finite());
        self.lines.iter().filter(some).count()
    }

    /// Room at the ends of x for what stands aside of its place.
    pub(crate) fn inset(&self) -> f64 {
        if self.with_bars() > 0 { 16.0 } else { 0.0 }
    }

    /// What both axes have to show, with about so many marks.
    pub(crate) fn ranges(&self, nr_x: usize, nr_y: usize) -> Result<(Range, Range), PlotError> {
        let xs = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let ys = self.lines.iter().flat_map(Line::ends);
        let x = if self.x.words.is_empty() {
            Range::of(xs, self.x.scale, nr_x, false)
        } else {
            Some(Range::of_words(&self.x.words))
        };
        let ranges = x.zip(Range::of(ys, self.y.scale, nr_y, true));
        ranges.ok_or_else(|| PlotError::new("no points to draw"))
    }

    pub(crate) fn around(&self) -> Result<Surroundings<'_>, PlotError> {
        let (x, y) = self.ranges(8, 6)?;
        let key = |(i, line): (usize, &Line)| Key {
            name: line.name.clone(),
            colour: colour(i),
            dashed: line.style == Style::Dashed,
        };
        Ok(Surroundings {
            title: &self.title,
            x_label: &self.x.label,
            y_label: &self.y.label,
            x,
            y,
            across: true,
            // One curve needs no legend: the axis says what it is.
            legend: if self.lines.len() > 1 {
                self.lines.iter().enumerate().map(key).collect()
            } else {
                Vec::new()
            },
            inset: self.inset(),
        })
    }

    pub(crate) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        let frame = Frame::draw(canvas, self.around()?)?;
        // Error bars of several curves stand side by side.
        let with_bars = self.lines.iter().filter(|line| !line.half_widths.is_empty()).count();
        let middle = (self.lines.len().max(1) - 1) as f64 / 2.0;
        for (i, line) in self.lines.iter().enumerate() {
            let shift = if with_bars > 1 { (i as f64 - middle) * APART } else { 0.0 };
            line.draw(canvas, &frame, colour(i), shift)?;
        }
        Ok(())
    }
}
