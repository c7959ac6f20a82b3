//! What is under way, and what happens when it arrives.

use std::cmp::Ordering;

use rand::Rng;
use ringfence_check::history::{
    Admission, BeliefEnd, Block, Checked, Guard, GuardAct, KeepAlive, Op, Outcome as Told, Queued,
    Record, Returned, SessionEnded,
};
use ringfence_core::{
    Acquired, Cancelled, Command, FencingToken, LeaseName, Outcome, Rejection, Renew, SessionId,
    Verdict,
};

use super::clients::Held;
use super::{MS, World};

/// How long a client waits for an answer before it asks again.
const PATIENCE: u64 = 20 * MS;
const TRIES_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) enum Message {
    Act(u32),
    /// A try of a call arrives.
    Arrive(u64),
    Reply(u64, Told),
    /// A client loses patience with a try.
    Patience(u64, u32),
    /// A keep-alive of a client's life is due; arrives; is answered.
    Beat(u32, u32),
    BeatArrives(u32, u32, u64),
    BeatAnswered(u32, u32, u64, Result<Vec<u64>, ()>),
    Guard(Box<Guard>),
    Tick,
}

// The queue orders by time and number, which are never equal.
impl PartialEq for Message {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Message {}
impl PartialOrd for Message {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Message {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl World {
    pub(crate) fn handle(&mut self, message: Message) {
        match message {
            Message::Act(client) => self.act(client as usize),
            Message::Arrive(call) => self.arrive(call),
            Message::Reply(call, told) => self.reply(call, told),
            Message::Patience(call, tries) => self.patience(call, tries),
            Message::Beat(client, life) => self.beat(client, life),
            Message::BeatArrives(client, life, sent) => self.beat_arrives(client, life, sent),
            Message::BeatAnswered(client, life, sent, answer) => {
                self.beat_answered(client as usize, life, sent, answer);
            }
            Message::Guard(guard) => self.guard(*guard),
            Message::Tick => {
                if self.chance(1) {
                    self.new_term();
                }
                self.apply(Command::Tick);
                self.at(self.now + 5 * MS, Message::Tick);
            }
        }
    }

    pub(crate) fn send(&mut self, call: u64) {
        let tries = self.calls[&call].tries;
        let at = self.now + PATIENCE;
        self.at(at, Message::Patience(call, tries));
        for lost in [4, 97] {
            // The second one is a duplicate, and mostly does not exist.
            if !self.chance(lost) && (lost == 4 || self.play.trouble) {
                let at = self.now + self.delay() * if lost == 4 { 1 } else { 20 };
                self.at(at, Message::Arrive(call));
            }
        }
    }

    fn patience(&mut self, id: u64, tries: u32) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if call.tries != tries || call.queued {
            return;
        }
        call.tries += 1;
        if call.tries < TRIES_MAX {
            self.send(id);
        } else {
            let error = "no answer".to_owned();
            self.reply(id, Told::Unknown { error });
        }
    }

    fn arrive(&mut self, id: u64) {
        let Some(call) = self.calls.get(&id).cloned() else {
            return;
        };
        let told = match &call.command {
            None => self.look(&call.op),
            Some(command) => {
                let outcome = self.apply(command.clone());
                told_of(&outcome)
            }
        };
        let Some(told) = told else {
            let session = call.session.or_else(|| self.newest_session());
            let key = (session.unwrap(), call.request.unwrap_or(1));
            let at = self.now + self.delay();
            if self.calls.get(&id).is_some_and(|call| !call.queued) {
                let queued = Queued { id, t: at };
                self.waiting.insert(key, id);
                self.calls.get_mut(&id).unwrap().queued = true;
                // An inline acquire is reported with its session, and does not report that it
                // waits.
                if call.session.is_some() {
                    self.record(Record::Queued(queued));
                }
            }
            return;
        };
        if !self.chance(4) {
            let at = self.now + self.delay();
            self.at(at, Message::Reply(id, told));
        }
    }

    fn newest_session(&self) -> Option<u64> {
        self.machine
            .sessions(None)
            .map(|view| view.session.get())
            .max()
    }

    fn look(&self, op: &Op) -> Option<Told> {
        match op {
            Op::Get { lease } => {
                let view = self.machine.get(&LeaseName::parse(lease).unwrap());
                let holder = view.and_then(|view| view.holder);
                Some(Told::Lease {
                    session: holder.as_ref().map(|holder| holder.session.get()),
                    token: holder.map(|holder| holder.token.get()),
                    waiters: None,
                })
            }
            Op::Check { lease, token } => {
                let name = LeaseName::parse(lease).unwrap();
                let token = FencingToken::new(*token).unwrap();
                Some(Told::Checked(match self.machine.check(&name, token) {
                    Verdict::Current => Checked::Current,
                    Verdict::Superseded { newest } => Checked::Superseded(newest.get()),
                    Verdict::Ended => Checked::Ended,
                    Verdict::Unknown => Checked::Unknown,
                }))
            }
            _ => None,
        }
    }

    fn reply(&mut self, id: u64, told: Told) {
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        let t = self.now;
        let this = &self.clients[call.client];
        if this.life != call.life {
            // No client is there to hear it.
            return;
        }
        // An inline acquire that waited is answered with its session.
        let told = match (&call.op, told) {
            (Op::Open { ttl_ms, .. }, told @ (Told::Granted { .. } | Told::TimedOut)) => {
                let session = self.opened_by(id, &call.command).unwrap();
                Told::Opened {
                    session,
                    ttl_ms: *ttl_ms,
                    acquired: Some(Box::new(told)),
                }
            }
            (_, told) => told,
        };
        self.record(Record::Returned(Returned {
            id,
            t,
            outcome: told.clone(),
            index: None,
        }));
        self.clients[call.client].opening &= !matches!(call.op, Op::Open { .. });
        self.learn(call.client, call.begun, &call.op, &told);
        let id = self.clients[call.client].id;
        let at = self.now + self.rng.random_range(MS / 10..3 * MS);
        if self.clients[call.client].life == call.life {
            self.at(at, Message::Act(id));
        }
    }

    fn opened_by(&self, _: u64, command: &Option<Command>) -> Option<u64> {
        let Some(Command::Open(open)) = command else {
            return None;
        };
        // The secret is drawn again for each open.
        let mut sessions = self.machine.sessions(None);
        let found = sessions.find(|view| {
            self.machine
                .authenticate(view.session, &open.secret)
                .is_ok()
        });
        found.map(|view| view.session.get())
    }

    fn learn(&mut self, client: usize, begun: u64, op: &Op, told: &Told) {
        let granted = |told: &Told| match told {
            Told::Granted { token } => Some(*token),
            _ => None,
        };
        match (op, told) {
            (
                Op::Open { acquire, .. },
                Told::Opened {
                    session,
                    ttl_ms,
                    acquired,
                },
            ) => {
                self.clients[client].session = Some(*session);
                self.extend(client, begun, *ttl_ms);
                let life = self.clients[client].life;
                let at = self.now + MS;
                self.at(at, Message::Beat(self.clients[client].id, life));
                let token = acquired.as_deref().and_then(granted);
                if let (Some(ask), Some(token)) = (acquire, token) {
                    self.believe(client, &ask.lease, token);
                }
            }
            (Op::Acquire(ask), told) => {
                if let Some(token) = granted(told) {
                    self.believe(client, &ask.lease, token);
                }
                if *told == Told::SessionExpired {
                    self.expired(client);
                }
            }
            (Op::Close, _) | (Op::Release { close: true, .. }, _) => self.begin_anew(client),
            (_, Told::SessionExpired) => self.expired(client),
            _ => {}
        }
    }

    fn expired(&mut self, client: usize) {
        self.end_beliefs(client, BeliefEnd::Told);
        self.begin_anew(client);
    }

    fn believe(&mut self, client: usize, lease: &str, token: u64) {
        let this = &mut self.clients[client];
        if self.now >= this.window {
            return;
        }
        this.held.push(Held {
            lease: lease.to_owned(),
            token,
            from: self.now,
        });
        self.visit(client, lease, token, GuardAct::Advance);
    }

    fn extend(&mut self, client: usize, sent: u64, ttl_ms: u64) {
        let this = &mut self.clients[client];
        let window = sent + ttl_ms * MS / 100 * 99 - 50 * MS;
        this.window = this.window.max(window);
    }

    fn beat(&mut self, client: u32, life: u32) {
        let this = &self.clients[client as usize];
        if this.life != life || this.session.is_none() {
            return;
        }
        if self.now > this.window {
            // It says so when asked, and begins again.
            self.end_beliefs(client as usize, BeliefEnd::Window);
            return self.begin_anew(client as usize);
        }
        let next = self.now + this.ttl_ms * MS / 3;
        let long = self.chance(3);
        if !self.chance(6) {
            let at = self.now + if long { 500 * MS } else { self.delay() };
            let sent = self.now;
            self.at(at, Message::BeatArrives(client, life, sent));
        }
        // A client that is stopped for a while sends late.
        let paused = self.chance(2);
        self.at(
            next + if paused { 600 * MS } else { 0 },
            Message::Beat(client, life),
        );
    }

    fn beat_arrives(&mut self, client: u32, life: u32, sent: u64) {
        let this = &mut self.clients[client as usize];
        if this.life != life {
            return;
        }
        let Some(raw) = this.session else { return };
        let session = SessionId::new(raw).unwrap();
        let losses = std::mem::take(&mut this.losses);
        let acknowledged = losses
            .iter()
            .map(|&token| (session, FencingToken::new(token).unwrap()));
        let outcome = self.apply(Command::Renew(Renew {
            sessions: vec![session],
            acknowledged: acknowledged.collect(),
        }));
        let Outcome::Renewed(renewed) = outcome else {
            return;
        };
        let answer = match renewed.ended.is_empty() {
            false => Err(()),
            true => Ok(renewed
                .lost
                .iter()
                .flat_map(|(_, lost)| lost.iter().map(|lost| lost.token.get()))
                .collect()),
        };
        if !self.chance(4) {
            let at = self.now + self.delay();
            self.at(at, Message::BeatAnswered(client, life, sent, answer));
        }
    }

    fn beat_answered(&mut self, client: usize, life: u32, sent: u64, answer: Result<Vec<u64>, ()>) {
        let this = &self.clients[client];
        if this.life != life {
            return;
        }
        let (id, ttl_ms, t) = (this.id, this.ttl_ms, self.now);
        let Some(session) = this.session else { return };
        match answer {
            Err(()) => {
                self.record(Record::SessionEnded(SessionEnded {
                    client: id,
                    session,
                    t,
                    cause: None,
                }));
                self.expired(client);
            }
            Ok(lost) if lost.is_empty() => {
                self.record(Record::KeepAlive(KeepAlive {
                    client: id,
                    session,
                    sent,
                    acked: t,
                    ttl_ms,
                }));
                self.extend(client, sent, ttl_ms);
            }
            // It extends nothing.
            Ok(lost) => {
                for token in lost {
                    self.end_belief(client, token, BeliefEnd::Told);
                    self.clients[client].losses.push(token);
                }
            }
        }
    }

    fn guard(&mut self, mut guard: Guard) {
        let mark = self.marks.entry(guard.lease.clone()).or_default();
        guard.admission = if guard.token >= *mark {
            *mark = guard.token;
            self.commits += 1;
            guard.commit = Some(self.commits);
            Admission::Admitted
        } else {
            Admission::Refused { mark: *mark }
        };
        guard.end = self.now + self.delay();
        self.record(Record::Guard(guard));
    }
}

/// An outcome as its client receives it; none if it has to wait.
fn told_of(outcome: &Outcome) -> Option<Told> {
    Some(match outcome {
        Outcome::Opened(opened) => {
            let acquired = match &opened.acquired {
                None => None,
                Some(acquired) => Some(Box::new(told_of_acquired(acquired)?)),
            };
            Told::Opened {
                session: opened.session.get(),
                ttl_ms: opened.ttl.0,
                acquired,
            }
        }
        Outcome::Acquired(acquired) => told_of_acquired(acquired)?,
        Outcome::Cancelled(Cancelled::Removed) => Told::Removed,
        Outcome::Cancelled(Cancelled::Granted { name, token }) => Told::StillGranted {
            lease: name.as_str().to_owned(),
            token: token.get(),
        },
        Outcome::Cancelled(Cancelled::Settled) => Told::Settled,
        Outcome::Cancelled(Cancelled::Voided) => Told::Voided,
        Outcome::Released { .. } => Told::Released,
        Outcome::Transferred { to, token } => Told::Transferred {
            to: to.get(),
            token: token.get(),
        },
        Outcome::Closed { .. } => Told::Closed,
        Outcome::Rejected(rejection) => refused(rejection),
        _ => Told::Done,
    })
}

fn told_of_acquired(acquired: &Acquired) -> Option<Told> {
    Some(match acquired {
        Acquired::Granted(granted) => Told::Granted {
            token: granted.token.get(),
        },
        Acquired::Waiting { .. } => return None,
        Acquired::Ended { token, .. } => Told::Ended { token: token.get() },
        Acquired::TimedOut { .. } => Told::TimedOut,
        Acquired::Cancelled { .. } => Told::Cancelled,
        Acquired::Refused(rejection) => refused(rejection),
    })
}

fn refused(rejection: &Rejection) -> Told {
    match rejection {
        Rejection::Held { holder, mine } => Told::Held {
            session: holder.session.get(),
            token: holder.token.get(),
            mine: *mine,
        },
        Rejection::Queued { waiters } => Told::Queued {
            waiters: Some(*waiters),
        },
        Rejection::LockDelay { .. } => Told::Blocked(Block::LockDelay),
        Rejection::Revoking { .. } => Told::Blocked(Block::Revoking),
        Rejection::QuietTime { .. } => Told::Blocked(Block::QuietTime),
        Rejection::StaleToken { current, .. } => Told::StaleToken {
            current: current.map(FencingToken::get),
        },
        Rejection::NotHolder { .. } => Told::NotHolder,
        Rejection::NotWaiting { .. } => Told::NotWaiting,
        Rejection::SessionExpired { .. } => Told::SessionExpired,
        Rejection::StaleRequest { .. } => Told::Refused {
            reason: "STALE_REQUEST".to_owned(),
        },
        other => Told::Refused {
            reason: format!("{other:?}"),
        },
    }
}
