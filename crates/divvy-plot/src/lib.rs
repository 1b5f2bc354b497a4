//! Charts as SVG and PNG, without system libraries or fonts: what `divvy sim`, `divvy plot` and the papers' pages draw.
//!
//! A [`Chart`] is plain data; [`Chart::to_svg`] and [`Chart::to_png`] draw it, equal data to equal bytes. Letters are
//! measured, and in PNG drawn, with DejaVu Sans, which is built in (`fonts/LICENSE-DejaVu.txt`).
//!
//! ```
//! use divvy_plot::{Axis, Chart, Line, Lines};
//! let vtrr = Line::new("vtrr", [(10.0, 2.1), (100.0, 2.2)]);
//! let wfq = Line::new("wfq", [(10.0, 9.0), (100.0, 31.0)]);
//! let chart = Chart::Lines(Lines {
//!     title: "Cost of a choice".into(),
//!     x: Axis::log("clients"),
//!     y: Axis::linear("ns"),
//!     lines: vec![vtrr, wfq],
//! });
//! assert!(chart.to_svg()?.contains("vtrr"));
//! assert_eq!(&chart.to_png()?[1..4], b"PNG");
//! # Ok::<(), divvy_plot::PlotError>(())
//! ```
#![forbid(unsafe_code)]

mod areas;
mod axis;
mod canvas;
mod frame;
mod gantt;
mod lines;
mod multiples;
mod panels;
mod surface;

use std::fmt;

use plotters::prelude::{BitMapBackend, DrawingBackend, IntoDrawingArea, SVGBackend};

pub use areas::Areas;
pub use axis::{Axis, Scale};
pub use gantt::{Bar, Gantt};
pub use lines::{Line, Lines, Style};
pub use multiples::Multiples;
pub use panels::{Panel, Panels};
pub use surface::{Sheet, Surface};

use canvas::Canvas;

/// Width and height of a chart, in points of SVG.
const SIZE: (u32, u32) = (900, 540);
/// Pixels of PNG to a point.
const PNG_SCALE: u32 = 2;

/// A picture that could not be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlotError(String);

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlotError {}

impl PlotError {
    fn new(cause: impl fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

/// Any chart.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Chart {
    /// Who ran when.
    Gantt(Gantt),
    /// Curves over a common axis.
    Lines(Lines),
    /// Many curves, each in a frame of its own.
    Multiples(Multiples),
    /// Parts of a whole over time.
    Areas(Areas),
    /// Heights over a plane.
    Surface(Surface),
    /// Several, one below the other.
    Panels(Panels),
}

impl Chart {
    /// The chart as an SVG document.
    ///
    /// # Errors
    /// [`PlotError`] where there is nothing to draw, or a number is not finite.
    pub fn to_svg(&self) -> Result<String, PlotError> {
        let (size, mut text) = (self.size()?, String::new());
        {
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&Canvas::new(&area, size, 1)?)?;
            area.present().map_err(PlotError::new)?;
        }
        Ok(text)
    }

    /// The chart as a PNG file, with twice as many pixels each way as the SVG has points.
    ///
    /// # Errors
    /// As [`Chart::to_svg`].
    pub fn to_png(&self) -> Result<Vec<u8>, PlotError> {
        let size = self.size()?;
        let (width, height) = (size.0 * PNG_SCALE, size.1 * PNG_SCALE);
        let mut pixels = vec![0; (width * height * 3) as usize];
        {
            let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
            self.draw(&Canvas::new(&area, size, PNG_SCALE)?)?;
            area.present().map_err(PlotError::new)?;
        }
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().map_err(PlotError::new)?;
        writer.write_image_data(&pixels).map_err(PlotError::new)?;
        writer.finish().map_err(PlotError::new)?;
        Ok(file)
    }

    fn size(&self) -> Result<(u32, u32), PlotError> {
        match self {
            Self::Panels(panels) => panels.size(),
            Self::Multiples(chart) => Ok(chart.size()),
            _ => Ok(SIZE),
        }
    }

    /// The room that it takes to the left and to the right of its frame, if it has one.
    fn rooms<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(f64, f64), PlotError> {
        let around = match self {
            Self::Gantt(chart) => chart.around()?,
            Self::Lines(chart) => chart.around()?,
            Self::Areas(chart) => chart.around()?,
            Self::Multiples(chart) => return chart.rooms(canvas),
            Self::Surface(_) | Self::Panels(_) => return Ok((0.0, 0.0)),
        };
        Ok(frame::rooms(canvas, &around))
    }

    fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        match self {
            Self::Gantt(chart) => chart.draw(canvas),
            Self::Lines(chart) => chart.draw(canvas),
            Self::Areas(chart) => chart.draw(canvas),
            Self::Multiples(chart) => chart.draw(canvas),
            Self::Surface(chart) => chart.draw(canvas),
            Self::Panels(chart) => chart.draw(canvas),
        }
    }
}

/// What the README shows, tried.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
