//! Shapes and letters in points, whatever the picture is written as.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::PlotError;

/// A place in points, from the upper left corner.
pub(crate) type Point = (f64, f64);

pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(crate) const FAINT: RGBColor = RGBColor(0x66, 0x66, 0x66);
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
/// Of curves behind the one that is meant.
pub(crate) const OTHERS: RGBColor = RGBColor(0xc8, 0xc8, 0xc8);

/// Eight colours that people with any colour vision tell apart (Okabe and Ito 2008), black replaced by grey. Beyond
/// eight they come again, darker and then lighter.
pub(crate) fn colour(index: usize) -> RGBColor {
    const COLOURS: [(u8, u8, u8); 8] = [
        (0x00, 0x72, 0xb2),
        (0xe6, 0x9f, 0x00),
        (0x00, 0x9e, 0x73),
        (0xd5, 0x5e, 0x00),
        (0xcc, 0x79, 0xa7),
        (0x56, 0xb4, 0xe9),
        (0xb8, 0xac, 0x1e),
        (0x77, 0x77, 0x77),
    ];
    let (r, g, b) = COLOURS[index % COLOURS.len()];
    let base = RGBColor(r, g, b);
    match index / COLOURS.len() % 3 {
        0 => base,
        1 => mix(base, RGBColor(0, 0, 0), 0.4),
        _ => mix(base, RGBColor(255, 255, 255), 0.5),
    }
}

/// `part` of `other` in `colour`.
pub(crate) fn mix(colour: RGBColor, other: RGBColor, part: f64) -> RGBColor {
    let one = |a: u8, b: u8| (f64::from(a) * (1.0 - part) + f64::from(b) * part).round() as u8;
    RGBColor(one(colour.0, other.0), one(colour.1, other.1), one(colour.2, other.2))
}

/// Where a text stands beside its place.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    /// To the right of it, in the middle of its height.
    Start,
    /// To the left of it, in the middle of its height.
    End,
    /// Below it.
    Below,
    /// Around it, read from below.
    Upwards,
}

/// An area that is drawn on in points.
pub(crate) struct Canvas<'a, DB: DrawingBackend> {
    area: &'a DrawingArea<DB, Shift>,
    /// Where its upper left corner is on the area, in points.
    origin: Point,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// The least room to the left and to the right of a plane chart's frame, in points.
    pub(crate) rooms: (f64, f64),
    scale: f64,
}

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    /// A white canvas of `size` points, `scale` pixels to a point.
    pub(crate) fn new(
        area: &'a DrawingArea<DB, Shift>,
        size: (u32, u32),
        scale: u32,
    ) -> Result<Self, PlotError> {
        static FONT: Once = Once::new();
        FONT.call_once(|| {
            let bytes = include_bytes!("../fonts/DejaVuSans.ttf");
            // A font that is built in can be read; if not, the first text says so.
            let _ = register_font("sans-serif", FontStyle::Normal, bytes);
        });
        area.fill(&WHITE).map_err(PlotError::new)?;
        let (width, height) = (f64::from(size.0), f64::from(size.1));
        Ok(Self { area, origin: (0.0, 0.0), width, height, rooms: (0.0, 0.0), scale: f64::from(scale) })
    }

    /// A stripe of this canvas over its whole width, in which a chart has at least these rooms beside it.
    pub(crate) fn stripe(&self, top: f64, height: f64, rooms: (f64, f64)) -> Self {
        Self { origin: (self.origin.0, self.origin.1 + top), height, rooms, ..*self }
    }

    fn pixel(&self, (x, y): Point) -> (i32, i32) {
        let (x, y) = (x + self.origin.0, y + self.origin.1);
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    /// A line through `points`.
    pub(crate) fn line(&self, points: &[Point], colour: RGBColor, width: f64) -> Result<(), PlotError> {
        let points: Vec<_> = points.iter().map(|&point| self.pixel(point)).collect();
        let style = colour.stroke_width((width * self.scale).round().max(1.0) as u32);
        self.area.draw(&PathElement::new(points, style)).map_err(PlotError::new)
    }

    /// A line of dashes through `points`.
    pub(crate) fn dashes(&self, points: &[Point], colour: RGBColor, width: f64) -> Result<(), PlotError> {
        const DASH: f64 = 6.0;
        let mut travelled = 0.0;
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let length = (x1 - x0).hypot(y1 - y0);
            let at = |along: f64| (x0 + (x1 - x0) * along / length, y0 + (y1 - y0) * along / length);
            let mut along = 0.0;
            while along < length {
                let phase = travelled % (2.0 * DASH);
                let left = if phase < DASH { DASH - phase } else { 2.0 * DASH - phase };
                let step = left.max(0.01).min(length - along);
                if phase < DASH {
                    self.line(&[at(along), at(along + step)], colour, width)?;
                }
                along += step;
                travelled += step;
            }
        }
        Ok(())
    }

    /// The inside of a polygon.
    pub(crate) fn fill(&self, points: &[Point], colour: RGBColor) -> Result<(), PlotError> {
        let points: Vec<_> = points.iter().map(|&point| self.pixel(point)).collect();
        self.area.draw(&Polygon::new(points, colour.filled())).map_err(PlotError::new)
    }

    /// A filled rectangle, at least one pixel each way.
    pub(crate) fn rect(&self, from: Point, to: Point, colour: RGBColor) -> Result<(), PlotError> {
        let (from, to) = (self.pixel(from), self.pixel(to));
        // Both corners are inside.
        let to = ((to.0 - 1).max(from.0), (to.1 - 1).max(from.1));
        if to.0 == from.0 {
            // A rectangle of one column would not be filled.
            let column = PathElement::new([from, to], colour.stroke_width(1));
            return self.area.draw(&column).map_err(PlotError::new);
        }
        self.area.draw(&Rectangle::new([from, to], colour.filled())).map_err(PlotError::new)
    }

    /// A dot.
    pub(crate) fn dot(&self, at: Point, radius: f64, colour: RGBColor) -> Result<(), PlotError> {
        let radius = (radius * self.scale).round() as i32;
        self.area.draw(&Circle::new(self.pixel(at), radius, colour.filled())).map_err(PlotError::new)
    }

    /// A line of letters, `size` points high.
    pub(crate) fn text(
        &self,
        text: &str,
        at: Point,
        anchor: Anchor,
        size: f64,
        colour: RGBColor,
    ) -> Result<(), PlotError> {
        let font = ("sans-serif", size * self.scale).into_font();
        let font =
            if matches!(anchor, Anchor::Upwards) { font.transform(FontTransform::Rotate270) } else { font };
        let pos = match anchor {
            Anchor::Start => Pos::new(HPos::Left, VPos::Center),
            Anchor::End => Pos::new(HPos::Right, VPos::Center),
            Anchor::Below => Pos::new(HPos::Center, VPos::Top),
            Anchor::Upwards => Pos::new(HPos::Center, VPos::Center),
        };
        let style = TextStyle::from(font).color(&colour).pos(pos);
        // In pixels the middle of the box is taken, which is above that of the letters; in SVG that of the letters.
        let lower =
            if self.scale > 1.0 && matches!(anchor, Anchor::Start | Anchor::End) { 0.13 * size } else { 0.0 };
        let at = self.pixel((at.0, at.1 + lower));
        self.area.draw(&Text::new(text.to_owned(), at, style)).map_err(PlotError::new)
    }

    /// The width of a line of letters, in points.
    pub(crate) fn text_width(&self, text: &str, size: f64) -> f64 {
        let measured = ("sans-serif", size * self.scale).into_font().box_size(text);
        measured.map_or(text.chars().count() as f64 * size * 0.6, |(width, _)| f64::from(width) / self.scale)
    }

    /// As much of `text` as is at most `width` points wide, `…` in place of the rest.
    pub(crate) fn shortened(&self, text: &str, size: f64, width: f64) -> String {
        if self.text_width(text, size) <= width {
            return text.into();
        }
        let mut chars: Vec<char> = text.chars().collect();
        loop {
            chars.pop();
            let short: String = chars.iter().collect::<String>() + "…";
            if chars.is_empty() || self.text_width(&short, size) <= width {
                return short;
            }
        }
    }
}
