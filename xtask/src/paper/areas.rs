//! Pictures that are no lines: tables of coloured cells (error surfaces) and stacked areas (processor shares).

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::plot::{COLORS, color_of, register};

/// Panels of coloured cells, two abreast.
pub(super) struct Heat {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<String>,
    pub(super) panels: Vec<HeatPanel>,
}

/// One table of cells, `cells[row][column]`.
pub(super) struct HeatPanel {
    pub(super) title: String,
    pub(super) cells: Vec<Vec<f64>>,
}

/// Panels of stacked areas, two abreast.
pub(super) struct Areas {
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) labels: Vec<String>,
    pub(super) panels: Vec<AreaPanel>,
}

/// Samples of what is stacked, each `(x, heights)`; the heights hold until the next sample.
pub(super) struct AreaPanel {
    pub(super) title: String,
    pub(super) samples: Vec<(f64, Vec<f64>)>,
}

const WIDTH: u32 = 1000;
const PANEL_HEIGHT: u32 = 250;
const TITLE_HEIGHT: u32 = 40;
/// The room for the names, right of each panel of areas.
const NAMES: i32 = 92;

type Area<B> = DrawingArea<B, plotters::coord::Shift>;

/// Draws a picture of `panels` panels as `DIR/NAME.svg` and `.png`.
macro_rules! write_both {
    ($self:ident, $dir:ident, $name:ident, $panels:expr) => {{
        register();
        let size = (WIDTH, TITLE_HEIGHT + PANEL_HEIGHT * ($panels as u32).div_ceil(2));
        let (svg, png) = ($dir.join(format!("{}.svg", $name)), $dir.join(format!("{}.png", $name)));
        $self
            .draw(&SVGBackend::new(&svg, size).into_drawing_area())
            .and_then(|()| super::png::write(&png, size, |area| $self.draw(area)))
            .map_err(|e| anyhow!("draw {}: {e}", $name))
    }};
}

impl Heat {
    /// Writes `DIR/NAME.svg` and `DIR/NAME.png`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub(super) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        write_both!(self, dir, name, self.panels.len())
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        area.fill(&WHITE)?;
        let area = area.titled(&self.title, ("sans-serif", 20))?;
        for (panel, area) in self.panels.iter().zip(area.split_evenly((self.panels.len().div_ceil(2), 2))) {
            self.draw_panel(panel, &area)?;
        }
        area.present()?;
        Ok(())
    }

    fn draw_panel<B: DrawingBackend>(&self, panel: &HeatPanel, area: &Area<B>) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        let (width, height) = area.dim_in_pixel();
        let (left, top) = (60, 34);
        let cell_width = (width as i32 - left - 16) / self.columns.len().max(1) as i32;
        let cell_height = (height as i32 - top - 26) / self.rows.len().max(1) as i32;
        let text = ("sans-serif", 13).into_font().color(&BLACK);
        area.draw(&Text::new(panel.title.clone(), (left, 12), ("sans-serif", 15).into_font()))?;
        let most = panel.cells.iter().flatten().fold(0.0_f64, |most, v| most.max(v.abs()));
        for (r, (name, row)) in self.rows.iter().zip(&panel.cells).enumerate() {
            let y = top + r as i32 * cell_height;
            area.draw(&Text::new(name.clone(), (6, y + cell_height / 2 - 6), text.clone()))?;
            for (c, &value) in row.iter().enumerate() {
                let x = left + c as i32 * cell_width;
                let depth = if most > 0.0 { value.abs() / most } else { 0.0 };
                let shade = |full: u8| 255 - (f64::from(255 - full) * depth * 0.75) as u8;
                let full = if value < 0.0 { COLORS[0] } else { COLORS[1] };
                let color = RGBColor(shade(full.0), shade(full.1), shade(full.2));
                area.draw(&Rectangle::new(
                    [(x, y), (x + cell_width - 2, y + cell_height - 2)],
                    color.filled(),
                ))?;
                let number = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
                area.draw(&Text::new(number, (x + 6, y + cell_height / 2 - 6), text.clone()))?;
            }
        }
        for (c, name) in self.columns.iter().enumerate() {
            let at = (left + c as i32 * cell_width + 6, top + self.rows.len() as i32 * cell_height + 4);
            area.draw(&Text::new(name.clone(), at, text.clone()))?;
        }
        Ok(())
    }
}

impl Areas {
    /// Writes `DIR/NAME.svg` and `DIR/NAME.png`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub(super) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        write_both!(self, dir, name, self.panels.len())
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        area.fill(&WHITE)?;
        let area = area.titled(&self.title, ("sans-serif", 20))?;
        for (panel, area) in self.panels.iter().zip(area.split_evenly((self.panels.len().div_ceil(2), 2))) {
            self.draw_panel(panel, &area)?;
        }
        area.present()?;
        Ok(())
    }

    fn draw_panel<B: DrawingBackend>(&self, panel: &AreaPanel, area: &Area<B>) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        let (from, to) = (panel.samples.first(), panel.samples.last());
        let (Some((from, _)), Some((to, _))) = (from, to) else { return Err(anyhow!("nothing to draw")) };
        let (area, names) = area.split_horizontally(area.dim_in_pixel().0 as i32 - NAMES);
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(52)
            .build_cartesian_2d(*from..*to, 0.0..1.0)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .label_style(("sans-serif", 12))
            .draw()?;
        for (k, label) in self.labels.iter().enumerate() {
            let color = color_of(k);
            let edge = |heights: &[f64], upto: usize| heights[..upto].iter().sum::<f64>();
            let upper = panel.samples.iter().map(|(x, h)| (*x, edge(h, k + 1)));
            let lower = panel.samples.iter().rev().map(|(x, h)| (*x, edge(h, k)));
            let area = Polygon::new(upper.chain(lower).collect::<Vec<_>>(), color.filled());
            chart.draw_series(std::iter::once(area))?;
            let y = 40 + 20 * k as i32;
            names.draw(&Rectangle::new([(4, y - 5), (16, y + 5)], color.filled()))?;
            names.draw(&Text::new(label.clone(), (22, y - 6), ("sans-serif", 13).into_font()))?;
        }
        Ok(())
    }
}
