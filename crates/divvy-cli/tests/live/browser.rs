//! A real browser, without a screen: Chromium, told what to do through its debugging pipe. That is JSON and NUL between two
//! pipes, so that it needs none of the libraries that know the thousand calls of which these tests make ten.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Sandbox, eventually, skip};

/// Who can be asked. `scripts/setup.sh` installs the first where there is one.
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub struct Browser {
    child: Child,
    orders: File,
    answers: Receiver<Value>,
    last: u64,
    session: String,
    /// What the page or the browser complained of: exceptions, refused loads, breaches of its policy.
    pub complaints: Vec<String>,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    PROGRAMS.iter().find_map(|name| dirs.iter().map(|dir| dir.join(name)).find(|file| file.is_file()))
}

impl Browser {
    /// One that shows an empty page; `None`, and a word why, where this machine has none.
    pub fn open(sandbox: &Sandbox, test: &str) -> Option<Self> {
        let Some(program) = program() else {
            // There, scripts/setup.sh has run.
            assert!(std::env::var_os("CI").is_none(), "no browser in CI: none of {PROGRAMS:?} is there");
            skip(test, "no Chromium: install chromium-headless-shell (scripts/setup.sh does)");
            return None;
        };
        let (orders, answers) = (sandbox.path("orders"), sandbox.path("answers"));
        for pipe in [&orders, &answers] {
            rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
                .expect("a pipe");
        }
        // Both as the descriptors that the browser expects; a group of its own, so that all of it ends together.
        let mut command = Command::new("sh");
        command.args(["-c", r#"o=$1 a=$2; shift 2; exec "$@" 3<"$o" 4>"$a""#, "sh"]);
        command.args([&orders, &answers]).arg(program).arg("--remote-debugging-pipe");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--no-proxy-server"]);
        command.args(["--disable-dev-shm-usage", "--hide-scrollbars", "about:blank"]);
        command.arg(format!("--user-data-dir={}", sandbox.path("profile").display()));
        command.env("HOME", sandbox.path("")).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("start a shell");
        let orders = File::options().write(true).open(orders).expect("the shell opens the other end");
        let messages = File::open(answers).expect("the shell opens the other end");
        let (told, answers) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(messages).split(0) {
                let Ok(Ok(message)) = message.map(|text| serde_json::from_slice(&text)) else { return };
                if told.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, orders, answers, last: 0, session: String::new(), complaints: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let page = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = page["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// What the browser answers to a call.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut order = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            order["sessionId"] = self.session.clone().into();
        }
        let mut bytes = order.to_string().into_bytes();
        bytes.push(0);
        self.orders.write_all(&bytes).expect("the browser reads");
        loop {
            let message = match self.answers.recv_timeout(PATIENCE) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("the browser does not answer {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended before {method}"),
            };
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.hear(&message);
        }
    }

    fn hear(&mut self, message: &Value) {
        let params = &message["params"];
        let complaint = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => &params["exceptionDetails"],
            "Log.entryAdded" if params["entry"]["level"] == "error" => &params["entry"],
            "Runtime.consoleAPICalled" if params["type"] == "error" => &params["args"],
            _ => return,
        };
        self.complaints.push(complaint.to_string());
    }

    /// What an expression of JavaScript comes to on the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let done = self.call("Runtime.evaluate", params);
        assert!(done.get("exceptionDetails").is_none(), "{expression}: {done}");
        done["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let what = format!("{expression} on the page");
        eventually(&what, || (self.evaluate(&format!("!!({expression})")) == true).then_some(()));
    }

    pub fn go(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
        self.wait_for("document.readyState === 'complete'");
    }

    /// The size of the window, and whether its user prefers a dark page.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({"name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" }});
        self.call("Emulation.setEmulatedMedia", json!({"features": [scheme]}));
    }

    /// Presses a key, as a user does.
    pub fn press(&mut self, key: &str, code: u32, text: &str) {
        let event = |kind: &str| json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
        self.call("Input.dispatchKeyEvent", event(if text.is_empty() { "rawKeyDown" } else { "keyDown" }));
        let mut up = event("keyUp");
        up["text"] = "".into();
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Types into what has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Clicks in the middle of the first element that a selector finds.
    /// Where a look at the clients moves what is clicked between the press and the release, it is clicked again, as a user does.
    pub fn click(&mut self, selector: &str) {
        let element = format!("document.querySelector({})", serde_json::to_string(selector).expect("text"));
        self.evaluate(&format!(
            "{element}.addEventListener('click', () => window.clicked = true, {{once: true}})"
        ));
        eventually(&format!("{selector} to be clicked"), || {
            let spot = self.evaluate(&format!(
                "(() => {{ const e = {element}; e.scrollIntoView({{block: 'center'}}); \
                 const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
            ));
            for kind in ["mousePressed", "mouseReleased"] {
                let event =
                    json!({"type": kind, "x": spot[0], "y": spot[1], "button": "left", "clickCount": 1});
                self.call("Input.dispatchMouseEvent", event);
            }
            (self.evaluate("!!window.clicked && !(window.clicked = false)") == true).then_some(())
        });
    }

    /// Writes a picture of the whole page into the directory that `DIVVY_WEB_PICTURES` names: for somebody to look at.
    pub fn picture(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("DIVVY_WEB_PICTURES") else { return };
        let taken = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let mut decoder = Command::new("base64");
        decoder.arg("-d").stdin(Stdio::piped());
        decoder.stdout(File::create(Path::new(&dir).join(format!("{name}.png"))).expect("a file"));
        let mut decoder = decoder.spawn().expect("base64");
        let text = taken["data"].as_str().expect("a picture");
        decoder.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
        assert!(decoder.wait().expect("base64").success());
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
