//! A page of results: goals first, then each experiment with its table, its data and its plots.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::plot::Plot;

/// A goal, what came of it, and whether that is enough.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    what: String,
    limit: String,
    ours: String,
    met: bool,
}

/// Which side of its limit a value has to be on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// At most so much.
    Most(f64),
    /// At least so much.
    Least(f64),
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Most(limit) => value <= limit,
            Self::Least(limit) => value >= limit,
        }
    }
}

/// A page in the making.
#[derive(Debug)]
pub(crate) struct Page {
    dir: PathBuf,
    name: String,
    body: String,
    goals: Vec<Goal>,
    strangers: Vec<f64>,
}

/// A number with about three digits, for tables.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 4) as usize };
    format!("{value:.digits$}")
}

/// A fraction as a percentage without its sign: `0.0123` is `1.23`.
pub(crate) fn percent(fraction: f64) -> String {
    number(fraction * 100.0)
}

impl Page {
    /// A page `DIR/NAME.md` with its data in `DIR/NAME/`.
    ///
    /// # Errors
    /// Where the directory cannot be made.
    pub(crate) fn new(dir: &Path, name: &str) -> Result<Self> {
        let data = dir.join(name);
        std::fs::create_dir_all(&data).with_context(|| format!("create {}", data.display()))?;
        let (dir, name) = (dir.to_owned(), name.to_owned());
        Ok(Self { dir, name, body: String::new(), goals: Vec::new(), strangers: Vec::new() })
    }

    /// Where the page's data are.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// A part that another program wrote, with its own heading.
    pub(crate) fn part(&mut self, text: &str) {
        let _ = write!(self.body, "\n{}\n", text.trim());
    }

    /// Begins an experiment.
    pub(crate) fn heading(&mut self, text: &str) {
        let _ = write!(self.body, "\n## {text}\n\n");
    }

    /// A paragraph.
    pub(crate) fn text(&mut self, text: &str) {
        let _ = write!(self.body, "{text}\n\n");
    }

    /// A table; the names in its head stand between ` | `.
    pub(crate) fn table(&mut self, head: &str, rows: &[Vec<String>]) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head: Vec<String> = head.split(" | ").map(str::to_owned).collect();
        self.body += &line(&head);
        self.body += &format!("|{}\n", "---|".repeat(head.len()));
        for row in rows {
            self.body += &line(row);
        }
        self.body += "\n";
    }

    /// As [`Page::table`], the names one by one.
    pub(crate) fn columns(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.table(&head.join(" | "), rows);
    }

    /// Where the data of a table are.
    pub(crate) fn data(&self, file: &str) -> PathBuf {
        self.dir.join(&self.name).join(format!("{file}.csv"))
    }

    /// The data behind a table, as `NAME/FILE.csv`, with a link.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub(crate) fn csv<T: Serialize>(&mut self, file: &str, rows: &[T]) -> Result<()> {
        let path = self.data(file);
        let failed = || format!("write {}", path.display());
        let mut out = csv::Writer::from_path(&path).with_context(failed)?;
        for row in rows {
            out.serialize(row).with_context(failed)?;
        }
        out.flush().with_context(failed)?;
        let _ = write!(self.body, "Data: [{file}.csv]({}/{file}.csv)\n\n", self.name);
        Ok(())
    }

    /// A plot, as `NAME/FILE.svg` and `.png`, shown and linked.
    ///
    /// # Errors
    /// Where it cannot be drawn or written.
    pub(crate) fn plot(&mut self, file: &str, plot: &Plot) -> Result<()> {
        if plot.is_empty() {
            self.text(&format!("No plot of \"{}\": nothing was seen that could be drawn.", plot.title));
            return Ok(());
        }
        self.picture(file, &plot.title, |dir| plot.write(dir, file))
    }

    /// A picture that `draw` writes as `FILE.svg` and `.png` into the directory it is given, shown and linked.
    ///
    /// # Errors
    /// As `draw`.
    pub(crate) fn picture(
        &mut self,
        file: &str,
        title: &str,
        draw: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        draw(&self.dir.join(&self.name))?;
        let name = &self.name;
        let _ = write!(self.body, "![{title}]({name}/{file}.svg)\n([PNG]({name}/{file}.png))\n\n");
        Ok(())
    }

    /// Notes a goal, its value and its unit.
    pub(crate) fn goal(&mut self, what: impl Into<String>, limit: Limit, value: f64, unit: &str) {
        self.goal_beside(what, limit, value, unit, None);
    }

    /// The same, with what something else comes to in the same run, by its name.
    pub(crate) fn goal_beside(
        &mut self,
        what: impl Into<String>,
        limit: Limit,
        value: f64,
        unit: &str,
        beside: Option<(&str, f64)>,
    ) {
        let text = match limit {
            Limit::Most(v) => format!("at most {v} {unit}"),
            Limit::Least(v) => format!("at least {v} {unit}"),
        };
        let beside =
            beside.map_or_else(String::new, |(what, value)| format!(" ({what}: {} {unit})", number(value)));
        let ours = format!("{} {unit}{beside}", number(value));
        self.goals.push(Goal { what: what.into(), limit: text, ours, met: limit.holds(value) });
    }

    /// Notes a goal that all `of` shall meet, and how many do; none where there is nobody.
    pub(crate) fn goal_of_all(&mut self, what: impl Into<String>, of: usize, met: usize, unit: &str) {
        self.goal_of_all_beside(what, of, met, unit, None);
    }

    /// The same, with how many do of something else in the same run, by its name.
    pub(crate) fn goal_of_all_beside(
        &mut self,
        what: impl Into<String>,
        of: usize,
        met: usize,
        unit: &str,
        beside: Option<(&str, usize)>,
    ) {
        if of > 0 {
            let beside = beside.map_or_else(String::new, |(what, met)| format!(" ({what}: {met})"));
            let (limit, ours) = (format!("all {of} {unit}"), format!("{met} {unit}{beside}"));
            self.goals.push(Goal { what: what.into(), limit, ours, met: met >= of });
        }
    }

    /// Notes the fraction of time that strangers took in a run.
    pub(crate) fn strangers(&mut self, fractions: impl IntoIterator<Item = Option<f64>>) {
        self.strangers.extend(fractions.into_iter().flatten());
    }

    /// Writes the page: title, preface, goals, experiments. Says how many goals were met, of how many.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn write(&self, title: &str, preface: &[String]) -> Result<(usize, usize)> {
        let path = self.dir.join(format!("{}.md", self.name));
        let mut text = format!("# {title}\n\n");
        for line in preface {
            let _ = write!(text, "{line}\n\n");
        }
        if let (Some(median), Some(most)) =
            (super::stats::median(&self.strangers), self.strangers.iter().copied().reduce(f64::max))
        {
            let _ = write!(
                text,
                "Strangers took {} % of the CPUs' time in the median run, {} % in the worst (by `/proc/stat`; the tables \
                 have it for each run).\n\n",
                percent(median),
                percent(most)
            );
        }
        let met = self.goals.iter().filter(|g| g.met).count();
        if !self.goals.is_empty() {
            let _ = write!(text, "## Goals: {met} of {} met\n\n", self.goals.len());
            text += "| goal | limit | ours | met |\n|---|---|---|---|\n";
            for g in &self.goals {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} |",
                    g.what,
                    g.limit,
                    g.ours,
                    if g.met { "yes" } else { "**no**" }
                );
            }
        }
        text += &self.body;
        let text = text.trim_end().to_owned() + "\n";
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok((met, self.goals.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let text = [0.0, 0.00012, 0.0123, 1.234, 56.78, 901.2, f64::NAN].map(number);
        assert_eq!(text, ["0", "0.0001", "0.0123", "1.23", "56.8", "901", "-"]);
        assert_eq!(percent(0.0123), "1.23");
    }

    #[test]
    fn a_goal_is_met_or_not() {
        assert!(Limit::Most(0.1).holds(0.1) && !Limit::Most(0.1).holds(0.11));
        assert!(Limit::Least(99.0).holds(99.2) && !Limit::Least(99.0).holds(98.9));
        assert!(!Limit::Most(0.1).holds(f64::NAN), "what was not measured is not met");
    }
}
