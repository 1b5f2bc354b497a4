//! What was meant by a word that was misspelt.

/// `; did you mean 'exact'?`, where a known word is so like `word` that no more than a third of its letters (at least one)
/// were mistaken; else nothing.
#[must_use]
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mistakes = known.into_iter().filter_map(|known| {
        let (of_word, of_known) = (word.chars().count(), known.chars().count());
        let letters = of_word.max(of_known);
        // So many letters are missing in any case; to compare costs the product of both.
        if of_word.abs_diff(of_known) > letters.div_ceil(3) {
            return None;
        }
        // A word that shares no letter is no misspelling, and itself is none either.
        let mistakes = strsim::osa_distance(word, known);
        (mistakes <= letters.div_ceil(3) && (1..letters).contains(&mistakes)).then_some((mistakes, known))
    });
    // Of two that are as alike, the first.
    mistakes
        .min_by_key(|&(mistakes, _)| mistakes)
        .map_or_else(String::new, |(_, known)| format!("; did you mean '{known}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_its_own() {
        let known = ["exact", "alps", "alps-basic", "rate", "vtrr", "wfq", "wf2q", "lottery", "fcfs"];
        for (word, meant) in [
            ("exakt", "exact"),
            ("vrtt", "vtrr"),
            ("lotery", "lottery"),
            ("alp", "alps"),
            ("alps-bsic", "alps-basic"),
            ("Exact", "exact"),
            ("wf2", "wfq"),
            ("cfs", "fcfs"),
        ] {
            assert_eq!(hint(word, known), format!("; did you mean '{meant}'?"), "{word}");
        }
        for word in ["", "fair", "cfs2000", "x"] {
            assert_eq!(hint(word, known), "", "{word}");
        }
        assert_eq!(hint("2", ["c", "2"]), "");
    }
}
