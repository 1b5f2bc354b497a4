//! Several charts in one picture, one below the other, with common left and right edges.

use plotters::prelude::DrawingBackend;

use crate::canvas::Canvas;
use crate::{Chart, PlotError, SIZE};

/// The highest picture, in points.
const HEIGHT_MAX: u32 = 8_000;

/// Charts from above to below.
#[derive(Clone, Debug, PartialEq)]
pub struct Panels(pub Vec<Panel>);

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What is drawn.
    pub chart: Chart,
    /// How high it is, in points of SVG: 160 at least.
    pub height: u32,
}

impl Panels {
    pub(crate) fn size(&self) -> Result<(u32, u32), PlotError> {
        let height: u32 = self.0.iter().map(|panel| panel.height).fold(0, u32::saturating_add);
        if self.0.is_empty() || self.0.iter().any(|panel| panel.height < 160) || height > HEIGHT_MAX {
            return Err(PlotError::new(format!(
                "panels need a height of 160 points each, and of {HEIGHT_MAX} together at the most"
            )));
        }
        Ok((SIZE.0, height))
    }

    pub(crate) fn draw<DB: DrawingBackend>(&self, canvas: &Canvas<'_, DB>) -> Result<(), PlotError> {
        let mut rooms: (f64, f64) = (0.0, 0.0);
        for panel in &self.0 {
            let (left, right) = panel.chart.rooms(canvas)?;
            rooms = (rooms.0.max(left), rooms.1.max(right));
        }
        let mut top = 0.0;
        for panel in &self.0 {
            let height = f64::from(panel.height);
            panel.chart.draw(&canvas.stripe(top, height, rooms))?;
            top += height;
        }
        Ok(())
    }
}
