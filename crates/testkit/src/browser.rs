//! A headless browser that receives its orders through a pipe, and is gone with the value that stands
//! for it.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use std::{env, io, thread};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser starts within seconds, and within a minute where every core is busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// How long it may be silent while it closes.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// How often a page is asked whether it is ready, at most; each asking takes a few milliseconds.
const LOOKS_MAX: usize = 20_000;

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Modifier keys as the protocol counts them.
pub const SHIFT: u32 = 8;

/// Looks for a browser. Under CI it must be there; elsewhere its tests are left out, loudly.
fn find(tested: &str) -> Option<PathBuf> {
    let places = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&places)
        .flat_map(|place| NAMES.map(|name| place.join(name)))
        .find(|path| path.is_file());
    if found.is_some() {
        return found;
    }
    let ci = env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "no chromium is installed: apt-get install chromium");
    // Past the harness, which would keep what a passing test prints to itself.
    let line = format!("\nNOT TESTED: {tested}; no chromium: apt-get install chromium\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
    None
}

/// A browser with one tab. Its methods panic where the browser fails, or answers too late.
pub struct Browser {
    child: Child,
    pipe: ChildStdin,
    messages: Receiver<Value>,
    tab: Option<String>,
    last: u64,
    /// Addresses that the page asked for.
    pub asked_for: Vec<String>,
    /// What it complained of: exceptions, and lines of its console.
    pub complaints: Vec<String>,
    directory: TempDir,
}

impl Browser {
    /// Starts one, or says loudly that there is none and that this is not tested therefore.
    #[must_use]
    pub fn start(tested: &str) -> Option<Self> {
        let program = find(tested)?;
        let directory = tempfile::tempdir().unwrap();
        let profile = directory.path().join("profile");
        // The browser reads its orders from file 3 and answers on file 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to_us, messages) = channel();
        let answers = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for message in answers.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).unwrap();
                if to_us.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            pipe: child.stdin.take().unwrap(),
            child,
            messages,
            tab: None,
            last: 0,
            asked_for: Vec::new(),
            complaints: Vec::new(),
            directory,
        };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let targets = self.order("Target.getTargets", json!({}));
        let pages = targets["targetInfos"].as_array().unwrap();
        let page = pages.iter().find(|it| it["type"] == "page").unwrap();
        let wanted = json!({ "targetId": page["targetId"], "flatten": true });
        let session = self.order("Target.attachToTarget", wanted);
        self.tab = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.order(&format!("{domain}.enable"), json!({}));
        }
        self.size(1280, 800);
    }

    /// Gives an order and awaits what comes of it.
    pub fn order(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(tab) = &self.tab {
            message["sessionId"] = json!(tab);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.pipe.write_all(&bytes).unwrap();
        loop {
            let answer = match self.messages.recv_timeout(ANSWER_LIMIT) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser ended at {method}"),
            };
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.event(&answer);
        }
    }

    fn event(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                let address = parameters["request"]["url"].as_str().unwrap_or("");
                self.asked_for.push(address.to_owned());
            }
            Some("Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled") => {
                self.complaints.push(parameters.to_string());
            }
            _ => {}
        }
    }

    /// Sets the size of the window.
    pub fn size(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.order("Emulation.setDeviceMetricsOverride", size);
    }

    /// Lets the browser prefer light or dark.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.order(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Opens an address, and waits until the page says that it is ready.
    pub fn visit(&mut self, address: &str) {
        // By way of another page: a new fragment alone would not load anything.
        self.order("Page.navigate", json!({ "url": "about:blank" }));
        self.order("Page.navigate", json!({ "url": address }));
        self.until("document.documentElement?.dataset.state === 'ready'");
    }

    /// A directory that is gone with the browser.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What the window shows, as PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let taken = self.order("Page.captureScreenshot", json!({ "format": "png" }));
        let text = taken["data"].as_str().unwrap();
        STANDARD.decode(text).unwrap()
    }

    /// Asks the page.
    pub fn ask(&mut self, script: &str) -> Value {
        let wanted = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let answer = self.order("Runtime.evaluate", wanted);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Asks the page for a text.
    pub fn text(&mut self, script: &str) -> String {
        let answer = self.ask(script);
        let text = answer.as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("{script} is no text: {answer}"))
    }

    /// What the page says of itself.
    pub fn data(&mut self, name: &str) -> String {
        self.text(&format!("document.documentElement.dataset.{name} ?? '-'"))
    }

    /// Waits until a script says `true`.
    pub fn until(&mut self, script: &str) {
        for _ in 0..LOOKS_MAX {
            // A frame between two looks, so that the page can work.
            let look = format!(
                "new Promise((tell) => requestAnimationFrame(() => tell(Boolean({script}))))"
            );
            if self.ask(&look) == json!(true) {
                return;
            }
        }
        let faults = self.data("faults");
        panic!(
            "never came true: {script}; the page's faults: {faults}; {:?}",
            self.complaints
        );
    }

    /// Presses a key and lets it go.
    pub fn key(&mut self, key: &str, modifiers: u32) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "modifiers": modifiers });
            if kind == "keyDown" && key.chars().count() == 1 {
                event["text"] = json!(key);
            }
            self.order("Input.dispatchKeyEvent", event);
        }
    }

    /// Moves the pointer there.
    pub fn point(&mut self, (x, y): (f64, f64)) {
        let event = json!({ "type": "mouseMoved", "x": x, "y": y });
        self.order("Input.dispatchMouseEvent", event);
    }

    /// Clicks there.
    pub fn click(&mut self, place: (f64, f64)) {
        self.point(place);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place.0, "y": place.1, "button": "left", "clickCount": 1
            });
            self.order("Input.dispatchMouseEvent", event);
        }
    }

    /// Turns the wheel there.
    pub fn wheel(&mut self, (x, y): (f64, f64), by: f64) {
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by });
        self.order("Input.dispatchMouseEvent", event);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked, it takes its children with it; those of a killed one notice a little later.
        let close = format!(
            "{{\"id\":{},\"method\":\"Browser.close\"}}\0",
            self.last + 1
        );
        if self.pipe.write_all(close.as_bytes()).is_ok() {
            while self.messages.recv_timeout(CLOSE_LIMIT).is_ok() {}
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
