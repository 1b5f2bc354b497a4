//! A picture of many rows: a line for each program, panels side by side, dots on it.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::paper::plot::{COLORS, register};

/// Rows of dots.
pub(super) struct Dots {
    pub(super) title: String,
    /// Names of the rows.
    pub(super) rows: Vec<String>,
    /// Names of the kinds of dots; the last lies on top.
    pub(super) series: Vec<String>,
    pub(super) panels: Vec<Panel>,
}

/// One panel: for each row, dots as `(series, value)`.
pub(super) struct Panel {
    pub(super) title: String,
    /// What its scale measures, and in what.
    pub(super) axis: String,
    /// Its scale. What lies beyond is drawn at the edge, as a triangle.
    pub(super) range: (f64, f64),
    /// Where a line marks what is wanted.
    pub(super) target: Option<f64>,
    pub(super) dots: Vec<Vec<(usize, f64)>>,
}

const WIDTH: i32 = 1100;
const NAMES: i32 = 230;
const ROW: i32 = 17;
const TOP: i32 = 84;
const BOTTOM: i32 = 56;
const GAP: i32 = 26;
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Parts of a panel's scale.
const TICKS: i32 = 4;

impl Dots {
    /// Writes `DIR/NAME.svg` and `DIR/NAME.png`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub(super) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        register();
        let size = (WIDTH as u32, (TOP + BOTTOM + ROW * self.rows.len() as i32) as u32);
        let (svg, png) = (dir.join(format!("{name}.svg")), dir.join(format!("{name}.png")));
        self.draw(&SVGBackend::new(&svg, size).into_drawing_area())
            .and_then(|()| crate::paper::png::write(&png, size, |area| self.draw(area)))
            .map_err(|e| anyhow!("draw {name}: {e}"))
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, plotters::coord::Shift>) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        area.fill(&WHITE)?;
        area.draw(&Text::new(self.title.clone(), (14, 12), ("sans-serif", 20)))?;
        let mut x = 14;
        for (i, name) in self.series.iter().enumerate() {
            area.draw(&Circle::new((x + 5, 48), self.radius(i), color(i, self.series.len()).filled()))?;
            area.draw(&Text::new(name.clone(), (x + 15, 41), ("sans-serif", 14)))?;
            x += 40 + 8 * name.len() as i32;
        }
        for (i, name) in self.rows.iter().enumerate() {
            area.draw(&Text::new(name.clone(), (14, row(i) - 7), ("sans-serif", 13)))?;
        }
        let n = self.panels.len().max(1) as i32;
        let wide = (WIDTH - NAMES - GAP * n) / n;
        for (i, panel) in self.panels.iter().enumerate() {
            self.panel(area, panel, NAMES + (wide + GAP) * i as i32, wide)?;
        }
        area.present()?;
        Ok(())
    }

    /// Those below are larger, so that one that lies on top of its equal hides nothing.
    fn radius(&self, series: usize) -> i32 {
        4 + (self.series.len() - 1 - series) as i32
    }

    fn panel<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
        panel: &Panel,
        left: i32,
        wide: i32,
    ) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        let (low, high) = panel.range;
        let bottom = TOP + ROW * self.rows.len() as i32;
        let at = |value: f64| left + ((value - low) / (high - low) * f64::from(wide)).round() as i32;
        area.draw(&Text::new(panel.title.clone(), (left, TOP - 20), ("sans-serif", 15)))?;
        for tick in 0..=TICKS {
            let value = low + (high - low) * f64::from(tick) / f64::from(TICKS);
            area.draw(&PathElement::new(vec![(at(value), TOP), (at(value), bottom)], GRID.stroke_width(1)))?;
            let text = label(value);
            let middle = at(value) - 4 * text.len() as i32;
            area.draw(&Text::new(text, (middle, bottom + 8), ("sans-serif", 13)))?;
        }
        let middle = left + wide / 2 - 7 * panel.axis.len() as i32 / 2;
        area.draw(&Text::new(panel.axis.clone(), (middle.max(left), bottom + 28), ("sans-serif", 14)))?;
        if let Some(target) = panel.target {
            let line = PathElement::new(vec![(at(target), TOP), (at(target), bottom)], BLACK.stroke_width(1));
            area.draw(&line)?;
        }
        for (i, dots) in panel.dots.iter().enumerate() {
            area.draw(&PathElement::new(vec![(left, row(i)), (left + wide, row(i))], GRID.stroke_width(1)))?;
            for &(series, value) in dots.iter().filter(|(_, value)| value.is_finite()) {
                let (x, style) = (at(value.clamp(low, high)), color(series, self.series.len()).filled());
                if (low..=high).contains(&value) {
                    area.draw(&Circle::new((x, row(i)), self.radius(series), style))?;
                } else {
                    let tip = if value > high { 7 } else { -7 };
                    let y = row(i);
                    area.draw(&Polygon::new(vec![(x, y - 5), (x, y + 5), (x + tip, y)], style))?;
                }
            }
        }
        Ok(())
    }
}

/// Where a row is.
fn row(i: usize) -> i32 {
    TOP + ROW * i as i32 + ROW / 2
}

/// The last is blue, as divvy is, and those before it orange and grey.
fn color(series: usize, n: usize) -> RGBColor {
    [COLORS[0], COLORS[1], COLORS[6]].get(n - 1 - series).copied().unwrap_or(BLACK)
}

fn label(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let dots = vec![vec![(0, 10.0), (1, 250.0)], vec![(0, f64::NAN)]];
        let panel = Panel {
            title: "3:1".into(),
            axis: "part, %".into(),
            range: (0.0, 100.0),
            target: Some(75.0),
            dots,
        };
        let rows = vec!["make".to_owned(), "sort".to_owned()];
        let picture =
            Dots { title: "split".into(), rows, series: vec!["a".into(), "b".into()], panels: vec![panel] };
        picture.write(dir.path(), "p").expect("drawn");
        let svg = std::fs::read_to_string(dir.path().join("p.svg")).expect("svg");
        assert!(["make", "sort", "3:1", "part, %", "polygon"].iter().all(|part| svg.contains(part)), "{svg}");
        assert!(std::fs::read(dir.path().join("p.png")).expect("png").starts_with(b"\x89PNG"));
        assert_eq!([0.0, 0.5, 120.0, 0.126].map(label), ["0", "0.5", "120", "0.13"]);
    }
}
