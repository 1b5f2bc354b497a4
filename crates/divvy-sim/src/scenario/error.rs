//! Errors that say where: the line, the key, and what was expected.

use std::fmt;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// How a scenario is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

/// One step of the way to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seg {
    /// Into a table.
    Key(String),
    /// Into a list, from 0.
    Index(usize),
}

/// A scenario cannot be run. The file's name is the caller's to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// From 1, where it is known.
    pub line: Option<usize>,
    /// The way to the key; empty for the file as a whole.
    pub path: Vec<Seg>,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl ScenarioError {
    /// An error at a key written as `run.until` or `clients[0].share`, its line not known yet.
    #[must_use]
    pub fn new(key: &str, message: impl Into<String>) -> Self {
        Self { line: None, path: parse_path(key), message: message.into() }
    }

    /// The key: `clients[0].share`, or empty.
    #[must_use]
    pub fn key(&self) -> String {
        write_path(&self.path)
    }

    /// With the line of its key in `text`, or of the nearest table around it that is there.
    #[must_use]
    pub fn located(mut self, text: &str, format: Format) -> Self {
        if self.line.is_none() {
            self.line = match format {
                Format::Toml => locate_toml(text, &self.path),
                Format::Json => JsonWalk { text: text.as_bytes(), at: 0 }.locate(&self.path),
            }
            .map(|offset| line_of(text, offset));
        }
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.key())?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScenarioError {}

fn write_path(path: &[Seg]) -> String {
    let mut out = String::new();
    for seg in path {
        match seg {
            Seg::Key(key) if out.is_empty() => out.push_str(key),
            Seg::Key(key) => {
                out.push('.');
                out.push_str(key);
            }
            Seg::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }
    out
}

/// Reads what [`write_path`] writes.
pub(crate) fn parse_path(key: &str) -> Vec<Seg> {
    let mut path = Vec::new();
    for part in key.split('.').filter(|part| !part.is_empty()) {
        let (name, indexes) = part.split_once('[').unwrap_or((part, ""));
        path.push(Seg::Key(name.into()));
        path.extend(indexes.split('[').filter_map(|i| i.trim_end_matches(']').parse().ok()).map(Seg::Index));
    }
    path
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

/// Reads any value with errors that say where.
pub(super) fn read<T: DeserializeOwned>(text: &str, format: Format) -> Result<T, ScenarioError> {
    match format {
        Format::Toml => read_toml(text),
        Format::Json => read_json(text),
    }
}

fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, ScenarioError> {
    let of_error = |error: &toml::de::Error, path| ScenarioError {
        line: error.span().map(|span| line_of(text, span.start)),
        path,
        message: error.message().into(),
    };
    let deserializer = toml::Deserializer::parse(text).map_err(|error| of_error(&error, Vec::new()))?;
    serde_path_to_error::deserialize(deserializer)
        .map_err(|error| of_error(error.inner(), segs(error.path())))
}

fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, ScenarioError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| of_json(error.inner(), segs(error.path())))?;
    deserializer.end().map_err(|error| of_json(&error, Vec::new()))?;
    Ok(value)
}

fn of_json(error: &serde_json::Error, path: Vec<Seg>) -> ScenarioError {
    let full = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = full.strip_suffix(&place).unwrap_or(&full).to_owned();
    ScenarioError { line: (error.line() > 0).then_some(error.line()), path, message }
}

fn segs(path: &serde_path_to_error::Path) -> Vec<Seg> {
    use serde_path_to_error::Segment;
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Seg::Index(*index)),
            Segment::Map { key } => Some(Seg::Key(key.clone())),
            Segment::Enum { variant } => Some(Seg::Key(variant.clone())),
            Segment::Unknown => None,
        })
        .collect()
}

/// Where the value at `path` begins, or the last one on the way that is there.
fn locate_toml(text: &str, path: &[Seg]) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (first, rest) = path.split_first()?;
    let Seg::Key(key) = first else { return None };
    let (key, mut value) = root.get_ref().get_key_value(key.as_str())?;
    let mut offset = key.span().start;
    for seg in rest {
        let next = match (seg, value.get_ref()) {
            (Seg::Key(key), DeValue::Table(table)) => {
                let Some((key, next)) = table.get_key_value(key.as_str()) else { break };
                offset = key.span().start;
                next
            }
            (Seg::Index(index), DeValue::Array(array)) => {
                let Some(next) = array.get(*index) else { break };
                offset = next.span().start;
                next
            }
            _ => break,
        };
        value = next;
    }
    Some(offset)
}

/// Walks over a JSON text that is known to be well formed.
struct JsonWalk<'t> {
    text: &'t [u8],
    at: usize,
}

impl JsonWalk<'_> {
    /// Where the key or element at `path` begins, or the last one on the way that is there.
    fn locate(mut self, path: &[Seg]) -> Option<usize> {
        let mut found = None;
        for seg in path {
            self.space();
            let hit = match (seg, self.peek()?) {
                (Seg::Key(key), b'{') => self.find_key(key),
                (Seg::Index(index), b'[') => self.find_index(*index),
                _ => None,
            };
            match hit {
                Some(offset) => found = Some(offset),
                None => break,
            }
        }
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Moves behind the next `"..."` and returns what is inside, escapes as written.
    fn string(&mut self) -> Vec<u8> {
        self.at += 1;
        let from = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        let to = self.at.min(self.text.len());
        self.at += 1;
        self.text[from..to].to_vec()
    }

    fn skip_value(&mut self) {
        self.space();
        let mut depth = 0;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string();
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b'}' | b']' if depth == 0 => return,
                _ => self.at += 1,
            }
            if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
                return;
            }
        }
    }

    /// Stands on `{`; ends on the value of `key`.
    fn find_key(&mut self, key: &str) -> Option<usize> {
        self.at += 1;
        loop {
            self.space();
            if self.peek()? != b'"' {
                return None;
            }
            let offset = self.at;
            let name = self.string();
            self.space();
            self.at += 1;
            self.space();
            if name == key.as_bytes() {
                return Some(offset);
            }
            self.skip_value();
            self.space();
            if self.peek()? != b',' {
                return None;
            }
            self.at += 1;
        }
    }

    /// Stands on `[`; ends on the element `index`.
    fn find_index(&mut self, index: usize) -> Option<usize> {
        self.at += 1;
        for _ in 0..index {
            self.skip_value();
            self.space();
            if self.peek()? != b',' {
                return None;
            }
            self.at += 1;
        }
        self.space();
        (self.peek()? != b']').then_some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_written() {
        for key in ["run.until", "clients[0].share", "events[12].client", "policy.params.alpha"] {
            assert_eq!(write_path(&parse_path(key)), key);
        }
    }

    #[test]
    fn keys_are_found_in_both_formats() {
        let json = "{\n \"a\": [1, {\"x\\\"]\": \"}\"},\n  {\"b\": [[], 2],\n   \"c\": 3}],\n \"d\": {\"e\": null}\n}";
        let toml = "d = { e = 1 }\na = [1, {x = 2},\n {b = [[], 2],\n c = 3}]\n[[t]]\nk = 1\n[[t]]\nk = 2\n";
        let line = |text, format, key| ScenarioError::new(key, "").located(text, format).line;
        assert_eq!(line(json, Format::Json, "a"), Some(2));
        assert_eq!(line(json, Format::Json, "a[2].c"), Some(4));
        assert_eq!(line(json, Format::Json, "d.e"), Some(5));
        // What is not there is placed at the nearest table around it.
        assert_eq!(line(json, Format::Json, "a[2].missing"), Some(3));
        assert_eq!(line(json, Format::Json, "missing"), None);
        assert_eq!(line(toml, Format::Toml, "a[2].c"), Some(4));
        assert_eq!(line(toml, Format::Toml, "t[1].k"), Some(8));
        assert_eq!(line(toml, Format::Toml, "d.missing"), Some(1));
    }
}
