//! Plots as SVG and PNG, without any library or font of the system.

use std::path::Path;
use std::sync::Once;

use anyhow::{Result, anyhow};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::register_font;

/// DejaVu Sans, cut down to ASCII and a few signs; licence beside it.
const FONT: &[u8] = include_bytes!("../../fonts/DejaVuSans-subset.ttf");
const SIZE: (u32, u32) = (960, 540);
/// How wide a plot is, within its axes.
const WIDTH: i32 = 640;
/// Where the names of the series stand, right of the plot.
const LEGEND: i32 = 212;
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

/// The colour of a series. Beyond ten they come again, paler.
pub(super) fn color_of(series: usize) -> RGBColor {
    let RGBColor(r, g, b) = COLORS[series % COLORS.len()];
    let paler = |part: u8| if series < COLORS.len() { part } else { part.midpoint(255) };
    RGBColor(paler(r), paler(g), paler(b))
}

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
    /// Evenly: upwards from 0 where nothing is below and all is not far above, to the right from where the points begin.
    Linear,
    /// By powers of ten; values that are not positive are left out.
    Log,
    /// Rows of whole numbers, with half of one's height above and below.
    Rows,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Points joined by a line.
    Line,
    /// Points joined by a broken line: a target, or the paper's value.
    Dashed,
    /// Points alone; where x has names, bars side by side, from the lower edge where y is logarithmic.
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
        let x_range = if self.x_names.is_empty() {
            across(&xs, self.x_axis)
        } else {
            Some(-0.5..self.x_names.len() as f64 - 0.5)
        };
        let x_range = x_range.ok_or_else(|| anyhow!("nothing to draw"))?;
        let with_bars = !self.x_names.is_empty() && series.iter().any(|s| s.style == Style::Points);
        let y_range = span(&ys, self.y_axis, 0.06, with_bars).ok_or_else(|| anyhow!("nothing to draw"))?;
        let y_labels = ticks(&y_range, self.y_axis, &ys);
        let y_room = room_beside(&y_range, y_labels, self.y_axis);
        area.fill(&WHITE)?;
        let named = series.len() > 1;
        let (plot_area, names_area) = area.split_horizontally(SIZE.0 as i32 - if named { LEGEND } else { 0 });
        let mut chart = ChartBuilder::on(&plot_area)
            .caption(&self.title, ("sans-serif", fitting(23, &self.title, WIDTH)))
            .margin(14)
            .x_label_area_size(54)
            .y_label_area_size(y_room)
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
        let x_labels = if names.is_empty() { ticks(&x_range, x_axis, &xs) } else { names.len() * 2 };
        let widest = names.iter().max_by_key(|name| name.len()).map_or("", String::as_str);
        let names_size = fitting(17, widest, WIDTH / names.len().max(1) as i32 - 8);
        let mut mesh = chart.configure_mesh();
        if !names.is_empty() {
            // A line between two names would mean nothing.
            mesh.disable_x_mesh();
        }
        mesh.x_desc(&self.x)
            .y_desc(&self.y)
            .x_labels(x_labels)
            .y_labels(y_labels)
            .max_light_lines(0)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_label_style(("sans-serif", names_size))
            .y_label_style(("sans-serif", 17))
            .axis_desc_style(("sans-serif", 18))
            .x_label_formatter(&x_text)
            .y_label_formatter(&|y| label(*y, y_axis))
            .draw()?;
        let bars = Bars::of(&series, &self.x_names, y_range.start);
        for (i, s) in series.iter().enumerate() {
            let color = color_of(i);
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
                    let line = DashedLineSeries::new(bars.widened(&s.points), 6, 4, color.stroke_width(2));
                    chart.draw_series(line)?;
                }
                Style::Points if bars.is_empty() => {
                    chart.draw_series(dots)?;
                }
                Style::Points => {
                    let bar = |&point: &(f64, f64)| Rectangle::new(bars.corners(i, point), color.filled());
                    chart.draw_series(s.points.iter().map(bar))?;
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
            Axis::Linear | Axis::Rows => v.is_finite().then_some(v),
            Axis::Log => (v > 0.0).then(|| v.log10()),
        };
        let point = |&(x, y): &(f64, f64)| Some((scale(x, self.x_axis)?, scale(y, self.y_axis)?));
        Series { points: s.points.iter().filter_map(point).collect(), ..s.clone() }
    }
}

/// Where bars stand, in a plot whose x has names.
struct Bars {
    /// The series that are drawn so, in order.
    series: Vec<usize>,
    wide: f64,
    /// Where they begin.
    floor: f64,
}

impl Bars {
    /// Of all bars of one name together, as a part of the room between two names.
    const GROUP: f64 = 0.8;

    fn of(series: &[Series], names: &[String], floor: f64) -> Self {
        let drawn = series.iter().enumerate().filter(|(_, s)| s.style == Style::Points && !names.is_empty());
        let series: Vec<usize> = drawn.map(|(i, _)| i).collect();
        Self { wide: Self::GROUP / series.len().max(1) as f64, series, floor }
    }

    fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The corners of the bar of a series' point: at the name that is nearest, in its series' place there.
    fn corners(&self, series: usize, (x, y): (f64, f64)) -> [(f64, f64); 2] {
        let place = self.series.iter().position(|&i| i == series).unwrap_or(0) as f64;
        let left = x.round() - Self::GROUP / 2.0 + place * self.wide;
        [(left, self.floor), (left + self.wide * 0.92, y)]
    }

    /// A line from name to name, out to the outer edges of the bars.
    fn widened(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let mut points = points.to_vec();
        if let [first, .., last] = points.as_mut_slice()
            && !self.series.is_empty()
        {
            first.0 -= 0.5;
            last.0 += 0.5;
        }
        points
    }
}

/// The size of letters, `most` at most, in which a text is about `room` wide at most.
fn fitting(most: i32, text: &str, room: i32) -> i32 {
    // A letter is about half as wide as it is high.
    (room * 2 / text.chars().count().max(1) as i32).clamp(9, most)
}

/// The room for the labels beside a plot, and for the title of their axis at the outer edge of it.
fn room_beside(range: &std::ops::Range<f64>, labels: usize, axis: Axis) -> u32 {
    const LETTER: usize = 10;
    let marks = RangedCoordf64::from(range.clone()).key_points(labels);
    let widest = marks.iter().map(|&mark| label(mark, axis).len()).max().unwrap_or(0);
    (38 + widest * LETTER) as u32
}

/// How many labels a scale gets: logarithms at whole powers of ten, a few whole numbers each.
fn ticks(range: &std::ops::Range<f64>, axis: Axis, values: &[f64]) -> usize {
    const FEW: f64 = 16.0;
    let whole = values.iter().all(|v| v.fract() == 0.0);
    match axis {
        Axis::Rows => (range.end - range.start).round() as usize + 1,
        Axis::Linear if whole && range.end - range.start < FEW => {
            (range.end.floor() - range.start.ceil()) as usize + 1
        }
        Axis::Linear => 11,
        Axis::Log => (range.end.floor() - range.start.ceil()) as usize + 1,
    }
}

/// The names of the series, below each other; none where there is only one.
fn legend<B: DrawingBackend>(area: &DrawingArea<B, plotters::coord::Shift>, series: &[Series]) -> Result<()>
where
    B::ErrorType: 'static,
{
    for (i, s) in series.iter().enumerate().filter(|_| series.len() > 1) {
        let (y, color) = (56 + 22 * i as i32, color_of(i));
        let parts: &[(i32, i32, i32)] = match s.style {
            Style::Line => &[(4, 22, 1)],
            Style::Dashed => &[(4, 9, 1), (12, 17, 1), (20, 25, 1)],
            Style::Points => &[(8, 18, 5)],
        };
        for &(from, to, half) in parts {
            area.draw(&Rectangle::new([(from, y - half), (to, y + half)], color.filled()))?;
        }
        area.draw(&Text::new(s.label.clone(), (30, y - 8), ("sans-serif", 16)))?;
    }
    Ok(())
}

/// How narrow a band of values is, by how far it is from 0, that an axis need not begin there.
const FAR: f64 = 0.5;
/// Beyond the outermost powers of ten, as a power of ten.
const EDGE: f64 = 0.03;

/// The range of x: from where the points begin to where they end, and a little more. A scale of powers of ten that has fewer than
/// two of them in it is widened to whole ones.
fn across(values: &[f64], axis: Axis) -> Option<std::ops::Range<f64>> {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return None;
    }
    let more = ((high - low) * 0.02).max(1e-9);
    if axis == Axis::Log && (high + more).floor() - (low - more).ceil() < 1.0 {
        return span(values, axis, 0.02, false);
    }
    // A run that begins at 0 begins at the axis.
    let low = if axis == Axis::Linear && low == 0.0 { 0.0 } else { low - more };
    Some(low..high + more)
}

/// The range of y: it holds all values and is a little wider. A linear axis begins at 0 where no value is negative: unless all are far
/// from it, in a band that is narrower than half of the way there, and no bar `from_zero` would be cut off.
fn span(values: &[f64], axis: Axis, margin: f64, from_zero: bool) -> Option<std::ops::Range<f64>> {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return None;
    }
    if axis == Axis::Rows {
        return Some(low - 0.5..high + 0.5);
    }
    if axis == Axis::Log {
        // Whole powers of ten, so that the grid falls on them, and a little more, so that no point is cut by the frame.
        let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
        return Some(low - EDGE..high + EDGE);
    }
    let far = !from_zero && low > 0.0 && high > low && high - low < low * FAR;
    let low = if far { low } else { low.min(0.0) };
    let wide = (high - low).max(1e-9);
    let below = if low == 0.0 { 0.0 } else { margin * wide };
    Some(low - below..high + margin * wide)
}

fn label(value: f64, axis: Axis) -> String {
    let value = if axis == Axis::Log { 10_f64.powf(value) } else { value };
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        return "0".to_owned(); // Of a tick that rounding has put beside it.
    }
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let linear = [0.0, 0.25, 12.5, 1000.0].map(|v| label(v, Axis::Linear));
        assert_eq!(linear, ["0", "0.25", "12.5", "1000"]);
        assert_eq!([-1e-17, 1e-17].map(|v| label(v, Axis::Linear)), ["0", "0"]);
        assert_eq!([-2.0, 0.0, 2.0].map(|v| label(v, Axis::Log)), ["0.01", "1", "100"]);
    }

    #[test]
    fn ranges_hold_all_values() {
        assert_eq!(span(&[], Axis::Linear, 0.05, false), None);
        assert_eq!(span(&[-1.3, 0.2], Axis::Log, 0.05, false), Some(-2.0 - EDGE..1.0 + EDGE));
        assert_eq!(span(&[1.0], Axis::Log, 0.05, false), Some(1.0 - EDGE..2.0 + EDGE));
        let range = span(&[2.0, 10.0], Axis::Linear, 0.05, false).expect("values");
        assert!(range.start == 0.0 && range.end > 10.0);
        let range = span(&[-2.0, 10.0], Axis::Linear, 0.05, false).expect("values");
        assert!(range.start < -2.0);
        assert_eq!(span(&[1.0, 5.0], Axis::Rows, 0.05, false), Some(0.5..5.5), "no row 0");
        // Values in a narrow band far from 0, and bars of the same.
        let range = span(&[6.0, 7.7], Axis::Linear, 0.05, false).expect("values");
        assert!(range.start > 5.8 && range.start < 6.0 && range.end > 7.7, "{range:?}");
        assert_eq!(span(&[6.0, 7.7], Axis::Linear, 0.05, true).expect("values").start, 0.0);
        assert_eq!(span(&[7.0, 7.0], Axis::Linear, 0.05, false).expect("values").start, 0.0, "no band");
    }

    #[test]
    fn the_axis_below_begins_where_the_points_do() {
        let range = across(&[310.0, 410.0], Axis::Linear).expect("values");
        assert!((300.0..310.0).contains(&range.start) && (410.0..420.0).contains(&range.end), "{range:?}");
        assert_eq!(across(&[0.0, 60.0], Axis::Linear).expect("values").start, 0.0);
        // 0.02 to 10 needs no room up to 100; 2 to 8 needs a power of ten to be labelled.
        let range = across(&[0.02_f64.log10(), 1.0], Axis::Log).expect("values");
        assert!(range.start > -1.8 && range.end < 1.1, "{range:?}");
        assert_eq!(across(&[2_f64.log10(), 8_f64.log10()], Axis::Log), Some(-EDGE..1.0 + EDGE));
        assert_eq!(across(&[], Axis::Linear), None);
    }

    #[test]
    fn letters_become_smaller_where_there_is_little_room() {
        assert_eq!(fitting(23, "short", WIDTH), 23);
        let title = "Fig. 9 with exact: fraction of each cycle; B sleeps for 240 ms after 80 ms of CPU";
        assert_eq!(fitting(23, title, WIDTH), 15);
        assert_eq!(fitting(17, "skewed 20", 63), 14);
        assert_eq!(fitting(17, "", 10), 17);
    }

    #[test]
    fn whole_numbers_are_labelled_as_such() {
        assert_eq!(ticks(&(0.0..5.3), Axis::Linear, &[1.0, 5.0]), 6);
        assert_eq!(ticks(&(0.0..5.3), Axis::Linear, &[1.5, 5.0]), 11);
        assert_eq!(ticks(&(-1.8..1.1), Axis::Log, &[-1.7, 1.0]), 3);
    }

    #[test]
    fn bars_of_one_name_stand_side_by_side() {
        let series = |style, x| Series { label: String::new(), style, points: vec![(x, 4.0)] };
        let all = [series(Style::Points, 0.97), series(Style::Dashed, 1.0), series(Style::Points, 1.03)];
        let names = ["a".to_owned(), "b".to_owned()];
        let bars = Bars::of(&all, &names, -2.0);
        let [(left, floor), (right, top)] = bars.corners(0, (0.97, 4.0));
        let [(next, _), (last, _)] = bars.corners(2, (1.03, 4.0));
        assert!(
            0.5 < left && left < right && right <= next && next < last && last < 1.5,
            "{left} {right} {next} {last}"
        );
        assert_eq!((floor, top), (-2.0, 4.0));
        assert_eq!(bars.widened(&[(0.0, 1.0), (1.0, 1.0)]), [(-0.5, 1.0), (1.5, 1.0)]);
        assert!(Bars::of(&all, &[], 0.0).is_empty(), "numbers have points");
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
