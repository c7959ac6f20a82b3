//! From abstract moves to entries.

use std::collections::BTreeMap;

use ringfence_core::snapshot::{LeaseRecord, SessionRecord};
use ringfence_core::{
    Acquire, Ask, BackupDigest, ClusterId, ClusterTime, Command, Configure, Entry, Evict,
    FencingToken, Form, HeldByPod, HolderData, Identity, LeaseName, Millis, Open, OpenForPod,
    OpenId, Pod, PodEnded, PodSeen, PodText, Renew, Request, RequestNumber, Restored, Revoke,
    Secret, Seed, SessionId, Settings, WallTime,
};

use super::callers::{called, change_access};
use super::{AcquireAct, Act, AskAct, By, Limits, Lowest, Move, Number, Pace, Past, Token, Who};
use crate::view::View;

/// Turns moves into entries, and remembers what was sent.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    pub(super) index: u64,
    sent: Vec<Command>,
    secrets: BTreeMap<SessionId, Secret>,
    numbers: BTreeMap<SessionId, u64>,
}

impl Limits {
    /// Settings with short times and these limits.
    #[must_use]
    pub fn settings(self) -> Settings {
        let (session_leases_max, lease_waiters_max, leases_max, sessions_max) = match self {
            Self::Wide => (4_096, 100_000, 10_000_000, 10_000_000),
            Self::Tight => (2, 2, 3, 5),
            Self::One => (1, 1, 1, 2),
        };
        Settings {
            ttl_min: Millis(100),
            ttl_max: Millis(120_000),
            idle_retention: Millis(2_000),
            session_leases_max,
            lease_waiters_max,
            leases_max,
            sessions_max,
            ..Settings::STANDARD
        }
    }
}

/// The leases of all histories.
pub(super) fn lease_name(lease: u8) -> LeaseName {
    let name = ["a", "b", "c/d", "c/e", "k8s/ns/l"][usize::from(lease % 5)];
    LeaseName::parse(name).expect("a lawful name")
}

pub(super) fn sixteen(byte: u8) -> [u8; 16] {
    [byte; 16]
}

fn acquire(act: AcquireAct) -> Acquire {
    Acquire {
        name: lease_name(act.lease),
        wait: act.wait.map(Millis),
        data: HolderData::new(&vec![b'x'; usize::from(act.data)]).expect("short"),
        lock_delay: Millis(act.lock_delay),
    }
}

fn request_number(value: u64) -> RequestNumber {
    RequestNumber::new(value).unwrap_or(RequestNumber::FIRST)
}

impl Resolver {
    /// The entry that this move means in the state that `view` shows.
    pub fn resolve(&mut self, next: &Move, view: &View) -> Entry {
        self.index += 1;
        // No client is shown the secret of a term's session.
        let is_term = |session: &SessionRecord| {
            let mut terms = view
                .objects
                .iter()
                .filter_map(|one| one.object.term.as_ref());
            terms.any(|term| term.session == session.id)
        };
        for session in view.sessions.iter().filter(|session| !is_term(session)) {
            self.secrets.insert(session.id, session.secret);
        }
        let newest = view.header.term;
        let command = self.command(&next.act, view);
        let command = match (&next.act, next.by) {
            // As it was sent, by whom it was sent.
            (Act::Again(_), By::Owner | By::Nobody) => command,
            (_, by) => called(command.bare().clone(), by, view),
        };
        let term = match (&command, &next.act) {
            (Command::TermStart { .. }, Act::TermStart { later, .. }) => {
                newest.saturating_add(*later)
            }
            _ => newest,
        };
        let term = if next.stray { term ^ 1 } else { term };
        self.sent.push(command.clone());
        Entry {
            index: self.index,
            term,
            time: reading(next.pace, view),
            wall: WallTime(1_000_000 + reading(next.pace, view).0 % 1_000_000),
            command,
        }
    }

    fn command(&mut self, act: &Act, view: &View) -> Command {
        match act {
            Act::TermStart { unix_seconds, .. } => Command::TermStart {
                unix_seconds: *unix_seconds,
            },
            Act::Seed { part, held } => Command::Seed(Seed {
                digest: BackupDigest::new([7; 32]),
                part: (*part).into(),
                access: Vec::new(),
                held: held.iter().map(held_by).collect(),
                secret: Secret::new(sixteen(9)),
            }),
            Act::Form {
                limits,
                floor,
                past,
            } => Command::Form(Form {
                cluster: ClusterId::new(sixteen(7)),
                token_floor: *floor,
                settings: limits.settings(),
                mode: ringfence_core::Mode::Off,
                quiet_time: Millis(0),
                restored: past.as_ref().map(|past| restored(past, *limits)),
            }),
            Act::Tick => Command::Tick,
            Act::Configure {
                stale,
                limits,
                ttl_max,
                idle_retention,
            } => Command::Configure(Configure {
                based_on: view.header.settings_set_at + u64::from(*stale),
                settings: Settings {
                    ttl_max: Millis(*ttl_max),
                    idle_retention: Millis(*idle_retention),
                    ..limits.settings()
                },
            }),
            Act::Open { .. } => open(act, view),
            Act::Request { .. } => self.request(act, view),
            Act::Close { by, forged } => {
                let session = who(*by, None, view);
                let secret = self.secret(session, *forged);
                Command::Close { session, secret }
            }
            Act::Renew {
                living,
                also,
                acknowledge,
            } => renew(*living, *also, *acknowledge, view),
            Act::Revoke {
                lease,
                token: named,
                now,
            } => Command::Revoke(Revoke {
                name: lease_name(*lease),
                token: token(*named, *lease, None, view),
                now: *now,
                reason: "drill".into(),
                operator: "olga".into(),
            }),
            Act::Evict { who: named } => Command::Evict(Evict {
                session: who(*named, None, view),
                reason: "drill".into(),
                operator: "olga".into(),
            }),
            Act::DrawNodeId => Command::DrawNodeId,
            Act::RaiseLevel(level) => Command::RaiseLevel { level: *level },
            Act::OpenForPod {
                id,
                forged,
                seen_ago,
                pod: number,
            } => Command::OpenForPod(OpenForPod {
                id: OpenId::new(sixteen(*id)),
                secret: Secret::new(sixteen(if *forged { 255 } else { *id })),
                seen: seen_ago.map(|ago| seen(ago, view)),
                identity: Identity::parse(&format!("client-{id}")).expect("a lawful identity"),
                pod: pod(*number),
            }),
            Act::PodEnded { pod: number } => Command::PodEnded(PodEnded {
                uid: pod(*number).uid().clone(),
                seen: PodSeen::Gone,
            }),
            Act::ChangeAccess {
                stale,
                foreign,
                changes,
            } => {
                let cluster = ClusterId::new(sixteen(if *foreign { 8 } else { 7 }));
                change_access(*stale, cluster, changes, view)
            }
            Act::Adopt { by, forged } => {
                let session = who(*by, None, view);
                let secret = self.secret(session, *forged);
                Command::Adopt { session, secret }
            }
            Act::Operate => Command::Operate {
                change: "remove n3 (node 17)".into(),
            },
            Act::WriteObject { .. } => self.write_object(act, view),
            Act::Again(back) => {
                let at = self.sent.len().checked_sub(1 + usize::from(*back));
                at.map_or(Command::Tick, |at| self.sent[at].clone())
            }
        }
    }

    fn secret(&self, session: SessionId, forged: bool) -> Secret {
        let known = self.secrets.get(&session).copied();
        known
            .filter(|_| !forged)
            .unwrap_or(Secret::new(sixteen(255)))
    }

    fn request(&mut self, act: &Act, view: &View) -> Command {
        let Act::Request {
            by,
            forged,
            number,
            lowest,
            ask,
        } = act
        else {
            return Command::Tick;
        };
        let about = match ask {
            AskAct::Acquire(acquire) => Some(acquire.lease),
            AskAct::Release { lease, .. } | AskAct::Transfer { lease, .. } => Some(*lease),
            AskAct::Cancel { .. } => None,
        };
        let session = who(*by, about, view);
        let ask = match *ask {
            AskAct::Acquire(act) => Ask::Acquire(acquire(act)),
            AskAct::Cancel { number } => Ask::Cancel {
                // What is taken back is the newest request rather than the one to come.
                number: match number {
                    Number::Next => self.number(Number::Used(0), session, view),
                    other => self.number(other, session, view),
                },
            },
            AskAct::Release {
                lease,
                token: named,
                close,
            } => Ask::Release {
                name: lease_name(lease),
                token: token(named, lease, Some(session), view),
                close,
            },
            AskAct::Transfer {
                lease,
                token: named,
                to,
            } => Ask::Transfer {
                name: lease_name(lease),
                token: token(named, lease, Some(session), view),
                to: to.map(|to| who(to, Some(lease), view)),
            },
        };
        let number = self.number(*number, session, view);
        // What a client calls its newest number; one far above is a move of its own, and would make
        // every later request fall out of the window.
        let used = self.numbers.entry(session).or_default();
        if number.get() < *used + 100 {
            *used = number.get().max(*used);
        }
        let lowest = match *lowest {
            Lowest::First => 1,
            Lowest::Behind(back) => number.get().saturating_sub(back.into()),
            Lowest::Exactly(lowest) => lowest,
        };
        Command::Request(Request {
            session,
            secret: self.secret(session, *forged),
            number,
            lowest: request_number(lowest),
            ask,
        })
    }

    fn number(&self, number: Number, session: SessionId, view: &View) -> RequestNumber {
        let lowest = view.session(session).map_or(1, |found| found.lowest.get());
        let inline = view.session(session).is_some_and(|found| {
            let mut answers = found.answers.iter();
            answers.any(|answer| answer.number == RequestNumber::FIRST)
        });
        let used = self.numbers.get(&session).copied().unwrap_or(0);
        let used = used.max(u64::from(inline));
        request_number(match number {
            Number::Next => used + 1,
            Number::Used(back) => used.saturating_sub(back.into()),
            Number::Exactly(number) => number,
            Number::FromLowest(further) => lowest.saturating_add(further),
        })
    }
}

/// What a client saw so long ago.
fn seen(ago: u64, view: &View) -> ClusterTime {
    match ago {
        u64::MAX => ClusterTime(ago),
        ago => ClusterTime(view.time().0.saturating_sub(ago)),
    }
}

/// The past of a restored cluster.
fn restored(past: &Past, limits: Limits) -> Restored {
    Restored {
        lineage: vec![ClusterId::new(sixteen(6))],
        digest: BackupDigest::new([7; 32]),
        // A backup keeps the limits of its own settings, and a history has a handful of parts.
        parts: match limits {
            Limits::Wide => u32::try_from(past.held.len()).unwrap_or(u32::MAX),
            Limits::Tight | Limits::One => 0,
        },
        tokens: past.tokens,
        token_floor: None,
        sessions: past.sessions,
        versions: 0,
        ttl_greatest: Millis(past.ttl_greatest),
        drill: past.drill,
    }
}

fn held_by((name, by): &(u8, u8)) -> HeldByPod {
    HeldByPod {
        name: lease_name(*name),
        token: FencingToken::new(1).expect("it is no 0"),
        pod: pod(*by),
    }
}

/// Three Pods of two containers.
pub(super) fn pod(number: u8) -> Pod {
    let uid = ["uid-a", "uid-b", "uid-c"][usize::from(number / 2 % 3)];
    let text = PodText {
        namespace: "shop",
        name: "controller",
        uid,
        container: ["", "side"][usize::from(number % 2)],
    };
    Pod::parse(text).expect("a lawful Pod")
}

fn open(act: &Act, view: &View) -> Command {
    let Act::Open {
        id,
        forged,
        seen_ago,
        ttl,
        acquire: ask,
    } = act
    else {
        return Command::Tick;
    };
    Command::Open(Open {
        id: OpenId::new(sixteen(*id)),
        secret: Secret::new(sixteen(if *forged { 255 } else { *id })),
        seen: seen_ago.map(|ago| seen(ago, view)),
        ttl: Millis(*ttl),
        identity: Identity::parse(&format!("client-{id}")).expect("a lawful identity"),
        acquire: ask.map(acquire),
    })
}

fn renew(living: u8, also: Option<Who>, acknowledge: Option<(u8, Token)>, view: &View) -> Command {
    let of_living = view.sessions.iter().enumerate();
    let mut sessions: Vec<SessionId> = of_living
        .filter(|(at, _)| living & (1 << (at % 8)) != 0)
        .map(|(_, session)| session.id)
        .collect();
    sessions.extend(also.map(|also| who(also, None, view)));
    sessions.sort_unstable();
    sessions.dedup();
    let acknowledged = acknowledge.and_then(|(lease, named)| {
        let unaware = lease_record(lease, view)
            .and_then(|lease| lease.blocked.as_ref())
            .and_then(|block| block.revoked);
        let losers = view
            .sessions
            .iter()
            .find(|session| !session.lost.is_empty());
        let session = unaware.map(|holder| holder.session);
        let session = session.or(losers.map(|session| session.id));
        let session = session.or(sessions.first().copied())?;
        let named = match (named, unaware) {
            (Token::Current, Some(holder)) => holder.token,
            (Token::Current, None) => token(Token::Lost(0), lease, Some(session), view),
            _ => token(named, lease, Some(session), view),
        };
        Some((session, named))
    });
    Command::Renew(Renew {
        sessions,
        acknowledged: acknowledged.into_iter().collect(),
    })
}

/// When the entry is stamped. What is bounded by the present here is the reading of a leader that is
/// not behind; [`Pace::Back`] and [`Pace::At`] are for those that are.
fn reading(pace: Pace, view: &View) -> ClusterTime {
    let now = view.time();
    let next = view.next_deadline.unwrap_or(now).max(now);
    match pace {
        Pace::Still => now,
        Pace::By(step) => now.after(Millis(step)),
        Pace::ToDeadline(beyond) => next.after(Millis(beyond)),
        Pace::BeforeDeadline => ClusterTime(next.0.saturating_sub(1)).max(now),
        Pace::Back(step) => ClusterTime(now.0.saturating_sub(step)),
        Pace::At(time) => ClusterTime(time),
    }
}

fn lease_record(lease: u8, view: &View) -> Option<&LeaseRecord> {
    view.lease(&lease_name(lease))
}

/// A session, whether there is such a one or not.
fn who(named: Who, about: Option<u8>, view: &View) -> SessionId {
    let lease = about.and_then(|lease| lease_record(lease, view));
    let live = |at: u8| {
        let at = usize::from(at) % view.sessions.len().max(1);
        view.sessions.get(at).map(|session| session.id)
    };
    let found = match named {
        Who::Live(at) => live(at),
        Who::Number(number) => SessionId::new(number),
        Who::Holder => lease
            .and_then(|lease| lease.grant.as_ref())
            .map(|grant| grant.session)
            .or(live(0)),
        Who::Waiter(at) => lease
            .filter(|lease| !lease.queue.is_empty())
            .map(|lease| lease.queue[usize::from(at) % lease.queue.len()].session)
            .or(live(at)),
    };
    found.unwrap_or(SessionId::new(1).expect("not zero"))
}

pub(super) fn token(named: Token, lease: u8, by: Option<SessionId>, view: &View) -> FencingToken {
    let floor = lease_record(lease, view).and_then(|lease| lease.floor);
    let floor = floor.map_or(view.header.tokens.granted(), FencingToken::get);
    let value = match named {
        Token::Current => floor,
        Token::Older(back) => floor.saturating_sub(u64::from(back)),
        Token::Lost(at) => by
            .and_then(|id| view.session(id))
            .and_then(|session| session.lost.get(usize::from(at)))
            .map_or(floor, |lost| lost.token.get()),
        Token::Exactly(value) => value,
    };
    FencingToken::new(value).unwrap_or(FencingToken::new(1).expect("not zero"))
}
