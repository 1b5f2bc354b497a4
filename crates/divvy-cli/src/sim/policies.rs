//! `divvy policies`: the registry.

use divvy_policy::{Kind, PolicyInfo};
use serde_json::{Value, json};

use super::args::PoliciesArgs;
use super::source::{no_policy, usage};
use crate::{Code, Failure, print};

pub(crate) fn run(args: &PoliciesArgs) -> Result<Code, Failure> {
    let infos: Vec<&PolicyInfo> = match &args.name {
        None => divvy_sim::policies::all().collect(),
        Some(name) => {
            vec![divvy_sim::policies::find(name).ok_or_else(|| usage(no_policy(name)))?]
        }
    };
    if args.json {
        let list: Vec<Value> = infos.iter().map(|info| json_of(info)).collect();
        let value =
            if args.name.is_some() { list.into_iter().next().unwrap_or_default() } else { json!(list) };
        print(serde_json::to_string_pretty(&value).unwrap_or_default())?;
    } else if args.name.is_some() {
        print(infos.iter().map(|info| details(info)).collect::<Vec<_>>().join("\n"))?;
    } else {
        print(overview(&infos))?;
    }
    Ok(Code::Done)
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Gate => "gate",
        Kind::Dispatcher => "dispatcher",
        Kind::Model => "model",
    }
}

/// Whether live processes can be scheduled with it.
const fn is_live(kind: Kind) -> bool {
    !matches!(kind, Kind::Model)
}

const fn uses(kind: Kind) -> &'static str {
    match kind {
        Kind::Gate => "live (divvy share --policy), simulated above a kernel (gate = ... in a scenario)",
        Kind::Dispatcher => {
            "live (divvy share --policy), simulated (policy = ... in a scenario; gate = ... above a kernel)"
        }
        Kind::Model => "simulated only (policy = ... in a scenario)",
    }
}

fn overview(infos: &[&PolicyInfo]) -> String {
    let mut out = Vec::new();
    for (which, about) in [
        (
            Kind::Dispatcher,
            "Dispatchers say who runs next on a CPU: divvy sim, divvy compare, and live, divvy share",
        ),
        (Kind::Model, "Models say what everybody is entitled to at every instant: divvy sim, divvy compare"),
        (
            Kind::Gate,
            "Gates say who may run for now, above a kernel: live, divvy share; over a simulated kernel, divvy sim",
        ),
    ] {
        out.push(about.to_owned());
        let width = infos.iter().map(|info| info.name.len()).max().unwrap_or(0);
        for info in infos.iter().filter(|info| info.kind == which) {
            out.push(format!("  {:<width$}  {}", info.name, info.summary));
        }
        out.push(String::new());
    }
    out.push("divvy policies NAME tells everything about one.".into());
    out.join("\n")
}

fn details(info: &PolicyInfo) -> String {
    let mut out = vec![
        format!("{}, a {}: {}", info.name, kind(info.kind), info.summary),
        format!("  cost    {}", info.complexity),
        format!("  source  {}", info.source),
        format!("  use     {}", uses(info.kind)),
    ];
    if info.params.is_empty() {
        out.push("  no parameters".into());
    } else {
        let mut rows = vec![["parameter", "default", "values"].map(String::from).to_vec()];
        for param in info.params {
            rows.push(vec![param.name.to_owned(), param.default.to_owned(), param.domain.to_string()]);
        }
        // Ranges are texts: they stand to the left, each with what it is about below.
        let widths = [0, 1].map(|i| rows.iter().map(|row| row[i].len()).max().unwrap_or(0));
        out.push(String::new());
        for (i, row) in rows.iter().enumerate() {
            out.push(format!(
                "  {:<w0$}  {:<w1$}  {}",
                row[0],
                row[1],
                row[2],
                w0 = widths[0],
                w1 = widths[1]
            ));
            if i > 0 {
                out.push(format!("  {:<w0$}  {}", "", info.params[i - 1].summary, w0 = widths[0]));
            }
        }
        if let Some(param) = info.quantum().filter(|_| info.kind == Kind::Dispatcher) {
            out.push(format!(
                "\n  Unless it is set, {} is the scenario's quantum in a simulation, and --quantum live.",
                param.name
            ));
        }
    }
    out.join("\n")
}

fn json_of(info: &PolicyInfo) -> Value {
    let params: Vec<Value> = info
        .params
        .iter()
        .map(|param| {
            json!({ "name": param.name, "range": param.domain.to_string(), "default": param.default, "summary": param.summary })
        })
        .collect();
    json!({
        "name": info.name, "kind": kind(info.kind), "summary": info.summary, "complexity": info.complexity,
        "source": info.source, "live": is_live(info.kind), "params": params
    })
}
