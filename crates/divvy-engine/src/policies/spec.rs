//! A policy's name and parameters, as people write them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A policy and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicySpec {
    /// As `divvy policies` lists it.
    pub name: String,
    /// What is set; the rest has its default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ParamValue>,
}

/// The table form of [`PolicySpec`].
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PolicyTable {
    /// As `divvy policies` lists it.
    name: String,
    /// What is set; the rest has its default.
    #[serde(default)]
    params: BTreeMap<String, ParamValue>,
}

impl PolicySpec {
    /// The policy `name` with all its defaults.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), params: BTreeMap::new() }
    }

    /// What is set, as texts.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> {
        self.params.iter().map(|(name, value)| (name.clone(), value.to_string()))
    }

    /// This policy with one parameter set.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<ParamValue>) -> Self {
        self.params.insert(key.into(), value.into());
        self
    }
}

impl fmt::Display for PolicySpec {
    /// As the command line takes it: `name:key=value,key=value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (key, value)) in self.params.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for PolicySpec {
    type Err = String;

    /// Reads `name` or `name:key=value,key=value`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = Self::new(name.trim());
        if spec.name.is_empty() {
            return Err(format!("\"{text}\" names no policy, expected name or name:key=value,..."));
        }
        for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("\"{pair}\" has no value, expected key=value"));
            };
            let value = ParamValue::Text(value.trim().into());
            if spec.params.insert(key.trim().into(), value).is_some() {
                return Err(format!("\"{}\" is given twice", key.trim()));
            }
        }
        Ok(spec)
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = PolicySpec;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy's name, or a table of name and params")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PolicySpec, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<PolicySpec, A::Error> {
                let table = PolicyTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PolicySpec { name: table.name, params: table.params })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for PolicySpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let table = generator.subschema_for::<PolicyTable>();
        schemars::json_schema!({
            "description": "A policy: `name`, `name:key=value,...`, or a table.",
            "anyOf": [{ "type": "string" }, table]
        })
    }
}

/// A parameter's value as written.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// `true`, `false`.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word, a time, `inf`, a fraction; or any of the others, where it came from `name:key=value`.
    Text(String),
}

impl From<&str> for ParamValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for ParamValue {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl From<f64> for ParamValue {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl From<bool> for ParamValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for ParamValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Int(n) => serializer.serialize_i64(*n),
            // JSON has no infinity.
            Self::Float(x) if !x.is_finite() => serializer.collect_str(x),
            Self::Float(x) => serializer.serialize_f64(*x),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for ParamValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ParamValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, true or false")
            }
            fn visit_bool<E>(self, flag: bool) -> Result<ParamValue, E> {
                Ok(ParamValue::Flag(flag))
            }
            fn visit_i64<E>(self, n: i64) -> Result<ParamValue, E> {
                Ok(ParamValue::Int(n))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<ParamValue, E> {
                i64::try_from(n).map(ParamValue::Int).map_err(|_| E::custom(format!("{n} is too large")))
            }
            fn visit_f64<E>(self, x: f64) -> Result<ParamValue, E> {
                Ok(ParamValue::Float(x))
            }
            fn visit_str<E>(self, text: &str) -> Result<ParamValue, E> {
                Ok(ParamValue::Text(text.into()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ParamValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ParamValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["boolean", "number", "string"] })
    }
}
