//! A set of CPUs in JSON: `"0,2-3"`, and `"all"` for the empty set, which means that there is no bound.

use divvy_linux::CpuMask;
use serde::{Deserialize as _, Deserializer, Serializer, de};

const ALL: &str = "all";

pub(crate) fn serialize<S: Serializer>(cpus: &Option<CpuMask>, to: S) -> Result<S::Ok, S::Error> {
    match cpus {
        Some(cpus) if cpus.is_empty() => to.serialize_str(ALL),
        Some(cpus) => to.collect_str(cpus),
        None => to.serialize_none(),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CpuMask>, D::Error> {
    match String::deserialize(from)?.as_str() {
        ALL => Ok(Some(CpuMask::default())),
        list => list.parse().map(Some).map_err(|e| {
            de::Error::custom(format!("cpus: {e}; write numbers and ranges, as in 0,2-3, or {ALL}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use crate::types::Bounds;

    #[test]
    fn cpus_are_written_as_lists() {
        for (text, cpus) in [("0,2-3", vec![0, 2, 3]), ("all", vec![])] {
            let json = format!("{{\"cpus\":\"{text}\"}}");
            let bounds: Bounds = serde_json::from_str(&json).expect("CPUs");
            assert_eq!(bounds.cpus.expect("given").iter().collect::<Vec<_>>(), cpus);
            assert_eq!(serde_json::to_string(&bounds).expect("JSON"), json);
        }
        let e = serde_json::from_str::<Bounds>(r#"{"cpus":"2-1"}"#).expect_err("no range").to_string();
        assert!(e.starts_with("cpus: the range 2-1 is empty; write numbers and ranges"), "{e}");
        assert!(serde_json::from_str::<Bounds>(r#"{"cpus":null}"#).is_err());
    }

    #[test]
    fn all_takes_them_back() {
        let to =
            |text: &str| serde_json::from_str::<Bounds>(&format!("{{\"cpus\":\"{text}\"}}")).expect("CPUs");
        let kept = Bounds::default().changed_by(to("1"));
        assert_eq!(kept, to("1"));
        assert_eq!(kept.changed_by(Bounds::default()), kept);
        assert!(kept.changed_by(to("all")).is_empty());
    }
}
