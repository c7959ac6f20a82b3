//! Observations by hand, for the tests of promises.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringfence_check::history::{self, BeliefEnd, Invoked, Op, Returned};
use ringfence_core::snapshot::SessionRecord;
use ringfence_core::{
    Acquire, Ask, ClusterTime, Command, EndCause, Entry, Event, FencingToken, Granted, HolderData,
    Identity, LeaseName, Millis, Open, OpenId, Opened, Outcome, Renew, Renewed, Request,
    RequestNumber, Secret, SessionEnd, SessionId, WallTime,
};

use ringfence_raft::Voters;

use super::{Bounds, Property};
use crate::observe::Remains;
use crate::observe::{
    Act, Applied, At, Belief, Kept, Observation, Phase, Sealed, StoreRestored, Violation, Visit,
};

/// Clocks within the contract, and a quick network.
pub(super) const BOUNDS: Bounds = Bounds {
    node_ppm: 10_000,
    client_ppm: 10_000,
    election_max: Duration::from_millis(300),
    round_trip: Duration::from_millis(20),
};

/// A promise, and a run that is fed to it step by step.
pub(super) struct Scene<P> {
    property: P,
    pub(super) at: At,
    pub(super) index: u64,
    pub(super) term: u64,
    /// Cluster time in milliseconds.
    pub(super) time: u64,
}

type Seen = Result<(), Violation>;

pub(super) fn name(lease: &str) -> LeaseName {
    LeaseName::parse(lease).unwrap()
}

pub(super) fn session(number: u64) -> SessionId {
    SessionId::new(number).unwrap()
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

pub(super) fn number(number: u64) -> RequestNumber {
    RequestNumber::new(number).unwrap()
}

fn nobody() -> Identity {
    Identity::parse("").unwrap()
}

/// The secret of the session with this number.
pub(super) fn secret(session: u64) -> Secret {
    Secret::new([u8::try_from(session).unwrap(); 16])
}

pub(super) fn granted_event(lease: &str, to: u64, with: u64, request: u64) -> Event {
    Event::Granted(Granted {
        name: name(lease),
        token: token(with),
        session: session(to),
        identity: nobody(),
        data: HolderData::default(),
        request: number(request),
        index: 0,
        since: WallTime(0),
    })
}

pub(super) fn ended_event(lease: &str, of: u64, with: u64, cause: EndCause) -> Event {
    Event::Ended {
        name: name(lease),
        token: token(with),
        session: session(of),
        identity: nobody(),
        cause,
        at: WallTime(0),
    }
}

pub(super) fn session_ended_event(of: u64, cause: SessionEnd) -> Event {
    Event::SessionEnded {
        session: session(of),
        cause,
    }
}

/// A request of a session under a number.
pub(super) fn request(of: u64, with: u64, ask: Ask) -> Command {
    Command::Request(Request {
        session: session(of),
        secret: secret(of),
        number: number(with),
        lowest: number(with),
        ask,
    })
}

pub(super) fn acquire(lease: &str) -> Ask {
    Ask::Acquire(Acquire {
        name: name(lease),
        wait: None,
        data: HolderData::default(),
        lock_delay: Millis(0),
    })
}

pub(super) fn release(lease: &str, with: u64) -> Ask {
    Ask::Release {
        name: name(lease),
        token: token(with),
        close: false,
    }
}

pub(super) fn belief(client: u32, lease: &str, with: u64) -> Belief {
    Belief {
        client,
        session: u64::from(client),
        lease: lease.to_owned(),
        token: with,
    }
}

/// A session as the state records it, without an owner.
pub(super) fn session_record(number: u64, ttl: u64) -> SessionRecord {
    SessionRecord {
        id: session(number),
        open: OpenId::new([u8::try_from(number).unwrap(); 16]),
        secret: secret(number),
        identity: nobody(),
        owner: None,
        ttl: Millis(ttl),
        seen: ClusterTime(0),
        armed: ClusterTime(0),
        lowest: RequestNumber::FIRST,
        answers: Vec::new(),
        lost: Vec::new(),
        pod: None,
    }
}

impl<P: Property> Scene<P> {
    pub(super) fn of(property: P) -> Self {
        Self {
            property,
            at: Duration::from_secs(1),
            index: 0,
            term: 1,
            time: 1_000,
        }
    }

    /// Lets true time and cluster time pass.
    pub(super) fn wait(&mut self, millis: u64) -> &mut Self {
        self.at += Duration::from_millis(millis);
        self.time += millis;
        self
    }

    pub(super) fn see(&mut self, seen: Observation) -> Seen {
        self.property.see(self.at, &seen)
    }

    pub(super) fn end(&mut self) -> Seen {
        self.property.end(self.at)
    }

    pub(super) fn phase(&mut self, phase: Phase) -> Seen {
        self.see(Observation::Phase(phase))
    }

    /// The next entry, applied first by node 0.
    pub(super) fn apply(&mut self, command: Command, outcome: Outcome, events: Vec<Event>) -> Seen {
        self.index += 1;
        let applied = self.applied(0, command, outcome, events);
        self.see(Observation::Applied(Arc::new(applied)))
    }

    pub(super) fn applied(
        &self,
        node: usize,
        command: Command,
        outcome: Outcome,
        events: Vec<Event>,
    ) -> Applied {
        Applied {
            node,
            first: true,
            entry: Entry {
                index: self.index,
                term: self.term,
                time: ClusterTime(self.time),
                wall: WallTime(0),
                command,
            },
            outcome,
            events,
            digest: None,
            after: None,
        }
    }

    pub(super) fn tick(&mut self, events: Vec<Event>) -> Seen {
        self.apply(Command::Tick, Outcome::Done, events)
    }

    pub(super) fn term_start(&mut self) -> Seen {
        self.term += 1;
        let start = Command::TermStart { unix_seconds: None };
        self.apply(start, Outcome::Done, Vec::new())
    }

    /// The session's open is applied.
    pub(super) fn open(&mut self, number: u64, ttl: u64) -> Seen {
        let open = Command::Open(Open {
            id: OpenId::new([u8::try_from(number).unwrap(); 16]),
            secret: secret(number),
            seen: None,
            ttl: Millis(ttl),
            identity: nobody(),
            acquire: None,
        });
        let opened = Opened {
            session: session(number),
            ttl: Millis(ttl),
            acquired: None,
            repeated: false,
        };
        let event = Event::SessionOpened {
            session: session(number),
        };
        self.apply(open, Outcome::Opened(opened), vec![event])
    }

    pub(super) fn renew(&mut self, of: u64) -> Seen {
        let renew = Renew {
            sessions: vec![session(of)],
            acknowledged: Vec::new(),
        };
        let renewed = Renewed {
            time: ClusterTime(self.time),
            ..Renewed::default()
        };
        self.apply(Command::Renew(renew), Outcome::Renewed(renewed), Vec::new())
    }

    /// A grant of a lease, by an acquire that is answered with it.
    pub(super) fn grant(&mut self, lease: &str, to: u64, with: u64, under: u64) -> Seen {
        let event = granted_event(lease, to, with, under);
        let Event::Granted(granted) = event.clone() else {
            unreachable!("it was just made")
        };
        let outcome = Outcome::Acquired(ringfence_core::Acquired::Granted(granted));
        self.apply(request(to, under, acquire(lease)), outcome, vec![event])
    }

    /// A grant is released by its holder.
    pub(super) fn release(&mut self, lease: &str, by: u64, with: u64, under: u64) -> Seen {
        let outcome = Outcome::Released { token: token(with) };
        let event = ended_event(lease, by, with, EndCause::Released);
        self.apply(
            request(by, under, release(lease, with)),
            outcome,
            vec![event],
        )
    }

    pub(super) fn ask(&mut self, id: u64, session: u64, request: u64, op: Op) -> Seen {
        self.see(Observation::Asked(Invoked {
            id,
            t: 0,
            client: 1,
            session: Some(session),
            request: Some(request),
            op,
        }))
    }

    pub(super) fn receive(&mut self, id: u64) -> Seen {
        self.see(Observation::Received { id, node: 0 })
    }

    pub(super) fn answer(&mut self, id: u64, outcome: history::Outcome) -> Seen {
        let index = Some(self.index);
        self.see(Observation::Answered(Returned {
            id,
            t: 0,
            outcome,
            index,
        }))
    }

    /// A keep-alive of a session is asked for, and received by a node.
    pub(super) fn ask_keep_alive(&mut self, id: u64, session: u64) -> Seen {
        self.see(Observation::KeepAliveAsked {
            id,
            client: 1,
            sessions: vec![session],
        })?;
        self.receive(id)
    }

    pub(super) fn kept(&mut self, id: u64, session: u64, what: Kept) -> Seen {
        self.see(Observation::KeptAlive {
            id,
            client: 1,
            session,
            what,
        })
    }

    pub(super) fn believe(&mut self, belief: &Belief) -> Seen {
        self.see(Observation::BeliefBegan(belief.clone()))
    }

    pub(super) fn doubt(&mut self, belief: &Belief, why: BeliefEnd) -> Seen {
        let (belief, until) = (belief.clone(), self.at);
        self.see(Observation::BeliefEnded { belief, until, why })
    }

    pub(super) fn visit(
        &mut self,
        client: u32,
        with: u64,
        act: Act,
        admitted: Result<(), Option<u64>>,
    ) -> Seen {
        self.see(Observation::Guard(Visit {
            store: "store".to_owned(),
            lease: "a".to_owned(),
            client,
            shown: "a".to_owned(),
            token: with,
            act,
            admitted,
        }))
    }

    /// A lease that was to be sealed at the one store is reported held.
    pub(super) fn sealed(&mut self, client: u32, with: u64, unsealed: &[&str]) -> Seen {
        self.see(Observation::Sealed(Sealed {
            client,
            lease: "a".to_owned(),
            token: with,
            stores: vec!["store".to_owned()],
            unsealed: unsealed.iter().map(ToString::to_string).collect(),
        }))
    }

    /// The store is set back.
    pub(super) fn restore(&mut self, mark: u64, version: u64) -> Seen {
        self.see(Observation::StoreRestored(StoreRestored {
            store: "store".to_owned(),
            mark,
            version,
        }))
    }
}

/// So many first members that are well; the first of them leads.
pub(super) fn remains(count: u64) -> Vec<Remains> {
    let ids = 1..=count;
    let voters = Voters {
        sets: vec![ids.clone().collect()],
        committed: true,
    };
    let one = |id: u64| Remains {
        node: usize::try_from(id).unwrap() - 1,
        id: Some(id),
        leads: (id == 1).then_some(3),
        members: (1..=count).collect(),
        voters: Some(voters.clone()),
        ready: Ok(()),
        unexpected: BTreeSet::new(),
    };
    ids.map(one).collect()
}

/// Asserts that a promise was seen to be broken, and which.
pub(super) fn broken(seen: Seen, id: &str) {
    let violation = seen.unwrap_err();
    assert_eq!(violation.id, id, "{violation}");
}

pub(super) fn acquire_op(lease: &str) -> Op {
    Op::Acquire(history::Acquire {
        lease: lease.to_owned(),
        wait_ms: None,
        lock_delay_ms: 0,
    })
}
