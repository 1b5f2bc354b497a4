//! Pictures in pixels.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::prelude::BitMapBackend;

/// Writes what `draw` draws to `path`, `size` pixels wide and high.
///
/// # Errors
/// Where it cannot be drawn, or the file not be written.
pub(super) fn write(
    path: &Path,
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<BitMapBackend<'_>, Shift>) -> Result<()>,
) -> Result<()> {
    let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
        draw(&area)?;
        area.present().map_err(|e| anyhow!("draw {}: {e}", path.display()))?;
    }
    let file = std::fs::File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels).with_context(|| format!("write {}", path.display()))?;
    writer.finish().with_context(|| format!("write {}", path.display()))
}
