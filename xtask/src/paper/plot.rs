//! Plots as SVG and PNG, without any library or font of the system.

use std::path::Path;
use std::sync::Once;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::register_font;

/// DejaVu Sans, cut down to ASCII and a few signs; licence beside it.
const FONT: &[u8] = include_bytes!("../../fonts/DejaVuSans-subset.ttf");
const SIZE: (u32, u32) = (960, 540);
/// Where the names of the series stand, right of the plot.
const LEGEND: i32 = 190;
/// Okabe and Ito's colours, which the colour-blind can tell apart.
pub(super) const COLORS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(148, 62, 15),
    RGBColor(120, 94, 200),
    RGBColor(0, 0, 0),
];

/// Makes the font known to the library, once.
pub(super) fn register() {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // A font that cannot be read shows in the first plot's error.
        let _ = register_font("sans-serif", FontStyle::Normal, FONT);
    });
}

/// How a scale of a plot runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Evenly, from 0 where nothing is below.
    Linear,
    /// By powers of ten; values that are not positive are left out.
    Log,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Points joined by a line.
    Line,
    /// Points joined by a broken line: a target, or the paper's value.
    Dashed,
    /// Points alone.
    Points,
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) style: Style,
    pub(crate) points: Vec<(f64, f64)>,
}

/// One plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) x_axis: Axis,
    pub(crate) y_axis: Axis,
    /// Names for x = 0, 1, 2, ... where x is no number.
    pub(crate) x_names: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) legend: Legend,
}

/// Where the legend stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Legend {
    /// In the upper right corner.
    Right,
    /// In the upper left corner.
    Left,
}

impl Plot {
    /// A plot without series, both axes linear.
    pub(crate) fn new(title: impl Into<String>, x: impl Into<String>, y: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            x: x.into(),
            y: y.into(),
            x_axis: Axis::Linear,
            y_axis: Axis::Linear,
            x_names: Vec::new(),
            series: Vec::new(),
            legend: Legend::Right,
        }
    }

    /// Adds a series.
    pub(crate) fn add(&mut self, label: impl Into<String>, style: Style, points: Vec<(f64, f64)>) {
        self.series.push(Series { label: label.into(), style, points });
    }

    /// Whether no series has a point that its axes can show.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|s| self.scaled(s).points.is_empty())
    }

    /// Writes `DIR/NAME.svg` and `DIR/NAME.png`.
    ///
    /// # Errors
    /// Where a file cannot be written, or there is nothing to draw.
    pub(crate) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        register();
        let (svg, png) = (dir.join(format!("{name}.svg")), dir.join(format!("{name}.png")));
        self.draw(SVGBackend::new(&svg, SIZE).into_drawing_area())
            .and_then(|()| super::png::write(&png, SIZE, |area| self.draw(area.clone())))
            .map_err(|e| anyhow!("draw {name}: {e}"))
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, plotters::coord::Shift>) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        let series: Vec<Series> = self.series.iter().map(|s| self.scaled(s)).collect();
        let all = series.iter().flat_map(|s| s.points.iter().copied());
        let (xs, ys): (Vec<f64>, Vec<f64>) = all.unzip();
        let x_range = span(&xs, self.x_axis, if self.x_names.is_empty() { 0.02 } else { 0.08 })
            .ok_or_else(|| anyhow!("nothing to draw"))?;
        let y_range = span(&ys, self.y_axis, 0.06).ok_or_else(|| anyhow!("nothing to draw"))?;
        area.fill(&WHITE)?;
        let named = series.len() > 1;
        let (plot_area, names_area) = area.split_horizontally(SIZE.0 as i32 - if named { LEGEND } else { 0 });
        let mut chart = ChartBuilder::on(&plot_area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(48)
            .y_label_area_size(76)
            .build_cartesian_2d(x_range.clone(), y_range.clone())?;
        let (x_axis, y_axis, names) = (self.x_axis, self.y_axis, &self.x_names);
        let x_text = |x: &f64| {
            if names.is_empty() {
                return label(*x, x_axis);
            }
            let at = x.round();
            let named = (x - at).abs() < 1e-6 && at >= 0.0;
            if named { names.get(at as usize).cloned().unwrap_or_default() } else { String::new() }
        };
        let x_labels = if names.is_empty() { ticks(&x_range, x_axis) } else { names.len() * 2 };
        let y_labels = ticks(&y_range, y_axis);
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_labels(x_labels)
            .y_labels(y_labels)
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .x_label_formatter(&x_text)
            .y_label_formatter(&|y| label(*y, y_axis))
            .draw()?;
        for (i, s) in series.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            let dots = s.points.iter().map(|&p| Circle::new(p, 3, color.filled()));
            match s.style {
                Style::Line => {
                    let line = LineSeries::new(s.points.iter().copied(), color.stroke_width(2));
                    chart.draw_series(line)?;
                    if s.points.len() <= 60 {
                        chart.draw_series(dots)?;
                    }
                }
                Style::Dashed => {
                    let line = DashedLineSeries::new(s.points.iter().copied(), 6, 4, color.stroke_width(2));
                    chart.draw_series(line)?;
                }
                Style::Points => {
                    chart.draw_series(dots)?;
                }
            }
        }
        legend(&names_area, &series)?;
        area.present()?;
        Ok(())
    }

    /// A series as it is drawn: logarithms where an axis is logarithmic.
    fn scaled(&self, s: &Series) -> Series {
        let scale = |v: f64, axis| match axis {
            Axis::Linear => v.is_finite().then_some(v),
            Axis::Log => (v > 0.0).then(|| v.log10()),
        };
        let point = |&(x, y): &(f64, f64)| Some((scale(x, self.x_axis)?, scale(y, self.y_axis)?));
        Series { points: s.points.iter().filter_map(point).collect(), ..s.clone() }
    }
}

/// How many labels a scale gets; logarithms are labelled at whole powers of ten.
fn ticks(range: &std::ops::Range<f64>, axis: Axis) -> usize {
    match axis {
        Axis::Linear => 11,
        Axis::Log => (range.end - range.start).round() as usize + 1,
    }
}

/// The names of the series, below each other; none where there is only one.
fn legend<B: DrawingBackend>(area: &DrawingArea<B, plotters::coord::Shift>, series: &[Series]) -> Result<()>
where
    B::ErrorType: 'static,
{
    for (i, s) in series.iter().enumerate().filter(|_| series.len() > 1) {
        let (y, color) = (56 + 22 * i as i32, COLORS[i % COLORS.len()]);
        let thin = if s.style == Style::Dashed { 1 } else { 2 };
        area.draw(&Rectangle::new([(4, y - thin), (22, y + thin)], color.filled()))?;
        area.draw(&Text::new(s.label.clone(), (28, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// The range that holds all values, a little wider; from 0 for a linear axis of values that are not negative.
fn span(values: &[f64], axis: Axis, margin: f64) -> Option<std::ops::Range<f64>> {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return None;
    }
    if axis == Axis::Log {
        // Whole powers of ten, so that the grid falls on them.
        return Some((low - 0.05).floor()..(high + 0.05).ceil());
    }
    let low = if low >= 0.0 && margin < 0.07 { 0.0 } else { low };
    let wide = (high - low).max(1e-9);
    let below = if low == 0.0 && margin < 0.07 { 0.0 } else { margin * wide };
    Some(low - below..high + margin * wide)
}

fn label(value: f64, axis: Axis) -> String {
    let value = if axis == Axis::Log { 10_f64.powf(value) } else { value };
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let linear = [0.0, 0.25, 12.5, 1000.0].map(|v| label(v, Axis::Linear));
        assert_eq!(linear, ["0", "0.25", "12.5", "1000"]);
        assert_eq!([-2.0, 0.0, 2.0].map(|v| label(v, Axis::Log)), ["0.01", "1", "100"]);
    }

    #[test]
    fn ranges_hold_all_values() {
        assert_eq!(span(&[], Axis::Linear, 0.05), None);
        assert_eq!(span(&[-1.3, 0.2], Axis::Log, 0.05), Some(-2.0..1.0));
        let range = span(&[2.0, 10.0], Axis::Linear, 0.05).expect("values");
        assert!(range.start == 0.0 && range.end > 10.0);
    }

    #[test]
    fn both_files_are_written() {
        let dir = std::env::temp_dir().join(format!("divvy-plot-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut plot = Plot::new("title", "x", "y");
        plot.y_axis = Axis::Log;
        plot.add("a", Style::Line, vec![(0.0, 1.0), (1.0, 100.0)]);
        plot.add("b", Style::Dashed, vec![(0.0, 0.0), (1.0, 10.0)]);
        plot.write(&dir, "p").expect("plots");
        let svg = std::fs::read_to_string(dir.join("p.svg")).expect("svg");
        assert!(svg.contains("title") && svg.contains("</svg>"));
        let png = std::fs::read(dir.join("p.png")).expect("png");
        assert!(png.starts_with(b"\x89PNG") && png.len() > 2_000);
        std::fs::remove_dir_all(&dir).expect("clean up");
        let mut empty = Plot::new("empty", "x", "y");
        empty.add("not a number", Style::Line, vec![(0.0, f64::NAN)]);
        assert!(empty.is_empty() && !plot.is_empty() && empty.write(&dir, "q").is_err());
    }
}
