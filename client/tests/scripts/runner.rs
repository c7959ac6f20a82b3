//! A program under test: it receives orders in JSON, and answers in JSON.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// See the module.
pub(crate) struct Runner {
    requests: mpsc::UnboundedSender<Value>,
    waiting: Waiting,
    last: u64,
    /// Killed when this is dropped.
    _process: Option<Child>,
}

impl Runner {
    /// One that runs in this process; see [`crate::rust`].
    pub(crate) fn in_process() -> Self {
        let (requests, told) = mpsc::unbounded_channel();
        let (answers, answered) = mpsc::unbounded_channel();
        tokio::spawn(crate::rust::run(told, answers));
        Self::new(requests, answered, None)
    }

    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{command:?} does not start: {error}"))?;
        let (requests, mut told) = mpsc::unbounded_channel::<Value>();
        let (answers, answered) = mpsc::unbounded_channel();
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let (mut stdin, stdout) = stdin.zip(stdout).ok_or("no pipes")?;
        tokio::spawn(async move {
            while let Some(request) = told.recv().await {
                let line = format!("{request}\n");
                if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(answer) => {
                        answers.send(answer).ok();
                    }
                    Err(_) => eprintln!("a runner printed what is no JSON: {line}"),
                }
            }
        });
        Ok(Self::new(requests, answered, Some(process)))
    }

    fn new(
        requests: mpsc::UnboundedSender<Value>,
        mut answered: mpsc::UnboundedReceiver<Value>,
        process: Option<Child>,
    ) -> Self {
        let waiting = Waiting::default();
        let here = Arc::clone(&waiting);
        tokio::spawn(async move {
            while let Some(answer) = answered.recv().await {
                let id = answer["id"].as_u64().unwrap_or(0);
                let waits = here.lock().unwrap().remove(&id);
                if let Some(waits) = waits {
                    waits.send(answer).ok();
                }
            }
            // It has ended: nothing is answered any more.
            here.lock().unwrap().clear();
        });
        Self {
            requests,
            waiting,
            last: 0,
            _process: process,
        }
    }

    /// Asks for something; the answer comes when it is done. Also returns its number.
    pub(crate) fn ask(&mut self, what: &str, fields: &Value) -> (u64, oneshot::Receiver<Value>) {
        self.last += 1;
        let mut request = json!({"id": self.last, "do": what});
        for (key, value) in fields.as_object().into_iter().flatten() {
            request[key] = value.clone();
        }
        let (reply, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(self.last, reply);
        self.requests.send(request).ok();
        (self.last, answer)
    }
}
