//! A machine, what a reader has seen of it, and what must hold after each entry.

use std::collections::BTreeMap;

use ringfence_core::snapshot::Record;
use ringfence_core::{
    AccessChange, Called, Caller, Candidate, ChangeAccess, ClusterId, ClusterTime, Command, Entry,
    Event, FencingToken, Form, Identity, LEVEL_RESTORE, LeaseName, Mode, NamePattern, ObjectView,
    Outcome, Principal, PrincipalPattern, Rejection, Rule, Settings, StateMachine, Verb, WallTime,
};

const CLUSTER: ClusterId = ClusterId::new([1; 16]);

/// A term that a candidate holds by an answer of the endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) token: FencingToken,
    pub(crate) identity: Identity,
    pub(crate) candidate: Candidate,
}

pub(crate) struct Bench {
    pub(crate) machine: StateMachine,
    /// It was restored from a snapshot of the first, and is given the same entries.
    twin: StateMachine,
    pub(crate) time: ClusterTime,
    index: u64,
    term: u64,
    access_set_at: u64,
    pub(crate) told: BTreeMap<LeaseName, Told>,
    /// Every version that any object ever had.
    versions: BTreeMap<u64, ObjectView>,
    last_token: Option<FencingToken>,
    /// What a watcher shows, and the version that it has come to.
    watched: (BTreeMap<LeaseName, ObjectView>, u64),
}

/// Whether a session holds the lease: its keep-alives move `renewed` without a version.
fn is_native(machine: &StateMachine, object: &ObjectView) -> bool {
    object.holder.is_some() && machine.object_term(&object.name).is_none()
}

pub(crate) fn names() -> [LeaseName; 2] {
    ["k8s/shop/web", "k8s/shop/api"].map(|raw| LeaseName::parse(raw).unwrap())
}

fn acquiring(principal: &str) -> AccessChange {
    rule(principal, Verb::Acquire)
}

fn rule(principal: &str, verb: Verb) -> AccessChange {
    AccessChange::AddRule(Rule {
        principals: PrincipalPattern::parse(principal).unwrap(),
        verb,
        names: Some(NamePattern::parse("k8s/shop/*").unwrap()),
    })
}

fn called(who: Option<&Principal>, command: Command) -> Command {
    let Some(principal) = who.cloned() else {
        return command;
    };
    let caller = Caller {
        principal,
        token: None,
        node: 1,
    };
    Command::Called(Box::new(Called { caller, command }))
}

impl Bench {
    pub(crate) fn new() -> Self {
        let mut bench = Self {
            machine: StateMachine::new(),
            twin: StateMachine::new(),
            time: ClusterTime(1),
            index: 0,
            term: 0,
            access_set_at: 0,
            told: BTreeMap::new(),
            versions: BTreeMap::new(),
            last_token: None,
            watched: (BTreeMap::new(), 0),
        };
        bench.open_term();
        bench.apply(Command::Form(Form {
            cluster: CLUSTER,
            token_floor: Some(0),
            settings: Settings::STANDARD,
            mode: Mode::Off,
            quiet_time: ringfence_core::Millis(0),
            restored: None,
        }));
        bench.apply(Command::RaiseLevel {
            level: LEVEL_RESTORE,
        });
        bench.change_access(vec![
            acquiring("sa:prod:shop/*"),
            rule("sa:prod:shop/web", Verb::Revoke),
        ]);
        bench
    }

    pub(crate) fn open_term(&mut self) {
        self.term += 1;
        let unix_seconds = Some(1_700_000_000 + self.time.0 / 1_000);
        self.apply(Command::TermStart { unix_seconds });
    }

    pub(crate) fn change_access(&mut self, changes: Vec<AccessChange>) {
        let change = ChangeAccess {
            cluster: CLUSTER,
            based_on: self.access_set_at,
            changes,
        };
        let local = Principal::local();
        let done = self.apply_of(Some(&local), Command::ChangeAccess(change));
        let Outcome::AccessChanged { set_at, .. } = done else {
            panic!("{done:?}");
        };
        self.access_set_at = set_at;
    }

    pub(crate) fn binds(&self) -> bool {
        self.machine.access().mode() == Mode::Enforced
    }

    pub(crate) fn apply_of(&mut self, who: Option<&Principal>, command: Command) -> Outcome {
        self.apply(called(who, command))
    }

    /// Rehearses a write of an object, then applies it.
    pub(crate) fn write_of(&mut self, who: Option<&Principal>, command: Command) -> Outcome {
        let command = called(who, command);
        let before = self.records();
        let rehearsed = self.machine.rehearse_object_write(&command);
        assert_eq!(self.records(), before, "a rehearsal changes nothing");
        let outcome = self.apply(command);
        assert_eq!(
            rehearsed, outcome,
            "a rehearsal answers what the write is answered"
        );
        outcome
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.machine.records().collect()
    }

    /// The token of the grant in force.
    pub(crate) fn token(&self, name: &LeaseName) -> Option<FencingToken> {
        self.machine.get(name)?.holder.map(|grant| grant.token)
    }

    /// All that is due ends.
    pub(crate) fn settle(&mut self) {
        self.apply(Command::Tick);
        while self
            .machine
            .next_deadline()
            .is_some_and(|due| due <= self.time)
        {
            self.apply(Command::Tick);
        }
    }

    pub(crate) fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let entry = Entry {
            index: self.index,
            term: self.term,
            time: self.time,
            wall: WallTime(1_700_000_000_000 + self.time.0),
            command,
        };
        let before = self.machine.objects_version();
        let (mut events, mut twins) = (Vec::new(), Vec::new());
        let outcome = self.machine.apply(&entry, &mut events);
        assert_eq!(
            self.twin.apply(&entry, &mut twins),
            outcome,
            "after a restore"
        );
        assert_eq!(twins, events, "after a restore");
        assert!(
            self.machine.objects_version() >= before,
            "E3: versions fall"
        );
        self.check(before, &events);
        outcome
    }

    fn check(&mut self, before: u64, events: &[Event]) {
        for event in events {
            if let Event::Granted(granted) = event {
                assert!(Some(granted.token) > self.last_token, "tokens grow");
                self.last_token = Some(granted.token);
            }
        }
        for name in names() {
            let Some(object) = self.machine.object(&name) else {
                continue;
            };
            let grant = object.holder.as_ref().map(|(_, token)| *token);
            assert_eq!(grant, self.token(&name), "I1: one holder");
            let known = self.versions.get_mut(&object.version);
            if let Some(known) = known {
                assert!(
                    known.renewed <= object.renewed,
                    "renewals are not taken back"
                );
                if is_native(&self.machine, &object) {
                    known.renewed = object.renewed;
                }
                assert_eq!(*known, object, "E3: a version is of one state");
            } else {
                assert!(object.version > before, "E3: a version repeats");
                assert!(object.version <= self.machine.objects_version());
                self.versions.insert(object.version, object);
            }
        }
        let records = self.records();
        let twin: Vec<Record> = self.twin.records().collect();
        assert_eq!(twin, records, "a restored machine goes on alike");
        assert_eq!(self.twin.lead(), self.machine.lead());
        assert_eq!(self.twin.next_deadline(), self.machine.next_deadline());
        let restored = StateMachine::restore(records.clone()).unwrap();
        let again: Vec<Record> = restored.records().collect();
        assert_eq!(again, records, "snapshot and restore");
        assert_eq!(restored.lead(), self.machine.lead());
        assert_eq!(restored.next_deadline(), self.machine.next_deadline());
    }

    /// The twin goes on from a snapshot of now.
    pub(crate) fn restore(&mut self) {
        self.twin = StateMachine::restore(self.records()).unwrap();
    }

    /// Resumes the watch, and compares what it shows with a list.
    pub(crate) fn watch(&mut self) {
        let (shown, from) = &mut self.watched;
        for (_, name, _) in self.machine.objects_gone_after(*from) {
            shown.remove(name);
        }
        for (version, name) in self.machine.objects_changed_after(*from) {
            assert!(version > *from);
            shown.insert(name.clone(), self.machine.object(name).unwrap());
        }
        *from = self.machine.objects_version();
        let listed = self.machine.objects("", None);
        let listed: BTreeMap<_, _> = listed.map(|object| (object.name.clone(), object)).collect();
        for (name, object) in &listed {
            if let Some(shown) = shown.get_mut(name)
                && is_native(&self.machine, object)
            {
                shown.renewed = object.renewed;
            }
        }
        assert_eq!(
            *shown, listed,
            "E3: a resumed watch ends in the listed state"
        );
    }

    /// A refused write of an object changes nothing, but that a note of who owes may begin to run.
    pub(crate) fn check_refused(&self, before: &[Record], why: &Rejection) {
        let quarantine = matches!(why, Rejection::Owing { .. });
        let plain = |record: &Record| match record.clone() {
            Record::Header(mut header) => {
                header.index = 0;
                Record::Header(header)
            }
            Record::Owing(mut owing) if quarantine => {
                owing.notes.iter_mut().for_each(|note| note.until = None);
                Record::Owing(owing)
            }
            other => other,
        };
        let after: Vec<Record> = self.records().iter().map(plain).collect();
        let before: Vec<Record> = before.iter().map(plain).collect();
        assert_eq!(after, before, "a refused write changes nothing: {why:?}");
    }
}
