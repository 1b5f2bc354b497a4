//! Plain tables: columns that line up.

/// Lays out rows of cells, the first row being the names of columns. The first column and words stand to the left,
/// numbers to the right.
pub(super) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let nr = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..nr).map(|column| width(column).unwrap_or(0)).collect();
    let word = |row: &Vec<String>, column: usize| {
        row.get(column).is_some_and(|cell| cell.starts_with(|c: char| c.is_alphabetic()) && cell != "inf")
    };
    let to_left: Vec<bool> =
        (0..nr).map(|column| column == 0 || rows.iter().skip(1).any(|row| word(row, column))).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).enumerate();
            let text: Vec<String> = cells
                .map(
                    |(i, (cell, &width))| {
                        if to_left[i] { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                    },
                )
                .collect();
            text.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// Five significant digits; nothing where there is no number.
pub(super) fn number(x: f64) -> String {
    if !x.is_finite() {
        return "-".into();
    }
    if x != 0.0 && !(1e-4..1e9).contains(&x.abs()) {
        return format!("{x:.4e}");
    }
    let before = if x == 0.0 { 0 } else { x.abs().log10().floor() as i32 };
    let decimals = (4 - before).clamp(0, 8) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "b", "c"], ["long", "1", "word"], ["x", "22", ""]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(lines(&rows), ["a      b  c", "long   1  word", "x     22"]);
    }

    #[test]
    fn numbers_have_five_digits() {
        for (x, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.333_333_3, "0.33333"),
            (-2.5, "-2.5"),
            (123_456.7, "123457"),
            (0.012_345_6, "0.012346"),
            (1e-7, "1.0000e-7"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(x), text);
        }
    }
}
