//! The API as its document says, seen from the socket: every path, every answer, and what bad requests get.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::daemon::start_divvyd;
use crate::harness::{PATIENCE, SPIN, Sandbox, eventually, one_cpu};

pub fn document() -> Value {
    serde_json::from_str(include_str!("../../../../docs/openapi.json")).expect("a document")
}

/// An answer: its status and body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

fn connect(sandbox: &Sandbox) -> UnixStream {
    let stream = UnixStream::connect(sandbox.path("run/api.sock")).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

pub fn read_answer(mut stream: UnixStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    Answer { status, body: body.to_owned() }
}

fn ask(sandbox: &Sandbox, method: &str, path: &str, body: &str) -> Answer {
    ask_on(connect(sandbox), method, path, body)
}

/// Asks over a connection, which ends with the answer.
pub fn ask_on(mut stream: UnixStream, method: &str, path: &str, body: &str) -> Answer {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: divvyd\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("send");
    read_answer(stream)
}

/// Checks a value against a schema of the document.
fn check_schema(document: &Value, schema: &Value, value: &Value, what: &str) {
    let mut whole = schema.clone();
    whole["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&whole).expect("a valid schema");
    let errors: Vec<String> =
        validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{what} is not as the document says: {errors:#?}\n{value:#}");
}

/// Which template of the document a path is, as `/v1/clients/{client}`.
fn template<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    let path = path.split('?').next().expect("a path");
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &&String| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len() && wanted.iter().zip(&parts).all(|(w, p)| w.starts_with('{') || w == p)
    };
    document["paths"].as_object().expect("paths").keys().find(fits).map(String::as_str)
}

/// Everything that has been asked: template, method, status.
pub type Seen = BTreeSet<(String, String, u16)>;

/// Asks the sandbox's own divvyd, and checks that the document has the status and the body.
fn check(sandbox: &Sandbox, seen: &mut Seen, method: &str, path: &str, body: &Value, status: u16) -> Value {
    check_on(connect(sandbox), seen, method, path, body, status)
}

/// Asks over a connection, and checks that the document has the status and the body.
pub fn check_on(
    stream: UnixStream,
    seen: &mut Seen,
    method: &str,
    path: &str,
    body: &Value,
    status: u16,
) -> Value {
    let document = document();
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = ask_on(stream, method, path, &text);
    let what = format!("{method} {path} {text}");
    assert_eq!(answer.status, status, "{what}: {}", answer.body);
    let value: Value =
        serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{what}: {e}: {}", answer.body));
    let of_method =
        &document["paths"][template(&document, path).expect("a path of the document")][method.to_lowercase()];
    let response = &of_method["responses"][status.to_string()];
    // One that many paths share is written once.
    let shared = response["$ref"].as_str().and_then(|place| document.pointer(place.strip_prefix('#')?));
    let response = shared.unwrap_or(response);
    assert!(response.is_object(), "{what}: {status} is not in the document");
    check_schema(&document, &response["content"]["application/json"]["schema"], &value, &what);
    if let (true, Some(request)) = (status < 300 && !body.is_null(), of_method["requestBody"].as_object()) {
        check_schema(&document, &request["content"]["application/json"]["schema"], body, &what);
    }
    let template = template(&document, path).expect("a path").to_owned();
    seen.insert((template, method.to_owned(), status));
    value
}

#[test]
fn every_path_answers_as_its_document_says() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--cpus", &one_cpu(), "--linger", "60s", "--protect", "never-this"]);
    let mut spinner = sandbox.command("sh").args(["-c", SPIN]).spawn().unwrap();
    let (nothing, mut seen) = (Value::Null, Seen::new());
    let mut call = |method: &str, path: &str, body: &Value, status| {
        check(&sandbox, &mut seen, method, path, body, status)
    };

    assert_eq!(call("GET", "/v1/openapi.json", &nothing, 200), document());
    let status = call("GET", "/v1/status", &nothing, 200);
    assert_eq!((&status["policy"], &status["quantum_ns"]), (&json!("exact"), &json!(10_000_000)));
    assert_eq!(call("GET", "/v1/clients", &nothing, 200)["clients"], json!([]));

    // A command, with a directory and a variable.
    let argv = ["sh", "-c", "echo \"$GREETING\" > said; exec sleep 60"];
    let dir = sandbox.path("");
    let command = json!({ "argv": argv, "dir": dir, "env": { "GREETING": "good day" } });
    let made = call(
        "POST",
        "/v1/clients",
        &json!({ "name": "büro #1".replace(' ', "-"), "share": 2, "command": command }),
        201,
    );
    assert_eq!((&made["name"], &made["share"], &made["id"]), (&json!("büro-#1"), &json!(2), &json!(0)));
    eventually("what the command says", || {
        std::fs::read_to_string(sandbox.path("said")).ok().filter(|said| said == "good day\n")
    });
    // A running process, first as it would be, then as it is.
    let selector = format!("tree:{}", spinner.id());
    let attach = |dry_run: bool| json!({ "share": 3, "selector": selector, "dry_run": dry_run });
    let plan = call("POST", "/v1/clients", &attach(true), 200);
    assert_eq!(plan["members"], json!([{ "pid": spinner.id(), "name": "sh", "scheduled": true }]));
    let made = call("POST", "/v1/clients", &attach(false), 201);
    assert_eq!((&made["id"], &made["selector"]), (&json!(1), &json!(selector)));
    assert_eq!(made["members"][0]["pid"], json!(spinner.id()));

    // By name and by id, with and without members.
    assert_eq!(call("GET", "/v1/clients/1", &nothing, 200)["name"], "sh");
    assert_eq!(call("GET", "/v1/clients/sh?members=0", &nothing, 200)["members"], json!([]));
    assert_eq!(call("GET", "/v1/clients/b%C3%BCro-%231", &nothing, 200)["id"], 0);
    let changed = call("PATCH", "/v1/clients/sh", &json!({ "share": 4, "paused": true }), 200);
    assert_eq!((&changed["share"], &changed["state"]), (&json!(4), &json!("paused")));
    assert_eq!(call("PATCH", "/v1/clients/sh", &json!({ "paused": false }), 200)["share"], 4);

    let said = call("GET", &format!("/v1/explain/{}", spinner.id()), &nothing, 200);
    assert_eq!((&said["found"], &said["schedulable"]), (&json!(true), &json!(true)));
    assert_eq!(call("GET", "/v1/explain/4194305", &nothing, 200)["found"], false);
    assert!(call("GET", "/v1/doctor", &nothing, 200).as_array().unwrap().len() >= 8);

    check_events(&sandbox, &mut call);
    check_groups(&mut call, &selector);
    check_rules(&sandbox, &mut call);

    let gone = call("DELETE", "/v1/clients/sh", &nothing, 200);
    assert_eq!((&gone["state"], &gone["id"]), (&json!("left"), &json!(1)));
    check_refusals(&mut call, &spinner.id().to_string());

    assert_eq!(call("GET", "/v1/market", &nothing, 404)["error"]["code"], "no-market");
    check_all_asked(&seen, |path| !path.starts_with("/v1/market") && path != "/metrics");
    spinner.kill().unwrap();
    spinner.wait().unwrap();
}

/// A group of one client: made, changed, shown and let go.
fn check_groups(call: &mut impl FnMut(&str, &str, &Value, u16) -> Value, taken: &str) {
    let nothing = Value::Null;
    let command = json!({ "argv": ["sleep", "60"] });
    let new =
        json!({ "share": 2, "name": "unit", "group": "build/tests", "group_share": 5, "command": command });
    assert_eq!(call("POST", "/v1/clients", &new, 201)["group"], "build/tests");
    let groups = call("GET", "/v1/clients", &nothing, 200)["groups"].clone();
    let told: Vec<_> = groups.as_array().unwrap().iter().map(|g| (&g["name"], &g["share"])).collect();
    assert_eq!(told, [(&json!("build"), &json!(1)), (&json!("build/tests"), &json!(5))]);
    let changed = call("PATCH", "/v1/groups/build%2Ftests", &json!({ "share": 7, "paused": true }), 200);
    assert_eq!(
        (&changed["share"], &changed["paused"], &changed["clients"]),
        (&json!(7), &json!(true), &json!(1))
    );
    assert_eq!(call("GET", "/v1/clients/unit", &nothing, 200)["state"], "paused");
    for (method, path, body, status, code) in [
        ("PATCH", "/v1/groups/tests", json!({ "share": 1 }), 404, "no-such-client"),
        ("PATCH", "/v1/groups/build", json!({}), 400, "bad-request"),
        ("PATCH", "/v1/groups/build", json!({ "share": 0 }), 400, "bad-request"),
        ("DELETE", "/v1/groups/nobody", nothing.clone(), 404, "no-such-client"),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "group": "a b", "selector": "name:x" }),
            400,
            "bad-request",
        ),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "group_share": 2, "selector": "name:x" }),
            400,
            "bad-request",
        ),
        // What is refused makes no group.
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "group": "other", "selector": taken }),
            409,
            "process-taken",
        ),
    ] {
        let answer = call(method, path, &body, status);
        assert_eq!(answer["error"]["code"], code, "{method} {path} {body}");
    }
    let names = call("GET", "/v1/clients", &nothing, 200)["groups"].clone();
    assert_eq!(names.as_array().unwrap().len(), 2, "{names}");
    assert_eq!(call("DELETE", "/v1/groups/build", &nothing, 200)["clients"], 1);
    assert_eq!(call("GET", "/v1/clients", &nothing, 200)["groups"], Value::Null);
}

/// The user's rules, as their file says.
fn check_rules(sandbox: &Sandbox, call: &mut impl FnMut(&str, &str, &Value, u16) -> Value) {
    let nothing = Value::Null;
    let path = sandbox.path("config.toml");
    let none = call("GET", "/v1/rules", &nothing, 200);
    assert_eq!((&none["path"], &none["rules"]), (&json!(path), &json!([])));
    sandbox.write("config.toml", "\n[[rule]]\nname = 'no-such-*'\nas = 'nobodys'\n");
    let rule = eventually("the rule", || {
        let rules = call("GET", "/v1/rules", &nothing, 200);
        rules["rules"].as_array().unwrap().first().cloned()
    });
    assert_eq!((&rule["line"], &rule["selector"]), (&json!(2), &json!("name:no-such-*")));
    // It is in the next list, not necessarily in one of a moment ago: nobody asked for it who would be shown it at once.
    eventually("its client", || {
        let all = call("GET", "/v1/clients", &nothing, 200)["clients"].clone();
        all.as_array().unwrap().iter().find(|c| c["name"] == "nobodys" && c["id"] == rule["client"]).cloned()
    });
    std::fs::remove_file(path).unwrap();
    eventually("its end", || (call("GET", "/v1/rules", &nothing, 200)["rules"] == json!([])).then_some(()));
}

/// What a command came to, and what happened to whom.
fn check_events(sandbox: &Sandbox, call: &mut impl FnMut(&str, &str, &Value, u16) -> Value) {
    let nothing = Value::Null;
    let quick = call(
        "POST",
        "/v1/clients",
        &json!({ "share": 1, "command": { "argv": ["sh", "-c", "exit 3"] } }),
        201,
    );
    let id = quick["id"].as_u64().unwrap();
    let left = eventually("its end", || {
        let answer = ask(sandbox, "GET", &format!("/v1/clients/{id}"), "");
        let client: Value = serde_json::from_str(&answer.body).unwrap();
        (client["state"] == "left").then_some(client)
    });
    assert_eq!(left["exit"], json!({ "code": 3 }));
    call("GET", &format!("/v1/clients/{id}"), &nothing, 200);
    let events = call("GET", "/v1/events", &nothing, 200);
    let of_sh: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["client"] == 1)
        .map(|e| e["what"].as_str().unwrap())
        .collect();
    for what in ["joined", "reshared", "paused", "resumed"] {
        assert_eq!(of_sh.iter().filter(|w| **w == what).count(), 1, "{what}: {of_sh:?}");
    }
    let next = events["next"].as_u64().unwrap();
    assert!(
        call("GET", &format!("/v1/events?since={next}"), &nothing, 200)["next"].as_u64().unwrap() >= next
    );
}

/// Every answer of the document that is no error has been seen, of the paths that are meant.
pub fn check_all_asked(seen: &Seen, is_meant: impl Fn(&str) -> bool) {
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| is_meant(path)) {
        for method in ["get", "post", "put", "patch", "delete"].into_iter().filter(|m| methods[m].is_object())
        {
            for status in
                methods[method]["responses"].as_object().unwrap().keys().filter(|s| s.starts_with('2'))
            {
                let row = (path.clone(), method.to_uppercase(), status.parse().unwrap());
                assert!(seen.contains(&row), "nobody has asked for {row:?}");
            }
        }
    }
}

/// Requests that cannot be fulfilled: each is refused with its code, a cause and a fix, and changes nothing.
fn check_refusals(call: &mut impl FnMut(&str, &str, &Value, u16) -> Value, pid: &str) {
    let nothing = Value::Null;
    let selector = |text: &str| json!({ "share": 1, "selector": text });
    let clients = call("GET", "/v1/clients", &nothing, 200)["clients"].as_array().unwrap().len();
    let pid_of = format!("pid:{pid}");
    let rows = [
        ("POST", "/v1/clients", selector("tree:4194305"), 404, "no-such-process"),
        ("POST", "/v1/clients", selector("pid:1"), 403, "protected"),
        ("POST", "/v1/clients", selector("slice:1"), 400, "bad-request"),
        ("POST", "/v1/clients", json!({ "share": 0, "selector": pid_of }), 400, "bad-request"),
        ("POST", "/v1/clients", json!({ "share": 1_000_001, "selector": pid_of }), 400, "bad-request"),
        ("POST", "/v1/clients", json!({ "share": -1, "selector": pid_of }), 400, "bad-request"),
        ("POST", "/v1/clients", json!({ "share": 1 }), 400, "bad-request"),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "selector": pid_of, "command": { "argv": ["a"] } }),
            400,
            "bad-request",
        ),
        ("POST", "/v1/clients", json!({ "share": 1, "selector": pid_of, "priority": 1 }), 400, "bad-request"),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "name": "büro-#1", "selector": pid_of }),
            409,
            "name-taken",
        ),
        ("POST", "/v1/clients", json!({ "share": 1, "command": { "argv": [] } }), 400, "bad-request"),
        ("POST", "/v1/clients", json!({ "share": 1, "command": { "argv": ["a\0b"] } }), 400, "bad-request"),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "command": { "argv": ["no-such-program"] } }),
            422,
            "not-started",
        ),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "dry_run": true, "command": { "argv": ["a"] } }),
            400,
            "bad-request",
        ),
        (
            "POST",
            "/v1/clients",
            json!({ "share": 1, "from": "lab", "command": { "argv": ["true"] } }),
            400,
            "bad-request",
        ),
        ("PATCH", "/v1/clients/nobody", json!({ "share": 2 }), 404, "no-such-client"),
        ("PATCH", "/v1/clients/0", json!({}), 400, "bad-request"),
        ("PATCH", "/v1/clients/0", json!({ "share": 0, "paused": true }), 400, "bad-request"),
        ("DELETE", "/v1/clients/nobody", nothing.clone(), 404, "no-such-client"),
        ("GET", "/v1/clients/nobody", nothing.clone(), 404, "no-such-client"),
        ("GET", "/v1/clients?members=10001", nothing.clone(), 400, "bad-request"),
        ("GET", "/v1/clients?member=1", nothing.clone(), 400, "bad-request"),
        ("GET", "/v1/events?since=x", nothing.clone(), 400, "bad-request"),
        ("GET", "/v1/explain/x", nothing.clone(), 400, "bad-request"),
    ];
    for (method, path, body, status, code) in rows {
        let answer = call(method, path, &body, status);
        assert_eq!(answer["error"]["code"], code, "{method} {path} {body}");
    }
    let now = call("GET", "/v1/clients", &nothing, 200);
    assert_eq!(now["clients"].as_array().unwrap().len(), clients);
    assert_ne!(now["clients"][0]["state"], "paused", "half of a change is none");
}

/// How many connections are left open by somebody who sends nothing: more than there are places.
const SILENT: usize = 80;

#[test]
fn what_is_too_large_malformed_or_slow_is_bounded() {
    let sandbox = Sandbox::own();
    start_divvyd(&sandbox, &["--linger", "120s"]);
    let error = |answer: &Answer| -> Value {
        let value: Value = serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{e}: {answer:?}"));
        check_schema(&document(), &document()["components"]["schemas"]["Error"], &value, "an error");
        value["error"]["code"].clone()
    };
    let answer = ask(&sandbox, "GET", "/v2/clients", "");
    assert_eq!((answer.status, error(&answer)), (404, json!("no-such-path")));
    let answer = ask(&sandbox, "PUT", "/v1/clients", "");
    assert_eq!((answer.status, error(&answer)), (405, json!("no-such-method")));
    let answer = ask(&sandbox, "POST", "/v1/clients", "{\"share\": 1");
    assert_eq!((answer.status, error(&answer)), (400, json!("bad-request")));
    assert!(answer.body.contains("line 1 column 11"), "{answer:?}");
    let answer = ask(&sandbox, "POST", "/v1/clients", &"[".repeat(60_000));
    assert_eq!((answer.status, error(&answer)), (400, json!("bad-request")));
    // Longer than any body: refused by what it says of itself, before it is read.
    let mut stream = connect(&sandbox);
    let head = "POST /v1/clients HTTP/1.1\r\nhost: divvyd\r\nconnection: close\r\ncontent-length: 10000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let answer = read_answer(stream);
    assert_eq!((answer.status, error(&answer)), (413, json!("too-large")));
    // A head without an end, and no HTTP at all.
    for junk in [format!("GET / HTTP/1.1\r\nx: {}", "x".repeat(100_000)), "\u{1}\u{2}\r\n\r\n".repeat(10)] {
        let mut stream = connect(&sandbox);
        let _ = stream.write_all(junk.as_bytes()); // It may be refused before all was sent.
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said); // Reset or refused: it is over either way.
        let said = String::from_utf8_lossy(&said);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    // Whoever says nothing, or not all, is not waited for for ever, and keeps nobody else out for longer than that.
    let silent: Vec<UnixStream> = (0..SILENT).map(|_| connect(&sandbox)).collect();
    let mut half = connect(&sandbox);
    let head =
        "POST /v1/clients HTTP/1.1\r\nhost: divvyd\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{";
    half.write_all(head.as_bytes()).unwrap();
    assert_eq!(ask(&sandbox, "GET", "/v1/status", "").status, 200);
    let answer = read_answer(half);
    assert_eq!((answer.status, error(&answer)), (408, json!("too-slow")));
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "closed without a word");
    }
    assert_eq!(ask(&sandbox, "GET", "/v1/status", "").status, 200);
}
