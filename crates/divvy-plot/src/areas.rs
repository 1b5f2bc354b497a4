//! Parts of a whole over time, one on top of the other.

use plotters::prelude::DrawingBackend;

use crate::axis::{Range, Scale};
use crate::canvas::{Canvas, Point, colour};
use crate::frame::{Frame, Key, Surroundings};
use crate::{Axis, PlotError};

/// A chart of stacked areas, the first name at the bottom.
#[derive(Clone, Debug, PartialEq)]
pub struct Areas {
    /// Above it.
    pub title: String,
    /// Time; always linear.
    pub x: Axis,
    /// The parts; always linear, from 0.
    pub y: Axis,
    /// Where time ends; it begins at 0.
    pub end: f64,
    /// The highest that all parts can sum to.
    pub top: f64,
    /// What the parts are of.
    pub names: Vec<String>,
    /// For each name its part in each of equal windows of time.
    pub parts: Vec<Vec<f64>>,
}

impl Areas {
    fn windows(&self) -> usize {
        self.parts.iter().map(Vec::len).max().unwrap_or(0)
    }

    pub(crate) fn around(&self) -> Result<Surroundings<'_>, PlotError> {
        if self.windows() == 0 {
            return Err(PlotError::new("no windows to draw"));
        }
        let x = Range::of([0.0, self.end].into_iter(), Scale::Linear, 8, false);
        let y = Range::of([0.0, self.top].into_iter(), Scale::Linear, 5, false);
        let Some((x, y)) = x.zip(y) else { return Err(PlotError::new("a chart's edge is not finite")) };
        // From above, as the areas stand.
        let legend = self.names.iter().enumerate().rev();
        let legend =
            legend.map(|(i, name)| Key { name: name.clone(), colour: colour(i), dashed: false }).collect();
        Ok(Surroundings {
            title: &self.title,
            x_label: &self.x.label,
            y_label: &self.y.label,
            x,
            y,
            across: true,
            legend,
            inset: 0.0,
        })
    }

    pub(crate) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        let nr = self.windows();
        let frame = Frame::draw(canvas, self.around()?)?;
        let mut base = vec![0.0; nr];
        for (i, part) in self.parts.iter().enumerate() {
            let above: Vec<f64> =
                (0..nr).map(|w| base[w] + part.get(w).copied().unwrap_or(0.0).max(0.0)).collect();
            // Windows in which there is nothing leave no line behind.
            let mut from = 0;
            while from < nr {
                let some = |w: usize| above[w] - base[w] > 1e-9;
                let to = (from..nr).find(|&w| some(w) != some(from)).unwrap_or(nr);
                if some(from) {
                    self.fill(canvas, &frame, (&base, &above), from..to, i)?;
                }
                from = to;
            }
            base = above;
        }
        Ok(())
    }

    fn fill<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, DB>,
        frame: &Frame,
        (base, above): (&[f64], &[f64]),
        windows: std::ops::Range<usize>,
        index: usize,
    ) -> Result<(), PlotError> {
        let time = |edge: usize| self.end * edge as f64 / above.len() as f64;
        let corners = |heights: &[f64], w: usize| -> [Point; 2] {
            let height = heights[w].min(self.top);
            [frame.at(time(w), height), frame.at(time(w + 1), height)]
        };
        let mut outline: Vec<Point> = windows.clone().flat_map(|w| corners(above, w)).collect();
        outline.extend(windows.rev().flat_map(|w| {
            let [left, right] = corners(base, w);
            [right, left]
        }));
        canvas.fill(&outline, colour(index))
    }
}
