//! Plays a history.

use ringfence_core::snapshot::Record;
use ringfence_core::{
    AccessChange, Acquire, Ask, Candidate, Command, Evict, FencingToken, HolderData, Identity,
    LeaseName, Millis, Mode, ObjectMetadata, ObjectSpec, ObjectWrite, Open, OpenId, Outcome,
    Principal, PrincipalLimits, Rejection, Request, RequestNumber, Revoke, Secret, SessionId,
    WriteObject,
};

use crate::Step;
use crate::bench::{Bench, Told, names};
use crate::electors::{
    COUNT, Elector, IDENTITIES, SECONDS, UNPROVEN, WITHOUT_POD, candidate, stranger,
};

struct Play {
    bench: Bench,
    electors: [Elector; COUNT],
    /// Native sessions, with the number of their next request.
    natives: [Option<(SessionId, u64)>; 2],
    opened: u64,
    /// Whether the mode was ever another one than `off`: from then on callers are proven.
    proven: bool,
    strangers_version: Option<u64>,
}

pub(crate) fn play(steps: &[Step]) {
    let mut play = Play {
        bench: Bench::new(),
        electors: Default::default(),
        natives: [None; 2],
        opened: 0,
        proven: false,
        strangers_version: None,
    };
    for step in steps {
        play.step(step);
    }
    play.bench.watch();
}

fn released(write: &ObjectWrite) -> bool {
    match write {
        ObjectWrite::Delete { .. } => true,
        ObjectWrite::Put { spec, .. } => spec
            .as_ref()
            .is_some_and(|spec| spec.holder.as_str().is_empty() || spec.new_term),
    }
}

impl Play {
    fn step(&mut self, step: &Step) {
        let bench = &mut self.bench;
        match *step {
            Step::Pass(millis) => {
                bench.time = bench.time.after(Millis(millis));
                bench.settle();
            }
            Step::Elector { who, old } => self.elector(who, old),
            Step::Restart(who) => self.electors[who].restarts(),
            Step::GivesUp(who) => self.gives_up(who),
            Step::Stranger {
                principal,
                pod,
                says,
                name,
                old,
                new_term,
            } => self.stranger(&stranger(principal, pod), says, name, (old, new_term)),
            Step::Metadata { who, byte } => {
                let version = self.version(&names()[0]);
                let metadata = ObjectMetadata::new(&[byte]).unwrap();
                let write = ObjectWrite::Put {
                    metadata,
                    spec: None,
                };
                self.write(&names()[0], version, &candidate(who, self.proven), write);
            }
            Step::Delete { who, revoke, now } => self.delete(who, revoke, now),
            Step::Acquire { who, name, waits } => self.acquire(who, name, waits),
            Step::Release { who, hands_over } => self.release(who, hands_over),
            Step::Revoke { name, now } => {
                if let Some(revoke) = revoke(bench, &names()[name], now) {
                    self.as_operator(Command::Revoke(revoke));
                }
            }
            Step::Evict { name } => {
                let held = bench.machine.get(&names()[name]);
                if let Some(grant) = held.and_then(|lease| lease.holder) {
                    self.as_operator(Command::Evict(Evict {
                        session: grant.session,
                        reason: String::new(),
                        operator: String::new(),
                    }));
                }
            }
            Step::Mode(mode) => {
                self.proven |= mode != Mode::Off;
                bench.change_access(vec![AccessChange::SetMode(mode)]);
            }
            Step::Limits { sessions, leases } => {
                let limits = PrincipalLimits { sessions, leases };
                bench.change_access(vec![AccessChange::SetLimits(limits)]);
            }
            Step::Term => bench.open_term(),
            Step::Snapshot => bench.restore(),
            Step::Watch => bench.watch(),
        }
    }

    fn version(&self, name: &LeaseName) -> Option<u64> {
        let object = self.bench.machine.object(name);
        object.map(|object| object.version)
    }

    fn as_operator(&mut self, command: Command) {
        let operator = Principal::parse("sa:prod:shop/web").unwrap();
        self.bench.apply_of(Some(&operator), command);
    }

    fn spec(&mut self, holder: &str, new_term: bool) -> ObjectSpec {
        let (id, secret) = self.ids();
        ObjectSpec {
            holder: Identity::parse(holder).unwrap(),
            seconds: SECONDS + u32::try_from(self.opened % 3).unwrap(),
            new_term,
            open: id,
            secret,
        }
    }

    fn ids(&mut self) -> (OpenId, Secret) {
        self.opened += 1;
        let bytes = u128::from(self.opened).to_be_bytes();
        (OpenId::new(bytes), Secret::new(bytes))
    }

    fn elector(&mut self, who: usize, old: bool) {
        if !self.electors[who].wakes(self.bench.time) {
            return;
        }
        self.bench.settle();
        let present = self.version(&names()[0]);
        let version = if old {
            self.electors[who].seen
        } else {
            present
        };
        self.electors[who].seen = present;
        let fresh = std::mem::take(&mut self.electors[who].fresh);
        let spec = self.spec(IDENTITIES[who], fresh);
        let by = candidate(who, self.proven);
        let done = self.write(&names()[0], version, &by, put(spec));
        if let Some(token) = done {
            self.electors[who].seen = self.version(&names()[0]);
            self.electors[who].holds(who, token);
        }
    }

    /// As with `ReleaseOnCancel`: on a fresh version, by an old belief.
    fn gives_up(&mut self, who: usize) {
        if self.electors[who].term.is_none() {
            return;
        }
        self.electors[who].ends();
        let spec = self.spec("", false);
        let version = self.version(&names()[0]);
        let by = candidate(who, self.proven);
        self.write(&names()[0], version, &by, put(spec));
    }

    fn stranger(&mut self, by: &Candidate, says: usize, name: usize, how: (bool, bool)) {
        let (old, new_term) = how;
        let says = ["", "x"].iter().chain(&IDENTITIES).nth(says).unwrap();
        // Where nothing tells it from the elector, it is the same one.
        if by.pod.is_none() && *says == IDENTITIES[WITHOUT_POD] {
            self.electors[WITHOUT_POD].disturbed = true;
        }
        if *says == IDENTITIES[UNPROVEN] {
            self.electors[UNPROVEN].disturbed = true;
        }
        let name = &names()[name];
        let present = self.version(name);
        let version = if old { self.strangers_version } else { present };
        self.strangers_version = present;
        let spec = self.spec(says, new_term);
        self.write(name, version, by, put(spec));
    }

    fn delete(&mut self, who: usize, with_revoke: bool, now: bool) {
        let name = &names()[0];
        let revoke = revoke(&self.bench, name, now).filter(|_| with_revoke);
        let version = self.version(name);
        let by = candidate(who, self.proven);
        // Its process does so on purpose.
        if by.pod.is_some() && self.bench.told.get(name).map(|told| &told.candidate) == Some(&by) {
            self.electors[who].ends();
        }
        self.write(name, version, &by, ObjectWrite::Delete { revoke });
    }

    /// Writes an object and compares with what was before. The token, if the writer holds the lease.
    fn write(
        &mut self,
        name: &LeaseName,
        version: Option<u64>,
        by: &Candidate,
        write: ObjectWrite,
    ) -> Option<FencingToken> {
        self.bench.settle();
        let (records, present) = (self.bench.records(), self.version(name));
        let (token, left) = self.holding(name);
        let command = Command::WriteObject(Box::new(WriteObject {
            name: name.clone(),
            version,
            pod: by.pod.clone(),
            watched: None,
            write: write.clone(),
        }));
        let outcome = self.bench.write_of(by.principal.as_ref(), command);
        let (token_after, left_after) = self.holding(name);
        let told = self.bench.told.get(name).cloned();
        let told = told.filter(|told| Some(told.token) == token);
        let own = told
            .as_ref()
            .is_some_and(|told| self.is(&told.candidate, by));
        if version != present {
            let changed = Outcome::Rejected(Rejection::ObjectChanged { present });
            let denied = matches!(
                &outcome,
                Outcome::Rejected(Rejection::PermissionDenied { .. })
            );
            assert!(outcome == changed || denied, "an old version: {outcome:?}");
        }
        let written = match &outcome {
            Outcome::Object(written) => written,
            Outcome::Rejected(why) => {
                self.bench.check_refused(&records, why);
                return None;
            }
            other => panic!("{other:?}"),
        };
        if token.is_some() && token_after != token {
            let revoked = matches!(&write, ObjectWrite::Delete { revoke: Some(_) });
            let ended = own && by.pod.is_some() && released(&write);
            assert!(
                ended || revoked,
                "E2: {by:?} ends the term of {told:?} by {write:?}"
            );
        } else if token.is_some() && left_after != left {
            let told = told
                .as_ref()
                .unwrap_or_else(|| panic!("E2: a native one is renewed"));
            let claims = told.candidate == Candidate::default();
            assert!(own || claims, "E2: {by:?} renews the term of {told:?}");
        }
        let (held, _) = written.held?;
        assert_eq!(Some(held), token_after, "what it is told that it holds");
        let ObjectWrite::Put {
            spec: Some(spec), ..
        } = write
        else {
            panic!("it is told that it holds, and did not ask for it: {write:?}");
        };
        let before = told.filter(|told| told.token == held);
        if let Some(before) = &before {
            assert_eq!(before.identity, spec.holder, "E2: by its holder's name");
        }
        let claimed = |told: &Told| told.candidate == Candidate::default();
        let known = before.filter(|told| !claimed(told));
        let candidate = known.map_or_else(|| by.clone(), |told| told.candidate);
        let told = Told {
            token: held,
            identity: spec.holder,
            candidate,
        };
        self.bench.told.insert(name.clone(), told);
        Some(held)
    }

    /// Whether both are one process, as far as rights bind.
    fn is(&self, holder: &Candidate, by: &Candidate) -> bool {
        holder.pod == by.pod && (!self.bench.binds() || holder.principal == by.principal)
    }

    /// The grant in force, and its session's time.
    fn holding(&self, name: &LeaseName) -> (Option<FencingToken>, Option<Record>) {
        let grant = self.bench.machine.get(name).and_then(|lease| lease.holder);
        let session = grant.as_ref().and_then(|grant| {
            let mut records = self.bench.machine.records();
            records.find(
                |record| matches!(record, Record::Session(session) if session.id == grant.session),
            )
        });
        (grant.map(|grant| grant.token), session)
    }

    fn acquire(&mut self, who: usize, name: usize, waits: bool) {
        let caller = Principal::parse("sa:prod:shop/api").unwrap();
        let acquire = Acquire {
            name: names()[name].clone(),
            wait: waits.then_some(Millis(30_000)),
            data: HolderData::default(),
            lock_delay: Millis(if waits { 0 } else { 2_000 }),
        };
        let native = self.natives[who].filter(|(id, _)| self.bench.machine.session(*id).is_some());
        if native.is_none() {
            let (id, secret) = self.ids();
            let open = Open {
                id,
                secret,
                seen: None,
                ttl: Millis(9_000),
                identity: Identity::parse("native").unwrap(),
                acquire: Some(acquire),
            };
            let done = self.bench.apply_of(Some(&caller), Command::Open(open));
            if let Outcome::Opened(opened) = done {
                self.natives[who] = Some((opened.session, 2));
            }
            return;
        }
        self.request(who, Ask::Acquire(acquire));
    }

    fn release(&mut self, who: usize, hands_over: bool) {
        let Some((id, _)) = self.natives[who] else {
            return;
        };
        for name in names() {
            let grant = self.bench.machine.get(&name).and_then(|lease| lease.holder);
            let Some(grant) = grant.filter(|grant| grant.session == id) else {
                continue;
            };
            let token = grant.token;
            let ask = match hands_over {
                true => Ask::Transfer {
                    name,
                    token,
                    to: None,
                },
                false => Ask::Release {
                    name,
                    token,
                    close: false,
                },
            };
            self.request(who, ask);
        }
    }

    fn request(&mut self, who: usize, ask: Ask) {
        let Some((session, number)) = &mut self.natives[who] else {
            return;
        };
        let secret = secret_of(&self.bench, *session);
        let number_now = RequestNumber::new(*number).unwrap();
        *number += 1;
        let request = Request {
            session: *session,
            secret,
            number: number_now,
            lowest: number_now,
            ask,
        };
        let caller = Principal::parse("sa:prod:shop/api").unwrap();
        self.bench
            .apply_of(Some(&caller), Command::Request(request));
    }
}

fn secret_of(bench: &Bench, id: SessionId) -> Secret {
    let mut records = bench.machine.records();
    let found = records.find_map(|record| match record {
        Record::Session(session) if session.id == id => Some(session.secret),
        _ => None,
    });
    found.unwrap_or(Secret::new([0; 16]))
}

fn put(spec: ObjectSpec) -> ObjectWrite {
    ObjectWrite::Put {
        metadata: ObjectMetadata::default(),
        spec: Some(spec),
    }
}

fn revoke(bench: &Bench, name: &LeaseName, now: bool) -> Option<Revoke> {
    bench.token(name).map(|token| Revoke {
        name: name.clone(),
        token,
        now,
        reason: String::new(),
        operator: String::new(),
    })
}
