//! What clients want, and what they remember.

use rand::Rng;
use ringfence_check::history::{
    Acquire, Admission, Belief, BeliefEnd, Guard, GuardAct, Invoked, Op, Record,
};
use ringfence_core::{
    Ask, Command, Evict, FencingToken, HolderData, Identity, LeaseName, Millis, Open, OpenId,
    Request, RequestNumber, Revoke, Secret, SessionId,
};

use super::messages::Message;
use super::{MS, World};

/// A grant that a client thinks it has.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) lease: String,
    pub(crate) token: u64,
    pub(crate) from: u64,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u32,
    /// Rises with each life, so that what belongs to an earlier one can be recognized.
    pub(crate) life: u32,
    pub(crate) session: Option<u64>,
    pub(crate) opening: bool,
    pub(crate) secret: Secret,
    pub(crate) ttl_ms: u64,
    pub(crate) next_number: u64,
    pub(crate) held: Vec<Held>,
    /// Until when grants may be believed.
    pub(crate) window: u64,
    /// Losses to acknowledge.
    pub(crate) losses: Vec<u64>,
}

impl Client {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            life: 0,
            session: None,
            opening: false,
            secret: Secret::new([0; 16]),
            ttl_ms: 0,
            next_number: 1,
            held: Vec::new(),
            window: 0,
            losses: Vec::new(),
        }
    }
}

/// A call under way.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) life: u32,
    pub(crate) begun: u64,
    pub(crate) session: Option<u64>,
    pub(crate) request: Option<u64>,
    pub(crate) op: Op,
    /// Reads have none.
    pub(crate) command: Option<Command>,
    pub(crate) tries: u32,
    pub(crate) queued: bool,
}

fn name(raw: &str) -> LeaseName {
    LeaseName::parse(raw).unwrap()
}

fn token(raw: u64) -> FencingToken {
    FencingToken::new(raw).unwrap()
}

impl World {
    /// A client does what it likes next.
    pub(crate) fn act(&mut self, client: usize) {
        if self.next_call > self.play.calls {
            return;
        }
        if self.clients[client].opening {
            return;
        }
        if self.clients[client].session.is_none() {
            return self.open(client);
        }
        if self.chance(1) {
            return self.crash(client);
        }
        let held = self.clients[client].held.clone();
        let pick = self.rng.random_range(0..100);
        match held.first() {
            Some(held) if pick < 60 => self.use_or_give_back(client, &held.clone(), pick),
            _ if pick < 82 => {
                let ask = self.ask();
                self.request(client, Op::Acquire(ask));
            }
            _ if pick < 90 => {
                let lease = self.lease();
                self.read(client, Op::Get { lease });
            }
            _ if pick < 97 => {
                let lease = self.lease();
                let token = self.rng.random_range(1..=self.last_token() + 1);
                self.read(client, Op::Check { lease, token });
            }
            _ if pick < 98 => self.operator(client),
            _ => {
                self.end_beliefs(client, BeliefEnd::Closed);
                self.request(client, Op::Close);
            }
        }
    }

    fn use_or_give_back(&mut self, client: usize, held: &Held, pick: u32) {
        let (lease, token) = (held.lease.clone(), held.token);
        match pick {
            0..25 => {
                self.visit(client, &lease, token, GuardAct::Write);
                let at = self.now + self.rng.random_range(MS..4 * MS);
                let id = self.clients[client].id;
                self.at(at, Message::Act(id));
            }
            25..50 => {
                self.end_belief(client, token, BeliefEnd::Released);
                let close = pick == 49;
                if close {
                    self.end_beliefs(client, BeliefEnd::Closed);
                }
                self.request(
                    client,
                    Op::Release {
                        lease,
                        token,
                        close,
                    },
                );
            }
            50..55 => {
                self.end_belief(client, token, BeliefEnd::Transferred);
                self.request(
                    client,
                    Op::Transfer {
                        lease,
                        token,
                        to: None,
                    },
                );
            }
            _ => self.read(client, Op::Check { lease, token }),
        }
    }

    fn operator(&mut self, client: usize) {
        let held = self
            .clients
            .iter()
            .find_map(|other| other.held.first().cloned());
        let session = self.clients.iter().find_map(|other| other.session);
        let pick = self.rng.random_range(0..3);
        match (held, session) {
            (Some(held), _) if pick > 0 => {
                let Held {
                    lease, token: raw, ..
                } = held;
                let command = Command::Revoke(Revoke {
                    name: name(&lease),
                    token: token(raw),
                    now: pick == 2,
                    reason: String::new(),
                    operator: String::new(),
                });
                let now = pick == 2;
                let op = Op::Revoke {
                    lease,
                    token: raw,
                    now,
                };
                self.call(client, None, None, op, Some(command));
            }
            (_, Some(session)) => {
                let command = Command::Evict(Evict {
                    session: SessionId::new(session).unwrap(),
                    reason: String::new(),
                    operator: String::new(),
                });
                self.call(client, None, None, Op::Evict { session }, Some(command));
            }
            _ => self.read(
                client,
                Op::Get {
                    lease: "lease-0".to_owned(),
                },
            ),
        }
    }

    fn lease(&mut self) -> String {
        format!("lease-{}", self.rng.random_range(0..self.play.leases))
    }

    fn last_token(&self) -> u64 {
        self.machine.summary().last_token
    }

    fn ask(&mut self) -> Acquire {
        let wait = self.rng.random_bool(0.4);
        Acquire {
            lease: self.lease(),
            wait_ms: wait.then(|| self.rng.random_range(5..60)),
            lock_delay_ms: if self.rng.random_bool(0.1) { 5 } else { 0 },
        }
    }

    fn open(&mut self, client: usize) {
        let bytes: [u8; 16] = self.rng.random();
        let ttl_ms = self.rng.random_range(200..400);
        let ask = self.rng.random_bool(0.3).then(|| self.ask());
        let secret = Secret::new(self.rng.random());
        let this = &mut self.clients[client];
        this.secret = secret;
        this.opening = true;
        this.ttl_ms = ttl_ms;
        this.next_number = if ask.is_some() { 2 } else { 1 };
        let command = Command::Open(Open {
            id: OpenId::new(bytes),
            secret,
            seen: None,
            ttl: Millis(ttl_ms),
            identity: Identity::parse("someone").unwrap(),
            acquire: ask.as_ref().map(acquire),
        });
        let open_id = Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        let op = Op::Open {
            ttl_ms,
            open_id,
            acquire: ask,
        };
        self.call(client, None, None, op, Some(command));
    }

    fn request(&mut self, client: usize, op: Op) {
        let this = &mut self.clients[client];
        let raw = this.session.unwrap();
        let session = SessionId::new(raw).unwrap();
        let secret = this.secret;
        if op == Op::Close {
            let command = Command::Close { session, secret };
            return self.call(client, Some(raw), None, op, Some(command));
        }
        let number = RequestNumber::new(this.next_number).unwrap();
        this.next_number += 1;
        let ask = match &op {
            Op::Acquire(ask) => Ask::Acquire(acquire(ask)),
            Op::Release {
                lease,
                token: raw,
                close,
            } => Ask::Release {
                name: name(lease),
                token: token(*raw),
                close: *close,
            },
            Op::Transfer {
                lease, token: raw, ..
            } => Ask::Transfer {
                name: name(lease),
                token: token(*raw),
                to: None,
            },
            Op::Cancel { request } => Ask::Cancel {
                number: RequestNumber::new(*request).unwrap(),
            },
            other => unreachable!("{other:?} has no number"),
        };
        let command = Command::Request(Request {
            session,
            secret,
            number,
            lowest: number,
            ask,
        });
        self.call(client, Some(raw), Some(number.get()), op, Some(command));
    }

    fn read(&mut self, client: usize, op: Op) {
        self.call(client, None, None, op, None);
    }

    fn call(
        &mut self,
        client: usize,
        session: Option<u64>,
        request: Option<u64>,
        op: Op,
        command: Option<Command>,
    ) {
        let id = self.next_call;
        self.next_call += 1;
        let this = &self.clients[client];
        let call = Call {
            client,
            life: this.life,
            begun: self.now,
            session,
            request,
            op: op.clone(),
            command,
            tries: 0,
            queued: false,
        };
        self.record(Record::Invoked(Invoked {
            id,
            t: self.now,
            client: this.id,
            session,
            request,
            op,
        }));
        self.calls.insert(id, call);
        self.send(id);
    }

    /// A visit at the guarded store, which may come late.
    pub(crate) fn visit(&mut self, client: usize, lease: &str, token: u64, act: GuardAct) {
        let late = self.chance(5);
        let at = self.now + if late { 300 * MS } else { self.delay() };
        let guard = Guard {
            store: "store".to_owned(),
            client: self.clients[client].id,
            lease: lease.to_owned(),
            token,
            act,
            begin: self.now,
            end: 0,
            commit: None,
            admission: Admission::Failed,
            value: None,
            guarded: true,
        };
        self.at(at, Message::Guard(Box::new(guard)));
    }

    pub(crate) fn end_belief(&mut self, client: usize, token: u64, why: BeliefEnd) {
        let this = &mut self.clients[client];
        let Some(at) = this.held.iter().position(|held| held.token == token) else {
            return;
        };
        let held = this.held.remove(at);
        let until = self.now.min(this.window).max(held.from);
        let belief = Belief {
            client: this.id,
            session: this.session.unwrap_or_default(),
            lease: held.lease,
            token,
            from: held.from,
            until,
            why,
        };
        self.record(Record::Belief(belief));
    }

    pub(crate) fn end_beliefs(&mut self, client: usize, why: BeliefEnd) {
        for held in self.clients[client].held.clone() {
            self.end_belief(client, held.token, why);
        }
    }

    /// A process is killed, and another one started in its place.
    fn crash(&mut self, client: usize) {
        let held = self.clients[client].held.clone();
        self.end_beliefs(client, BeliefEnd::Killed);
        // What it had sent is under way.
        for held in held {
            self.visit(client, &held.lease, held.token, GuardAct::Write);
        }
        self.begin_anew(client);
    }

    pub(crate) fn begin_anew(&mut self, client: usize) {
        let id = self.clients[client].id;
        let life = self.clients[client].life + 1;
        self.clients[client] = Client {
            life,
            ..Client::new(id)
        };
        let at = self.now + self.delay();
        self.at(at, Message::Act(id));
    }
}

fn acquire(ask: &Acquire) -> ringfence_core::Acquire {
    ringfence_core::Acquire {
        name: name(&ask.lease),
        wait: ask.wait_ms.map(Millis),
        data: HolderData::default(),
        lock_delay: Millis(ask.lock_delay_ms),
    }
}
