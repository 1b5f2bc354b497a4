//! Signs for how much of a time something happened, and texts of a given width.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Which signs a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signs {
    /// Eighths of a block.
    Blocks,
    /// Plain ASCII.
    Ascii,
}

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '%', '#'];

/// The sign for a part from 0 to 1. Only nothing is blank, and only (nearly) all is full.
pub(crate) fn level(part: f64, signs: Signs) -> char {
    let signs = match signs {
        Signs::Blocks => BLOCKS,
        Signs::Ascii => ASCII,
    };
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    if part < 1e-6 {
        return signs[0];
    }
    signs[((part * 8.0).round() as usize).clamp(1, 8)]
}

/// A text that a terminal shows as it is: what would move its cursor, colour it or turn the direction of what follows is
/// written out. For whatever somebody else has chosen: names of processes, and what users have asked for.
pub(crate) fn plain(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if is_unseen(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// Whether a terminal does something with `c` instead of showing it.
fn is_unseen(c: char) -> bool {
    // Marks of direction, embeddings, overrides and isolates; what has no width; ends of lines and paragraphs.
    let turns = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || turns
}

/// Words in lines of at most `width` columns, where each fits.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.width() + 1 + word.width() <= width => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `text` in exactly `width` columns: filled up with spaces, or cut with `…` at the end. What would move the cursor is
/// replaced.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if is_unseen(c) { '?' } else { c }).collect();
    if clean.width() <= width {
        let fill = width - clean.width();
        return clean + &" ".repeat(fill);
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in clean.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    if width > 0 {
        out.push('…');
        used += 1;
    }
    out + &" ".repeat(width.saturating_sub(used))
}

/// The same, at the right.
pub(crate) fn fit_right(text: &str, width: usize) -> String {
    let cut = fit(text, width);
    let trimmed = cut.trim_end();
    " ".repeat(width.saturating_sub(trimmed.width())) + trimmed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rise_and_their_ends_mean_nothing_and_all() {
        let line = |signs| (0..=8).map(|i| level(f64::from(i) / 8.0, signs)).collect::<String>();
        assert_eq!(line(Signs::Blocks), " ▁▂▃▄▅▆▇█");
        assert_eq!(line(Signs::Ascii), " .:-=+*%#");
        assert_eq!(level(0.001, Signs::Blocks), '▁');
        assert_eq!(
            (level(2.0, Signs::Ascii), level(-1.0, Signs::Ascii), level(f64::NAN, Signs::Ascii)),
            ('#', ' ', ' ')
        );
    }

    #[test]
    fn texts_have_the_width_that_was_asked_for() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日… ");
        assert_eq!(fit("a\x1b[2J\n", 6), "a?[2J?");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit_right("7", 3), "  7");
        assert_eq!(fit_right("12345", 3), "12…");
    }
}
