//! A store in a process's memory, behind the guard for that: served by the process that started
//! the run, over a socket that no network fault reaches.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_check::history::{Admission, GuardAct};
use ringfence_guard::{Fence, Guard, Refused};
use serde::{Deserialize, Serialize};

use super::ask::{Answer, Ask, Entry};

/// How long the store may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    fence: String,
    act: GuardAct,
    value: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Said {
    admission: Admission,
    commit: Option<u64>,
    value: Option<i64>,
}

/// A client's end.
#[derive(Debug)]
pub(super) struct MemoryStore {
    socket: PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

impl MemoryStore {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            stream: None,
        }
    }

    pub(super) fn answer(&mut self, ask: &Ask) -> Answer {
        match self.try_answer(ask) {
            Ok(said) => Answer {
                admission: said.admission,
                commit: said.commit,
                value: said.value,
            },
            Err(_) => {
                self.stream = None;
                Answer {
                    admission: Admission::Unknown,
                    ..Answer::FAILED
                }
            }
        }
    }

    fn try_answer(&mut self, ask: &Ask) -> io::Result<Said> {
        if self.stream.is_none() {
            let stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(ANSWER_LIMIT))?;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let question = Question {
            fence: ask.fence.to_string(),
            act: ask.act,
            value: ask.value,
        };
        let mut line = serde_json::to_string(&question)?;
        line.push('\n');
        stream.get_mut().write_all(line.as_bytes())?;
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

/// The data of one lease.
struct Data {
    guard: Guard,
    /// Written only inside the guard's effects; the lock is for readers.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    balance: i64,
    journal: Vec<Entry>,
}

/// The store itself.
#[derive(Clone, Default)]
pub(crate) struct MemoryServer {
    leases: Arc<Mutex<BTreeMap<String, Arc<Data>>>>,
}

impl MemoryServer {
    /// Serves on this socket, on threads of its own, as long as this process lives.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub(crate) fn serve(socket: &std::path::Path) -> io::Result<Self> {
        let server = Self::default();
        let listener = UnixListener::bind(socket)?;
        let serving = server.clone();
        std::thread::Builder::new()
            .name("memory store".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let server = serving.clone();
                    let started = std::thread::Builder::new().spawn(move || server.attend(stream));
                    drop(started);
                }
            })?;
        Ok(server)
    }

    /// What was committed, in order, by lease.
    pub(crate) fn journals(&self) -> Vec<(String, Vec<Entry>)> {
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let journals = leases.iter().map(|(lease, data)| {
            let inner = data.inner.lock().unwrap_or_else(PoisonError::into_inner);
            (lease.clone(), inner.journal.clone())
        });
        journals.collect()
    }

    /// Answers one client until it goes away.
    fn attend(&self, stream: UnixStream) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while let Ok(1..) = stream.read_line(&mut line) {
            let Some(answer) = self.answer(&line) else {
                return;
            };
            let Ok(mut answer) = serde_json::to_string(&answer) else {
                return;
            };
            answer.push('\n');
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
            line.clear();
        }
    }

    fn answer(&self, line: &str) -> Option<Said> {
        let question: Question = serde_json::from_str(line).ok()?;
        let fence: Fence = question.fence.parse().ok()?;
        let data = self.data(&fence);
        let inner = || data.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let amount = match question.act {
            GuardAct::Read => {
                return Some(Said {
                    admission: Admission::Admitted,
                    commit: None,
                    value: Some(inner().balance),
                });
            }
            GuardAct::Advance => None,
            GuardAct::Write => Some(question.value),
        };
        let done = data.guard.with(&fence, || {
            let mut inner = inner();
            let place = inner.journal.len() as u64 + 1;
            inner.balance = amount.unwrap_or(inner.balance);
            inner.journal.push(Entry {
                place,
                token: fence.token.get(),
                amount,
            });
            place
        });
        Some(match done {
            Ok(place) => Said {
                admission: Admission::Admitted,
                commit: Some(place),
                value: None,
            },
            Err(Refused::StaleToken { mark, .. }) => Said {
                admission: Admission::Refused { mark: mark.get() },
                commit: None,
                value: None,
            },
            Err(_) => Said {
                admission: Admission::Failed,
                commit: None,
                value: None,
            },
        })
    }

    fn data(&self, fence: &Fence) -> Arc<Data> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let data = leases.entry(fence.name.to_string()).or_insert_with(|| {
            Arc::new(Data {
                guard: Guard::new(fence.name.clone()),
                inner: Mutex::new(Inner::default()),
            })
        });
        Arc::clone(data)
    }
}
