//! Rights that bind with small limits, and principals that use what they may.

use ringfence_core::{
    AccessChange, Acquire, Acquired, Ask, Called, Caller, ChangeAccess, ClusterId, ClusterTime,
    Command, Evict, FencingToken, HolderData, Identity, LeaseName, Millis, Mode, NamePattern,
    ObjectMetadata, ObjectSpec, ObjectWrite, Open, OpenForPod, OpenId, Outcome, Pod, PodText,
    Principal, PrincipalLimits, PrincipalPattern, Request, RequestNumber, Revoke, Rule, Secret,
    SessionId, StateMachine, Verb, WriteObject,
};

use crate::world::{World, opened};

pub(crate) const ROOT: &str = "cert:cn:root";
pub(crate) const ALICE: &str = "cert:cn:alice";
pub(crate) const BOB: &str = "cert:cn:bob";

pub(crate) fn name(text: &str) -> LeaseName {
    LeaseName::parse(text).unwrap()
}

pub(crate) fn allow(who: &str, verb: Verb, names: Option<&str>) -> AccessChange {
    AccessChange::AddRule(Rule {
        principals: PrincipalPattern::parse(who).unwrap(),
        verb,
        names: names.map(|names| NamePattern::parse(names).unwrap()),
    })
}

pub(crate) fn limit(leases: u64) -> AccessChange {
    let sessions = 100;
    AccessChange::SetLimits(PrincipalLimits { sessions, leases })
}

impl World {
    /// Rights bind, each principal has at most so many leases, and a session is open for each of alice
    /// (1) and bob (2).
    pub(crate) fn shared(level: u32, leases: u64) -> Self {
        let mut world = Self::new();
        world.apply(Command::RaiseLevel { level });
        world.change(vec![
            allow(ROOT, Verb::Admin, None),
            allow(ROOT, Verb::Configure, None),
            allow(BOB, Verb::Revoke, Some("*")),
            allow("cert:cn:*", Verb::Acquire, Some("*")),
            limit(leases),
            AccessChange::SetMode(Mode::Enforced),
        ]);
        for (number, who) in [(1, ALICE), (2, BOB)] {
            world.open(Some(who), number, 300);
        }
        world
    }

    /// Opens a session for so many seconds; its secret has the same number.
    pub(crate) fn open(&mut self, who: Option<&str>, number: u8, seconds: u64) -> SessionId {
        opened(self.opening(who, number, seconds))
    }

    pub(crate) fn opening(&mut self, who: Option<&str>, number: u8, seconds: u64) -> Outcome {
        let open = Open {
            id: OpenId::new([number; 16]),
            secret: Secret::new([number; 16]),
            seen: None,
            ttl: Millis::from_secs(seconds),
            identity: Identity::parse("x").unwrap(),
            acquire: None,
        };
        self.called(who, Command::Open(open))
    }

    /// Opens a session that lasts as long as a Pod.
    pub(crate) fn open_for_pod(&mut self, who: &str, number: u8) {
        let pod = Pod::parse(PodText {
            namespace: "shop",
            name: "w",
            uid: "0a1b2c3d-0000-4000-8000-000000000001",
            container: "",
        });
        let open = OpenForPod {
            id: OpenId::new([number; 16]),
            secret: Secret::new([number; 16]),
            seen: Some(ClusterTime(0)),
            identity: Identity::parse("x").unwrap(),
            pod: pod.unwrap(),
        };
        opened(self.by(who, Command::OpenForPod(open)));
    }

    pub(crate) fn called(&mut self, who: Option<&str>, command: Command) -> Outcome {
        match who {
            Some(who) => self.by(who, command),
            None => self.apply(command),
        }
    }

    pub(crate) fn by(&mut self, who: &str, command: Command) -> Outcome {
        let caller = Caller {
            principal: Principal::parse(who).unwrap(),
            token: None,
            node: 1,
        };
        self.apply(Command::Called(Box::new(Called { caller, command })))
    }

    pub(crate) fn change(&mut self, changes: Vec<AccessChange>) {
        let change = ChangeAccess {
            cluster: ClusterId::new([1; 16]),
            based_on: self.machine.access().set_at(),
            changes,
        };
        let changed = self.by(ROOT, Command::ChangeAccess(change));
        assert!(
            matches!(changed, Outcome::AccessChanged { .. }),
            "{changed:?}"
        );
    }

    /// The session is the one with this number, and its secret has it too.
    pub(crate) fn ask_by(&mut self, who: Option<&str>, session: u8, ask: Ask) -> Outcome {
        // Each entry is a request of its own.
        let number = RequestNumber::new(self.machine.index() + 1).unwrap();
        let request = Request {
            session: SessionId::new(session.into()).unwrap(),
            secret: Secret::new([session; 16]),
            number,
            lowest: number,
            ask,
        };
        self.called(who, Command::Request(request))
    }

    pub(crate) fn acquire(&mut self, session: u8, lease: &str, lock_delay: u64) -> Outcome {
        let who = [ALICE, BOB][usize::from(session) - 1];
        self.acquire_by(Some(who), session, lease, lock_delay)
    }

    pub(crate) fn acquire_by(
        &mut self,
        who: Option<&str>,
        session: u8,
        lease: &str,
        lock_delay: u64,
    ) -> Outcome {
        let acquire = Acquire {
            name: name(lease),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis::from_secs(lock_delay),
        };
        self.ask_by(who, session, Ask::Acquire(acquire))
    }

    pub(crate) fn take(&mut self, session: u8, lease: &str) -> FencingToken {
        let who = [ALICE, BOB][usize::from(session) - 1];
        self.take_by(Some(who), session, lease)
    }

    pub(crate) fn take_by(&mut self, who: Option<&str>, session: u8, lease: &str) -> FencingToken {
        match self.acquire_by(who, session, lease, 0) {
            Outcome::Acquired(Acquired::Granted(granted)) => granted.token,
            other => panic!("{lease}: {other:?}"),
        }
    }

    pub(crate) fn use_once(&mut self, session: u8, lease: &str) -> FencingToken {
        let token = self.take(session, lease);
        self.release(session, lease, token);
        token
    }

    pub(crate) fn release(&mut self, session: u8, lease: &str, token: FencingToken) {
        let who = [ALICE, BOB][usize::from(session) - 1];
        self.release_by(Some(who), session, lease, token);
    }

    pub(crate) fn release_by(
        &mut self,
        who: Option<&str>,
        session: u8,
        lease: &str,
        token: FencingToken,
    ) {
        let name = name(lease);
        let close = false;
        let released = self.ask_by(who, session, Ask::Release { name, token, close });
        assert!(matches!(released, Outcome::Released { .. }), "{released:?}");
    }

    pub(crate) fn revoke(
        &mut self,
        who: &str,
        lease: &str,
        token: FencingToken,
        now: bool,
    ) -> Outcome {
        let revoke = Revoke {
            name: name(lease),
            token,
            now,
            reason: String::new(),
            operator: String::new(),
        };
        self.by(who, Command::Revoke(revoke))
    }

    pub(crate) fn evict(&mut self, who: &str, session: u64) -> Outcome {
        let evict = Evict {
            session: SessionId::new(session).unwrap(),
            reason: String::new(),
            operator: String::new(),
        };
        self.by(who, Command::Evict(evict))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.machine.list("", None);
        all.map(|lease| lease.name.as_str().to_owned()).collect()
    }

    /// Goes on with what a snapshot keeps of it.
    pub(crate) fn restore(&mut self) {
        let records: Vec<_> = self.machine.records().collect();
        self.machine = StateMachine::restore(records).unwrap();
    }

    /// Asks for a lease, and waits for it for so many seconds.
    pub(crate) fn wait(
        &mut self,
        who: Option<&str>,
        session: u8,
        lease: &str,
        wait: u64,
    ) -> Outcome {
        let acquire = Acquire {
            name: name(lease),
            wait: Some(Millis::from_secs(wait)),
            data: HolderData::default(),
            lock_delay: Millis(0),
        };
        self.ask_by(who, session, Ask::Acquire(acquire))
    }

    /// Lets cluster time pass, and ends what is due.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.time.0 += seconds * 1_000;
        self.apply(Command::Tick);
        while self
            .machine
            .next_deadline()
            .is_some_and(|due| due <= self.time)
        {
            self.apply(Command::Tick);
        }
    }

    /// A write of a Lease object by a process in the Pod of this number. With seconds it asks for a
    /// term, as `says`.
    pub(crate) fn writing(&self, pod: u8, says: &str, at: &str, seconds: Option<u32>) -> Command {
        let open = self.machine.index() + 1;
        let mut id = [0xee; 16];
        id[..8].copy_from_slice(&open.to_le_bytes());
        let uid = format!("0a1b2c3d-0000-4000-8000-0000000000{pod:02x}");
        let pod = Pod::parse(PodText {
            namespace: "shop",
            name: "w",
            uid: &uid,
            container: "",
        });
        let write = WriteObject {
            name: name(at),
            version: self.machine.object(&name(at)).map(|object| object.version),
            pod: Some(pod.unwrap().uid().clone()),
            watched: None,
            write: ObjectWrite::Put {
                metadata: ObjectMetadata::default(),
                spec: seconds.map(|seconds| ObjectSpec {
                    holder: Identity::parse(says).unwrap(),
                    seconds,
                    new_term: false,
                    open: OpenId::new(id),
                    secret: Secret::new([3; 16]),
                }),
            },
        };
        Command::WriteObject(Box::new(write))
    }

    pub(crate) fn put(
        &mut self,
        who: &str,
        pod: u8,
        says: &str,
        at: &str,
        seconds: Option<u32>,
    ) -> Outcome {
        let command = self.writing(pod, says, at, seconds);
        self.by(who, command)
    }

    pub(crate) fn acts(&self) -> usize {
        self.machine.audit().count()
    }
}

pub(crate) fn is_granted(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Acquired(Acquired::Granted(_)))
}

pub(crate) fn is_waiting(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Acquired(Acquired::Waiting { .. }))
}

pub(crate) fn is_written(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Object(_))
}
