//! The runner for the Rust client, within this process.

#[path = "../it/support/clock.rs"]
#[allow(dead_code, reason = "the other tests need more of it")]
mod clock;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{
    AcquireError, Blocked, CallError, Client, CloseError, HeldLease, Loss, OpenError, Refusal,
    ReleaseError, Session, SessionId, SessionOptions, Term, TransferError,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use self::clock::SteppedClock;

/// What the program has, by the labels of the script.
#[derive(Default)]
struct State {
    clients: HashMap<String, Client>,
    sessions: HashMap<String, Session>,
    leases: HashMap<String, HeldLease>,
    terms: HashMap<String, Term>,
    running: HashMap<u64, oneshot::Sender<()>>,
}

type Outcome = Result<Value, Value>;

struct Runner {
    state: Mutex<State>,
    clock: Arc<SteppedClock>,
}

/// Carries orders out until no more come.
pub(crate) async fn run(
    mut told: mpsc::UnboundedReceiver<Value>,
    answers: mpsc::UnboundedSender<Value>,
) {
    let runner = Arc::new(Runner {
        state: Mutex::default(),
        clock: Arc::new(SteppedClock::new()),
    });
    while let Some(request) = told.recv().await {
        let (runner, answers) = (Arc::clone(&runner), answers.clone());
        let id = request["id"].as_u64().unwrap_or(0);
        let (stop, stopped) = oneshot::channel();
        runner.state.lock().unwrap().running.insert(id, stop);
        tokio::spawn(async move {
            let outcome = tokio::select! {
                outcome = runner.handle(&request) => outcome,
                Ok(()) = stopped => Err(json!({"kind": "abandoned"})),
            };
            runner.state.lock().unwrap().running.remove(&id);
            let answer = match outcome {
                Ok(value) => json!({"id": id, "ok": value}),
                Err(error) => json!({"id": id, "error": error}),
            };
            answers.send(answer).ok();
        });
    }
}

fn text<'a>(request: &'a Value, key: &str) -> &'a str {
    request[key].as_str().unwrap_or_default()
}

fn millis(request: &Value, key: &str) -> Option<Duration> {
    request[key].as_u64().map(Duration::from_millis)
}

fn misuse(why: &str) -> Value {
    json!({"kind": "misuse", "text": why})
}

impl Runner {
    async fn handle(&self, request: &Value) -> Outcome {
        match text(request, "do") {
            "hello" => Ok(json!({
                "language": "rust",
                "features": ["suspend", "abandon", "lease_comes_back"],
            })),
            "connect" => self.connect(request).await,
            "open" => self.open(request).await,
            "acquire" => self.acquire(request).await,
            "release" => self.release(request).await,
            "transfer" => self.transfer(request).await,
            "check" => {
                let term = self.term(request)?;
                Ok(standing(term.loss().as_ref(), term.remaining()))
            }
            "wait_lost" => {
                let term = self.term(request)?;
                let loss = term.lost().await;
                Ok(standing(Some(&loss), term.remaining()))
            }
            "report_stale" => {
                self.term(request)?.report_stale();
                Ok(json!({}))
            }
            "check_session" => {
                let live = self.session(request)?.is_live();
                Ok(json!({"held": live}))
            }
            "close" => {
                let label = text(request, "session");
                let session = self.state.lock().unwrap().sessions.remove(label);
                let session = session.ok_or_else(|| misuse("no such session"))?;
                let closed = session.close().await;
                closed.map_err(|CloseError(error)| call(&error))?;
                Ok(json!({}))
            }
            "shut_down" => {
                let client = self.client(request)?;
                let ended = client.shutdown().await;
                ended.map_err(|error| json!({"kind": "not_closed", "text": error.to_string()}))?;
                Ok(json!({}))
            }
            "suspend" => {
                self.clock.step(millis(request, "ms").unwrap_or_default());
                Ok(json!({}))
            }
            "abandon" => {
                let id = request["target"].as_u64().unwrap_or(0);
                let stop = self.state.lock().unwrap().running.remove(&id);
                stop.and_then(|stop| stop.send(()).ok());
                Ok(json!({}))
            }
            "reset" => {
                let state = std::mem::take(&mut *self.state.lock().unwrap());
                drop((state.leases, state.sessions));
                for client in state.clients.into_values() {
                    client.shutdown().await.ok();
                }
                Ok(json!({}))
            }
            other => Err(misuse(&format!("cannot do {other:?}"))),
        }
    }

    fn client(&self, request: &Value) -> Result<Client, Value> {
        let state = self.state.lock().unwrap();
        let client = state.clients.get(text(request, "client")).cloned();
        client.ok_or_else(|| misuse("no such client"))
    }

    fn session(&self, request: &Value) -> Result<Session, Value> {
        let state = self.state.lock().unwrap();
        let session = state.sessions.get(text(request, "session")).cloned();
        session.ok_or_else(|| misuse("no such session"))
    }

    fn term(&self, request: &Value) -> Result<Term, Value> {
        let state = self.state.lock().unwrap();
        let term = state.terms.get(text(request, "lease")).cloned();
        term.ok_or_else(|| misuse("no such lease"))
    }

    fn take_lease(&self, request: &Value) -> Result<HeldLease, Value> {
        let mut state = self.state.lock().unwrap();
        let lease = state.leases.remove(text(request, "lease"));
        lease.ok_or_else(|| misuse("no such lease"))
    }

    fn keep(&self, label: &str, lease: HeldLease) -> Value {
        let told = json!({
            "name": lease.name().to_string(),
            "token": lease.token().get(),
            "session": lease.session().get(),
            "data": String::from_utf8_lossy(lease.data()),
        });
        let mut state = self.state.lock().unwrap();
        state.terms.insert(label.to_owned(), lease.term());
        state.leases.insert(label.to_owned(), lease);
        told
    }

    async fn connect(&self, request: &Value) -> Outcome {
        let endpoints = request["endpoints"].as_array().into_iter().flatten();
        let endpoints = endpoints.filter_map(Value::as_str);
        let clock = Arc::clone(&self.clock);
        let mut builder = Client::builder().endpoints(endpoints).clock(clock);
        if let Some(timeout) = millis(request, "connect_timeout_ms") {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(timeout) = millis(request, "request_timeout_ms") {
            builder = builder.request_timeout(timeout);
        }
        let client = builder.connect().await;
        let client =
            client.map_err(|error| json!({"kind": "no_connection", "text": error.to_string()}))?;
        let label = text(request, "as").to_owned();
        self.state.lock().unwrap().clients.insert(label, client);
        Ok(json!({}))
    }

    async fn open(&self, request: &Value) -> Outcome {
        let options = SessionOptions {
            ttl: millis(request, "ttl_ms").unwrap_or(Duration::from_secs(15)),
            identity: text(request, "identity").to_owned(),
        };
        let opened = self.client(request)?.open_session(options).await;
        let session = opened.map_err(|error| match error {
            OpenError::Call(error) => call(&error),
            OpenError::TooLate => json!({"kind": "lost", "loss": "window_passed"}),
            other => misuse(&other.to_string()),
        })?;
        let ttl = u64::try_from(session.ttl().as_millis()).unwrap_or(u64::MAX);
        let told = json!({"session": session.id().get(), "ttl_ms": ttl});
        let label = text(request, "as").to_owned();
        self.state.lock().unwrap().sessions.insert(label, session);
        Ok(told)
    }

    async fn acquire(&self, request: &Value) -> Outcome {
        let session = self.session(request)?;
        let mut acquire = session.acquire(text(request, "name"));
        if let Some(wait) = millis(request, "wait_ms") {
            acquire = acquire.wait(wait);
        }
        if let Some(delay) = millis(request, "lock_delay_ms") {
            acquire = acquire.lock_delay(delay);
        }
        if let Some(data) = request["data"].as_str() {
            acquire = acquire.data(data.to_owned());
        }
        let lease = acquire.send().await.map_err(|error| match error {
            AcquireError::Held(holder) => json!({
                "kind": "refused",
                "reason": "HELD",
                "holder": holder.session.map(SessionId::get),
                "identity": holder.identity,
                "token": holder.token.map(|token| token.get()),
                "mine": holder.mine,
            }),
            AcquireError::Queued { .. } => json!({"kind": "refused", "reason": "QUEUED"}),
            AcquireError::NotNow { why, remaining } => json!({
                "kind": "refused",
                "reason": match why {
                    Blocked::LockDelay => "LOCK_DELAY",
                    Blocked::Revoking => "REVOKING",
                    _ => "QUIET_TIME",
                },
                "retry_after_ms": after(remaining),
            }),
            AcquireError::TimedOut => json!({"kind": "wait_over"}),
            AcquireError::Ended(loss) | AcquireError::SessionLost(loss) => lost(&loss),
            AcquireError::Call(error) => call(&error),
            other => json!({"kind": "invalid", "text": other.to_string()}),
        })?;
        Ok(self.keep(text(request, "as"), lease))
    }

    async fn release(&self, request: &Value) -> Outcome {
        let lease = self.take_lease(request)?;
        lease.release().await.map_err(|error| match error {
            ReleaseError::Lost(loss) => lost(&loss),
            ReleaseError::Call(error) => call(&error),
            other => misuse(&other.to_string()),
        })?;
        Ok(json!({}))
    }

    async fn transfer(&self, request: &Value) -> Outcome {
        let lease = self.take_lease(request)?;
        let to = request["to"].as_u64().and_then(SessionId::new);
        match lease.transfer_to(to).await {
            Ok(told) => Ok(json!({"session": told.to.get(), "token": told.token.get()})),
            Err(TransferError::NotWaiting { lease }) => {
                let label = text(request, "back");
                if let Some(lease) = lease.filter(|_| !label.is_empty()) {
                    self.keep(label, lease);
                }
                Err(json!({"kind": "refused", "reason": "NOT_WAITING"}))
            }
            Err(TransferError::Lost(loss)) => Err(lost(&loss)),
            Err(TransferError::Call(error)) => Err(call(&error)),
            Err(other) => Err(misuse(&other.to_string())),
        }
    }
}

fn standing(loss: Option<&Loss>, remaining: Duration) -> Value {
    let remaining = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
    match loss {
        Some(loss) => json!({"held": false, "loss": loss_name(loss), "remaining_ms": remaining}),
        None => json!({"held": true, "remaining_ms": remaining}),
    }
}

fn after(time: Option<Duration>) -> u64 {
    let time = time.unwrap_or_default().as_millis();
    u64::try_from(time).unwrap_or(u64::MAX)
}

fn lost(loss: &Loss) -> Value {
    json!({"kind": "lost", "loss": loss_name(loss)})
}

fn loss_name(loss: &Loss) -> &'static str {
    match loss {
        Loss::WindowPassed => "window_passed",
        Loss::SessionEnded { .. } => "session_ended",
        Loss::GrantEnded { .. } => "grant_ended",
        Loss::WrongSecret => "wrong_secret",
        Loss::ClusterChanged => "cluster_changed",
        Loss::Reported => "reported",
        Loss::Closed => "closed",
        Loss::Released => "released",
        _ => "other",
    }
}

fn call(error: &CallError) -> Value {
    match error {
        CallError::Refused(refusal) => refused(refusal),
        CallError::Unavailable { why } => json!({"kind": "unavailable", "text": why}),
        CallError::Unknown { why } => json!({"kind": "outcome_unknown", "text": why}),
        other => misuse(&other.to_string()),
    }
}

fn refused(refusal: &Refusal) -> Value {
    json!({
        "kind": "refused",
        "reason": refusal.reason.as_str(),
        "retry_after_ms": after(refusal.retry_after),
    })
}
