//! A browser without a window, over the `DevTools` protocol: Chromium or Chrome.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::error::{Error, FileContext, Result, text};
use crate::machine::guard::Guard;

/// The programs that speak this protocol.
const PROGRAMS: [&str; 2] = ["chromium", "google-chrome"];
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];
/// The protocol uses the file descriptors 3 and 4. Here they are standard input and output.
const PIPES: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
/// The time for one answer. A cold start takes seconds.
const PATIENCE: Duration = Duration::from_mins(1);
/// The byte after each message.
const END: u8 = 0;

/// A browser with one page.
pub struct Browser {
    _child: Child,
    _profile: tempfile::TempDir,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    last: u64,
    /// The addresses of the requests since the page was opened.
    pub requests: Vec<String>,
    /// The name of the last event.
    event: String,
}

impl Browser {
    /// Starts the browser that is installed.
    pub async fn start() -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_installed = |name: &&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
        let missing = || Error::BrowserMissing(PROGRAMS.join(" or "));
        let program = PROGRAMS.iter().find(|name| is_installed(name)).ok_or_else(missing)?;
        let profile = tempfile::tempdir().when("make a directory in", &std::env::temp_dir())?;
        let data = format!("--user-data-dir={}", text(profile.path())?);
        let mut child = Command::new("bash")
            .args(["-c", PIPES, "bash", program])
            .args(FLAGS)
            .arg(data)
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(Guard::get()?.process_group())
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| Error::NotStarted { program: (*program).to_owned(), source })?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| Error::Browser("it has no pipes".to_owned()))?;
        let mut browser = Self {
            _child: child,
            _profile: profile,
            input,
            output: BufReader::new(output),
            session: None,
            last: 0,
            requests: Vec::new(),
            event: String::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"})).await?;
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", target).await?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Network.enable"] {
            browser.call(domain, json!({})).await?;
        }
        Ok(browser)
    }

    /// Opens a file in a window of this width, with the user's wish for dark colours.
    pub async fn open(&mut self, file: &Path, width: u32, is_dark: bool) -> Result<()> {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await?;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await?;
        self.requests.clear();
        self.call("Page.navigate", json!({"url": format!("file://{}", text(file)?)})).await?;
        while self.event != "Page.loadEventFired" {
            self.read().await?;
        }
        self.event.clear();
        Ok(())
    }

    /// Evaluates JavaScript in the page, and returns the result or that of its promise.
    pub async fn evaluate(&mut self, script: &str) -> Result<Value> {
        let parameters = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", parameters).await?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(Error::Browser(details.to_string())),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Saves a picture of the whole page.
    pub async fn picture(&mut self, file: &Path) -> Result<()> {
        use base64::Engine;
        use base64::prelude::BASE64_STANDARD;
        let answer = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true})).await?;
        let data = BASE64_STANDARD.decode(answer["data"].as_str().unwrap_or_default());
        let data = data.map_err(|error| Error::Browser(error.to_string()))?;
        std::fs::write(file, data).when("write", file)
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let failed = |error: std::io::Error| Error::Browser(error.to_string());
        let mut bytes = message.to_string().into_bytes();
        bytes.push(END);
        self.input.write_all(&bytes).await.map_err(failed)?;
        loop {
            let answer = self.read().await?;
            if answer["id"] != self.last {
                continue;
            }
            return match answer.get("error") {
                Some(error) => Err(Error::Browser(format!("{method}: {error}"))),
                None => Ok(answer["result"].clone()),
            };
        }
    }

    /// Reads a message, and remembers events.
    async fn read(&mut self) -> Result<Value> {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.output.read_until(END, &mut bytes)).await;
        let read = read.map_err(|_| Error::Browser(format!("no answer in {} s", PATIENCE.as_secs())))?;
        read.map_err(|error| Error::Browser(error.to_string()))?;
        bytes.pop_if(|last| *last == END);
        let message: Value = serde_json::from_slice(&bytes).map_err(|error| Error::Browser(error.to_string()))?;
        if let Some(method) = message["method"].as_str() {
            method.clone_into(&mut self.event);
            if method == "Network.requestWillBeSent" {
                self.requests.extend(message["params"]["request"]["url"].as_str().map(str::to_owned));
            }
        }
        Ok(message)
    }
}

/// The path of axe-core, which finds what people with disabilities cannot use in a page.
pub fn axe() -> Result<PathBuf> {
    std::env::var_os("WINPOOL_AXE").map(PathBuf::from).ok_or(Error::AxeMissing)
}
