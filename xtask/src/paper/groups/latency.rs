use crate::paper::Setting;
use anyhow::Result;
pub(super) fn run(_s: &mut Setting) -> Result<()> {
    Ok(())
}
