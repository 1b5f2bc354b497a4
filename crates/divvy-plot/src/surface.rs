//! Heights over a plane, seen from above one corner.

use plotters::prelude::{DrawingBackend, RGBColor};

use crate::axis::{Range, Scale};
use crate::canvas::{Anchor, Canvas, FAINT, GRID, INK, Point, colour, mix};
use crate::frame::{Key, draw_legend, draw_title, legend_width};
use crate::{Axis, PlotError};

/// A chart of surfaces over a common plane. Positions along x and y are evenly spaced, whatever their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    /// Above it.
    pub title: String,
    /// Along the edge on the right.
    pub x: Axis,
    /// Along the edge on the left.
    pub y: Axis,
    /// Upwards; always linear.
    pub z: Axis,
    /// Written along x, at least two.
    pub x_ticks: Vec<String>,
    /// Written along y, at least two.
    pub y_ticks: Vec<String>,
    /// The surfaces.
    pub sheets: Vec<Sheet>,
}

/// One surface.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// In the legend.
    pub name: String,
    /// `heights[y][x]`.
    pub heights: Vec<Vec<f64>>,
}

/// A place in the unit cube.
#[derive(Clone, Copy)]
struct Place {
    x: f64,
    y: f64,
    z: f64,
}

/// From the cube to the canvas: turned by [`TURN`], seen from [`TILT`] above the plane, without perspective.
struct View {
    left: f64,
    bottom: f64,
    scale: (f64, f64),
    low: (f64, f64),
}

const TURN: f64 = 0.66;
const TILT: f64 = 0.42;
const TICK: f64 = 14.0;
const LABEL: f64 = 15.0;

/// To the right, upwards, and away from the eye.
fn turned(place: Place) -> (f64, f64, f64) {
    let (x, y, z) = (place.x - 0.5, place.y - 0.5, place.z - 0.5);
    let right = x * TURN.cos() - y * TURN.sin();
    let away = x * TURN.sin() + y * TURN.cos();
    (right, z * 0.8 * TILT.cos() + away * TILT.sin(), away)
}

impl View {
    fn new((left, top): Point, (right, bottom): Point) -> Self {
        let corner =
            |i: i32| Place { x: f64::from(i & 1), y: f64::from((i >> 1) & 1), z: f64::from((i >> 2) & 1) };
        let corners: Vec<(f64, f64)> = (0..8).map(|i| turned(corner(i))).map(|(u, v, _)| (u, v)).collect();
        let ends = |pick: fn(&(f64, f64)) -> f64| {
            let values = corners.iter().map(pick);
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)))
        };
        let (u, v) = (ends(|c| c.0), ends(|c| c.1));
        let scale = ((right - left) / (u.1 - u.0), (bottom - top) / (v.1 - v.0));
        Self { left, bottom, scale, low: (u.0, v.0) }
    }

    fn at(&self, place: Place) -> Point {
        let (u, v, _) = turned(place);
        (self.left + (u - self.low.0) * self.scale.0, self.bottom - (v - self.low.1) * self.scale.1)
    }
}

impl Surface {
    pub(crate) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        let (nr_x, nr_y) = (self.x_ticks.len(), self.y_ticks.len());
        let fits =
            |sheet: &Sheet| sheet.heights.len() == nr_y && sheet.heights.iter().all(|row| row.len() == nr_x);
        if nr_x < 2 || nr_y < 2 || self.sheets.is_empty() || !self.sheets.iter().all(fits) {
            return Err(PlotError::new("a surface needs at least two places each way, and a height at each"));
        }
        let heights = || self.sheets.iter().flat_map(|sheet| sheet.heights.iter().flatten().copied());
        if !heights().all(f64::is_finite) {
            return Err(PlotError::new("a height is not finite"));
        }
        // The plane z = 0 belongs to the picture: heights are above or below it.
        let z = Range::of(heights().chain([0.0]), Scale::Linear, 6, true);
        let Some(z) = z else { return Err(PlotError::new("no heights to draw")) };
        let key =
            |(i, sheet): (usize, &Sheet)| Key { name: sheet.name.clone(), colour: colour(i), dashed: false };
        let mut legend: Vec<Key> = self.sheets.iter().enumerate().map(key).collect();
        if legend.len() == 1 {
            // The axis says what it is.
            legend.clear();
        }
        draw_title(canvas, &self.title)?;
        let right = canvas.width - 30.0 - legend_width(canvas, &legend);
        draw_legend(canvas, (right + 18.0, 64.0), &legend)?;
        let view = View::new((110.0, 56.0), (right, canvas.height - 62.0));
        self.draw_cage(canvas, &view, &z)?;
        self.draw_sheets(canvas, &view, &z)?;
        self.draw_labels(canvas, &view)
    }

    /// Marks along z at the left corner, and lines on the floor and the two walls behind.
    fn draw_cage<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, DB>,
        view: &View,
        z: &Range,
    ) -> Result<(), PlotError> {
        let line = |from: Place, to: Place, colour| canvas.line(&[view.at(from), view.at(to)], colour, 1.0);
        let place = |x, y, z| Place { x, y, z };
        for x in even(self.x_ticks.len()) {
            line(place(x, 0.0, 0.0), place(x, 1.0, 0.0), GRID)?;
            line(place(x, 1.0, 0.0), place(x, 1.0, 1.0), GRID)?;
        }
        for y in even(self.y_ticks.len()) {
            line(place(0.0, y, 0.0), place(1.0, y, 0.0), GRID)?;
            line(place(1.0, y, 0.0), place(1.0, y, 1.0), GRID)?;
        }
        for (mark, label) in &z.ticks {
            let z = z.part(*mark);
            let colour = if *mark == 0.0 { FAINT } else { GRID };
            line(place(0.0, 1.0, z), place(1.0, 1.0, z), colour)?;
            line(place(1.0, 1.0, z), place(1.0, 0.0, z), colour)?;
            let (left, at) = view.at(place(0.0, 1.0, z));
            canvas.text(label, (left - 8.0, at), Anchor::End, TICK, INK)?;
        }
        line(place(0.0, 1.0, 0.0), place(0.0, 1.0, 1.0), FAINT)?;
        line(place(0.0, 1.0, 0.0), place(0.0, 0.0, 0.0), FAINT)?;
        line(place(0.0, 0.0, 0.0), place(1.0, 0.0, 0.0), FAINT)
    }

    /// All quadrangles of all sheets, the farthest first.
    fn draw_sheets<DB: DrawingBackend>(
        &self,
        canvas: &Canvas<'_, DB>,
        view: &View,
        z: &Range,
    ) -> Result<(), PlotError> {
        let xs: Vec<f64> = even(self.x_ticks.len()).collect();
        let ys: Vec<f64> = even(self.y_ticks.len()).collect();
        let mut quads: Vec<(f64, f64, [Point; 4], RGBColor)> = Vec::new();
        for (nr, sheet) in self.sheets.iter().enumerate() {
            let place = |x: usize, y: usize| Place { x: xs[x], y: ys[y], z: z.part(sheet.heights[y][x]) };
            for y in 1..ys.len() {
                for x in 1..xs.len() {
                    let corners = [place(x - 1, y - 1), place(x, y - 1), place(x, y), place(x - 1, y)];
                    let away = corners.iter().map(|&c| turned(c).2).sum::<f64>() / 4.0;
                    let height = corners.iter().map(|c| c.z).sum::<f64>() / 4.0;
                    let light = mix(colour(nr), RGBColor(255, 255, 255), 0.15 + 0.5 * height);
                    quads.push((away, height, corners.map(|corner| view.at(corner)), light));
                }
            }
        }
        // Farthest first; of two at one place the lower first, as the eye is above.
        quads.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)));
        for (.., corners, light) in quads {
            canvas.fill(&corners, light)?;
            let outline = [corners[0], corners[1], corners[2], corners[3], corners[0]];
            canvas.line(&outline, mix(light, RGBColor(0, 0, 0), 0.45), 0.5)?;
        }
        Ok(())
    }

    fn draw_labels<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>, view: &View) -> Result<(), PlotError> {
        let every = |nr: usize| nr.div_ceil(10);
        for (i, x) in even(self.x_ticks.len()).enumerate().step_by(every(self.x_ticks.len())) {
            let (left, top) = view.at(Place { x, y: 0.0, z: 0.0 });
            canvas.text(&self.x_ticks[i], (left + 4.0, top + 12.0), Anchor::Start, TICK, INK)?;
        }
        for (i, y) in even(self.y_ticks.len()).enumerate().step_by(every(self.y_ticks.len())) {
            let (left, top) = view.at(Place { x: 0.0, y, z: 0.0 });
            canvas.text(&self.y_ticks[i], (left - 5.0, top + 13.0), Anchor::End, TICK, INK)?;
        }
        let (x, y) = view.at(Place { x: 0.5, y: 0.0, z: 0.0 });
        canvas.text(&self.x.label, (x + 36.0, y + 42.0), Anchor::Start, LABEL, INK)?;
        let (x, y) = view.at(Place { x: 0.0, y: 0.5, z: 0.0 });
        canvas.text(&self.y.label, (x - 36.0, y + 42.0), Anchor::End, LABEL, INK)?;
        let (_, y) = view.at(Place { x: 0.0, y: 1.0, z: 0.5 });
        canvas.text(&self.z.label, (24.0, y), Anchor::Upwards, LABEL, INK)
    }
}

/// `nr` numbers from 0 to 1.
fn even(nr: usize) -> impl Iterator<Item = f64> {
    (0..nr).map(move |i| i as f64 / (nr - 1) as f64)
}
