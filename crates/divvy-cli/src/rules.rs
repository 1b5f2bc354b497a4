//! `divvy rules`: what the user's file of rules says, and what divvyd makes of it.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use divvy_api::client::{Api, ApiError, Asked, Choice};
use divvy_api::cpus::{self, Keeper, NotKept};
use divvy_api::launch::with_choice;
use divvy_api::rules::{self, Rule, Rules, RulesState};
use divvy_linux::CpuMask;
use divvy_policy::CpuLimit;

use crate::remote::json;
use crate::strip::plain;
use crate::{Code, Failure, print, tell};

#[derive(Debug, ClapArgs)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    command: Option<RulesCommand>,

    /// Print what divvyd makes of the rules as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Read a file and say what is wrong with it, which rules it has, and which of them divvyd could not follow; nothing is changed
    Check {
        /// The file [default: $DIVVY_CONFIG, else divvy/config.toml in $XDG_CONFIG_HOME or ~/.config]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,

        /// Print the rules as JSON
        #[arg(long)]
        json: bool,
    },
    /// Start your own divvyd, if none runs: it follows the rules for as long as the file has any
    Start {
        /// Print what divvyd makes of the rules as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &RulesArgs) -> Result<Code, Failure> {
    match &args.command {
        Some(RulesCommand::Check { file, json }) => {
            check(&file.clone().map_or_else(own_file, Ok)?, *json || args.json)
        }
        Some(RulesCommand::Start { json }) => start(*json || args.json),
        None => show(args.json),
    }
}

fn own_file() -> Result<PathBuf, Failure> {
    rules::path().ok_or_else(|| {
        let text =
            "there is no file of rules: neither HOME nor XDG_CONFIG_HOME is set; name one in DIVVY_CONFIG";
        Failure::new(Code::File, text)
    })
}

fn read(path: &Path) -> Result<Rules, Failure> {
    let failed = |what: String| Failure::new(Code::File, format!("{}: {what}", path.display()));
    let rules = rules::read(path).map_err(|e| failed(e.to_string()))?;
    rules.ok_or_else(|| failed("there is no such file; docs/rules.md says what to write into it".to_owned()))
}

/// Who divides which CPUs for the rules, and by which back end: the user's own divvyd, or where none runs, one that were started
/// now, whose back end nobody knows.
#[derive(Debug)]
struct Divided {
    cpus: CpuMask,
    used: Option<String>,
    /// Whether that keeps anybody to some CPUs.
    keeps: bool,
}

impl Divided {
    fn now() -> Result<Self, Failure> {
        if let Ok(status) = own().and_then(|own| own.api()).and_then(|api| api.status()) {
            let (used, keeps) = (Some(status.backend.used), status.backend.keeps_cpus);
            return Ok(Self { cpus: status.cpus.into_iter().collect(), used, keeps });
        }
        Ok(Self { cpus: divvy_linux::cpus_to_divide(None)?.into_iter().collect(), used: None, keeps: false })
    }

    /// Whether divvyd would follow the rule: as it says itself when it reads the file.
    fn check(&self, rule: &Rule) -> Result<(), NotKept> {
        match (&rule.cpus, &self.used) {
            (None, _) => Ok(()),
            (Some(cpus), Some(used)) => {
                cpus::check(cpus, &self.cpus, used, Keeper::Divvyd)?;
                if self.keeps { Ok(()) } else { Err(cpus::not_kept_here(used)) }
            }
            (Some(cpus), None) => cpus::check_are_divided(cpus, &self.cpus, "divvyd"),
        }
    }
}

fn check(path: &Path, as_json: bool) -> Result<Code, Failure> {
    let rules = read(path)?;
    let divided =
        if rules.rules.iter().any(|rule| rule.cpus.is_some()) { Some(Divided::now()?) } else { None };
    let why = |rule: &Rule| divided.as_ref().and_then(|divided| divided.check(rule).err());
    let is_followed = rules.rules.iter().all(|rule| why(rule).is_none());
    let code = if is_followed { Code::Done } else { Code::File };
    if as_json {
        let rule = |rule: &Rule| {
            serde_json::json!({
                "line": rule.line,
                "name": rule.name,
                "selector": rule.selector.to_string(),
                "share": rule.share,
                "limit_ppm": rule.limit_ppm,
                "cpus": rule.cpus.map(|cpus| cpus.to_string()),
                "group": rule.group,
                "why": why(rule).map(|why| why.to_string()),
            })
        };
        let all: Vec<_> = rules.rules.iter().map(rule).collect();
        let path = path.display().to_string();
        print(json(&serde_json::json!({ "path": path, "rules": all, "groups": rules.groups }))?)?;
        return Ok(code);
    }
    list(path, &rules)?;
    for (rule, why) in rules.rules.iter().filter_map(|rule| Some((rule, why(rule)?))) {
        let (path, line, name) = (path.display(), rule.line, plain(&rule.name));
        tell(format_args!("divvy: {path}: line {line}: {name} would not be followed: {why}"));
    }
    Ok(code)
}

/// Says what the file says.
fn list(path: &Path, rules: &Rules) -> Result<(), Failure> {
    for rule in &rules.rules {
        let limit = rule.limit_ppm.and_then(|ppm| CpuLimit::new(ppm).ok());
        let limit = limit.map_or_else(String::new, |limit| format!(", limit {limit}"));
        let cpus = rule.cpus.map_or_else(String::new, |cpus| format!(", CPUs {cpus}"));
        let group =
            rule.group.as_deref().map_or_else(String::new, |group| format!(", in group {}", plain(group)));
        let selector = plain(&rule.selector.to_string());
        print(format_args!(
            "line {}: {}: {selector}, share {}{limit}{cpus}{group}",
            rule.line,
            plain(&rule.name),
            rule.share
        ))?;
    }
    for (group, share) in &rules.groups {
        print(format_args!("group {}: share {share}", plain(group)))?;
    }
    print(format_args!("{}: {}", path.display(), count(rules.rules.len())))
}

fn count(n: usize) -> String {
    if n == 1 { "1 rule".to_owned() } else { format!("{n} rules") }
}

/// The user's own divvyd: the system's follows nobody's rules.
fn own() -> Result<Choice, ApiError> {
    Choice::new(Some(Asked::Own), None)
}

fn start(as_json: bool) -> Result<Code, Failure> {
    let path = own_file()?;
    let rules = read(&path)?;
    if rules.rules.is_empty() {
        let text = format!("{}: it has no rules, for which a divvyd would be started", path.display());
        return Err(Failure::new(Code::Usage, text));
    }
    let state = with_choice(&own()?, Api::rules)?;
    if as_json { as_is(&state) } else { told(&state) }
}

/// As JSON, with the code of [`told`].
fn as_is(state: &RulesState) -> Result<Code, Failure> {
    print(json(state)?)?;
    Ok(code_of(state))
}

/// [`Code::File`] where the file is not followed as it is.
fn code_of(state: &RulesState) -> Code {
    let is_followed =
        state.error.is_none() && state.rules.iter().all(|rule| rule.why.is_none() || rule.let_go);
    if is_followed { Code::Done } else { Code::File }
}

fn show(as_json: bool) -> Result<Code, Failure> {
    match own()?.api().and_then(|api| api.rules()) {
        Ok(state) if as_json => as_is(&state),
        Ok(state) => told(&state),
        Err(ApiError::NotRunning(_)) if as_json => print(json(&RulesState::default())?).map(|()| Code::Done),
        Err(ApiError::NotRunning(_)) => {
            let path = own_file()?;
            let (what, code) = match rules::read(&path) {
                Ok(Some(rules)) => (count(rules.rules.len()), Code::Done),
                Ok(None) => ("there is no such file".to_owned(), Code::Done),
                Err(e) => (e.to_string(), Code::File),
            };
            print(format_args!(
                "{}: {what}; your own divvyd does not run: divvy rules start",
                path.display()
            ))?;
            Ok(code)
        }
        Err(e) => Err(e.into()),
    }
}

fn told(state: &RulesState) -> Result<Code, Failure> {
    let Some(path) = &state.path else {
        print("this divvyd was started without a file of rules")?;
        return Ok(Code::Done);
    };
    for rule in &state.rules {
        let what = match (&rule.client, &rule.why) {
            (Some(_), None) => "followed".to_owned(),
            (Some(_), Some(why)) => format!("not followed as it is now: {why}"),
            (None, why) => format!("not followed: {}", why.as_deref().unwrap_or("nobody knows why")),
        };
        print(format_args!("line {}: {}: {}, {what}", rule.line, plain(&rule.name), plain(&rule.selector)))?;
    }
    match &state.error {
        None => print(format_args!("{path}: {}", count(state.rules.len())))?,
        Some(error) => {
            let text = format!("{path}: {error}; the rules of before hold");
            return Err(Failure::new(Code::File, text));
        }
    }
    Ok(code_of(state))
}
