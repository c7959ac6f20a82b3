//! What one principal can take of what all share: names that no session uses any more, and places in
//! the list of acts.
#![allow(clippy::unwrap_used)]

mod world;

use ringfence_core::{
    AUDIT_RECORDS_MAX, AccessChange, Acquire, Acquired, Ask, Called, Caller, ChangeAccess,
    ClusterId, Command, Configure, Event, Evict, FencingToken, HolderData, Identity, LEVEL_OBJECTS,
    LEVEL_RESTORE, LeaseName, Limit, Millis, Mode, NamePattern, Open, OpenId, Outcome, Principal,
    PrincipalLimits, PrincipalPattern, Rejection, Request, RequestNumber, Revoke, Rule, Secret,
    SessionId, StateMachine, Verb,
};
use world::{World, opened};

const ROOT: &str = "cert:cn:root";
const ALICE: &str = "cert:cn:alice";
const BOB: &str = "cert:cn:bob";

fn name(text: &str) -> LeaseName {
    LeaseName::parse(text).unwrap()
}

fn allow(who: &str, verb: Verb, names: Option<&str>) -> AccessChange {
    AccessChange::AddRule(Rule {
        principals: PrincipalPattern::parse(who).unwrap(),
        verb,
        names: names.map(|names| NamePattern::parse(names).unwrap()),
    })
}

fn limit(leases: u64) -> AccessChange {
    let sessions = 100;
    AccessChange::SetLimits(PrincipalLimits { sessions, leases })
}

impl World {
    /// Rights bind, each principal has at most so many leases, and a session is open for each of alice
    /// (1) and bob (2).
    fn shared(level: u32, leases: u64) -> Self {
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
            let open = Open {
                id: OpenId::new([number; 16]),
                secret: Secret::new([number; 16]),
                seen: None,
                ttl: Millis::from_secs(300),
                identity: Identity::parse(who).unwrap(),
                acquire: None,
            };
            opened(world.by(who, Command::Open(open)));
        }
        world
    }

    fn by(&mut self, who: &str, command: Command) -> Outcome {
        let caller = Caller {
            principal: Principal::parse(who).unwrap(),
            token: None,
            node: 1,
        };
        self.apply(Command::Called(Box::new(Called { caller, command })))
    }

    fn change(&mut self, changes: Vec<AccessChange>) {
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

    fn ask(&mut self, session: u8, ask: Ask) -> Outcome {
        // Each entry is a request of its own.
        let number = RequestNumber::new(self.machine.index() + 1).unwrap();
        let who = [ALICE, BOB][usize::from(session) - 1];
        let request = Request {
            session: SessionId::new(session.into()).unwrap(),
            secret: Secret::new([session; 16]),
            number,
            lowest: number,
            ask,
        };
        self.by(who, Command::Request(request))
    }

    fn acquire(&mut self, session: u8, lease: &str, lock_delay: u64) -> Outcome {
        let acquire = Acquire {
            name: name(lease),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis::from_secs(lock_delay),
        };
        self.ask(session, Ask::Acquire(acquire))
    }

    fn take(&mut self, session: u8, lease: &str) -> FencingToken {
        match self.acquire(session, lease, 0) {
            Outcome::Acquired(Acquired::Granted(granted)) => granted.token,
            other => panic!("{lease}: {other:?}"),
        }
    }

    fn use_once(&mut self, session: u8, lease: &str) -> FencingToken {
        let token = self.take(session, lease);
        self.release(session, lease, token);
        token
    }

    fn release(&mut self, session: u8, lease: &str, token: FencingToken) {
        let name = name(lease);
        let close = false;
        let released = self.ask(session, Ask::Release { name, token, close });
        assert!(matches!(released, Outcome::Released { .. }), "{released:?}");
    }

    fn revoke(&mut self, who: &str, lease: &str, token: FencingToken, now: bool) -> Outcome {
        let revoke = Revoke {
            name: name(lease),
            token,
            now,
            reason: String::new(),
            operator: String::new(),
        };
        self.by(who, Command::Revoke(revoke))
    }

    fn evict(&mut self, who: &str, session: u64) -> Outcome {
        let evict = Evict {
            session: SessionId::new(session).unwrap(),
            reason: String::new(),
            operator: String::new(),
        };
        self.by(who, Command::Evict(evict))
    }

    fn names(&self) -> Vec<String> {
        let all = self.machine.list("", None);
        all.map(|lease| lease.name.as_str().to_owned()).collect()
    }

    /// Goes on with what a snapshot keeps of it.
    fn restore(&mut self) {
        let records: Vec<_> = self.machine.records().collect();
        self.machine = StateMachine::restore(records).unwrap();
    }

    fn acts(&self) -> usize {
        self.machine.audit().count()
    }
}

#[test]
fn names_that_a_principal_used_and_gave_back_count_for_it() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    let first = world.use_once(2, "bobs");
    let mut last = first;
    for at in 0..50 {
        world.time.0 += 1;
        let token = world.use_once(1, &format!("churn/{at:02}"));
        assert!(token > last, "tokens never go back");
        last = token;
    }
    // Its own oldest ones went, and nothing of another principal.
    let left = ["bobs", "churn/47", "churn/48", "churn/49"];
    assert_eq!(world.names(), left);
    let forgotten = world.machine.summary().forgotten.unwrap();
    assert!(forgotten > first && forgotten < last);
    // A name that was forgotten comes back with a greater token.
    assert!(world.use_once(1, "churn/00") > last);
}

#[test]
fn below_the_level_names_that_were_given_back_count_for_no_principal() {
    let mut world = World::shared(LEVEL_OBJECTS, 3);
    for at in 0..50 {
        world.use_once(1, &format!("churn/{at:02}"));
    }
    assert_eq!(world.names().len(), 50);
    // What was idle before the level counts for no principal after it, and goes by its retention.
    world.apply(Command::RaiseLevel {
        level: LEVEL_RESTORE,
    });
    for at in 0..50 {
        world.use_once(1, &format!("more/{at:02}"));
    }
    assert_eq!(world.names().len(), 53);
}

#[test]
fn a_name_counts_for_the_principal_that_used_it_last() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    world.use_once(1, "shared");
    world.time.0 += 1;
    world.use_once(2, "shared");
    for at in 0..9 {
        world.time.0 += 1;
        world.use_once(1, &format!("churn/{at}"));
    }
    let left = ["churn/6", "churn/7", "churn/8", "shared"];
    assert_eq!(world.names(), left);
    // While it is held it counts for its holder alone.
    world.take(1, "shared");
    for at in 0..9 {
        world.time.0 += 1;
        world.use_once(2, &format!("bobs/{at}"));
    }
    let left = ["bobs/6", "bobs/7", "bobs/8", "churn/7", "churn/8", "shared"];
    assert_eq!(world.names(), left);
}

#[test]
fn an_idle_name_of_its_own_costs_a_principal_nothing_more() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    for lease in ["a", "b", "c"] {
        world.time.0 += 1;
        world.use_once(1, lease);
    }
    world.restore();
    world.take(1, "a");
    assert_eq!(world.names(), ["a", "b", "c"]);
    world.take(1, "d");
    assert_eq!(world.names(), ["a", "c", "d"]);
    world.take(1, "c");
    let full = Outcome::Rejected(Rejection::Limit(Limit::PrincipalLeases(3)));
    assert_eq!(world.acquire(1, "e", 0), full);
    assert_eq!(world.names(), ["a", "c", "d"]);
}

#[test]
fn names_under_a_lock_delay_count_too_until_it_is_over() {
    let mut world = World::shared(LEVEL_RESTORE, 3);
    let leases = ["a", "b", "c"];
    let granted = leases.map(|lease| match world.acquire(1, lease, 60) {
        Outcome::Acquired(Acquired::Granted(granted)) => granted,
        other => panic!("{other:?}"),
    });
    for granted in granted {
        world.revoke(BOB, granted.name.as_str(), granted.token, true);
    }
    world.evict(BOB, 1);
    // Evicted and opened again: the loss itself no longer counts, and the names cannot go yet.
    let open = Open {
        id: OpenId::new([9; 16]),
        secret: Secret::new([1; 16]),
        seen: None,
        ttl: Millis::from_secs(300),
        identity: Identity::parse("again").unwrap(),
        acquire: Some(Acquire {
            name: name("d"),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    };
    let Outcome::Opened(answer) = world.by(ALICE, Command::Open(open)) else {
        panic!("there is room for a session");
    };
    let full = Acquired::Refused(Rejection::Limit(Limit::PrincipalLeases(3)));
    assert_eq!(answer.acquired, Some(full));
    world.time.0 += 60_000;
    world.restore();
    world.apply(Command::Tick);
    let number = RequestNumber::new(2).unwrap();
    let acquire = Acquire {
        name: name("d"),
        wait: None,
        data: HolderData::default(),
        lock_delay: Millis(0),
    };
    let request = Request {
        session: answer.session,
        secret: Secret::new([1; 16]),
        number,
        lowest: number,
        ask: Ask::Acquire(acquire),
    };
    let granted = world.by(ALICE, Command::Request(request));
    assert!(
        matches!(granted, Outcome::Acquired(Acquired::Granted(_))),
        "{granted:?}"
    );
    assert_eq!(world.names(), ["b", "c", "d"]);
}

#[test]
fn where_a_lowered_limit_left_more_two_names_go_for_each_new_one() {
    let mut world = World::shared(LEVEL_RESTORE, 100);
    for at in 0..20 {
        world.time.0 += 1;
        world.use_once(1, &format!("old/{at:02}"));
    }
    world.change(vec![limit(4)]);
    world.take(1, "new");
    assert_eq!(world.names().len(), 19);
    let forgotten = |event: &&Event| matches!(event, Event::Forgotten { .. });
    assert_eq!(world.events.iter().filter(forgotten).count(), 2);
}

#[test]
fn an_act_that_changes_nothing_takes_no_place_among_the_acts() {
    let mut world = World::shared(LEVEL_RESTORE, 100);
    let token = world.take(1, "job");
    let before = world.acts();
    assert_eq!(world.revoke(BOB, "job", token, false), Outcome::Done);
    assert_eq!(world.acts(), before + 1);
    // It lifts what keeps the next holder waiting, once.
    assert_eq!(world.revoke(BOB, "job", token, false), Outcome::Done);
    assert_eq!(world.acts(), before + 1);
    assert_eq!(world.revoke(BOB, "job", token, true), Outcome::Done);
    assert_eq!(world.acts(), before + 2);
    assert_eq!(world.revoke(BOB, "job", token, true), Outcome::Done);
    assert_eq!(world.acts(), before + 2);

    for _ in 0..3 {
        let closed = world.evict(BOB, 1);
        assert!(matches!(closed, Outcome::Closed { .. }), "{closed:?}");
        assert_eq!(world.acts(), before + 3);
    }
    for _ in 0..3 {
        world.change(vec![
            allow(ROOT, Verb::Admin, None),
            AccessChange::Unban(Principal::parse(BOB).unwrap()),
        ]);
        let configure = Configure {
            based_on: world.machine.settings_set_at(),
            settings: *world.machine.settings(),
        };
        assert_eq!(world.by(ROOT, Command::Configure(configure)), Outcome::Done);
    }
    assert_eq!(world.acts(), before + 3);

    let mut below = World::shared(LEVEL_OBJECTS, 100);
    let token = below.take(1, "job");
    let before = below.acts();
    below.revoke(BOB, "job", token, false);
    below.revoke(BOB, "job", token, false);
    assert_eq!(below.acts(), before + 2);
}

/// Bob acts again and again; what root did stands.
#[test]
fn who_acts_most_displaces_its_own_acts() {
    let flood = |level| {
        // Losses that are not acknowledged count.
        let mut world = World::shared(level, 10_000);
        world.change(vec![allow("cert:cn:evil", Verb::Admin, None)]);
        let by_root = world.acts();
        for _ in 0..AUDIT_RECORDS_MAX + 10 {
            let token = world.take(1, "job");
            world.revoke(BOB, "job", token, true);
            world.restore_now_and_then();
        }
        (world, by_root)
    };
    let (world, by_root) = flood(LEVEL_RESTORE);
    assert_eq!(world.acts(), AUDIT_RECORDS_MAX);
    let root = Principal::parse(ROOT).unwrap();
    let of_root = |world: &World| {
        let acts = world.machine.audit();
        acts.filter(|act| act.principal.as_ref() == Some(&root))
            .count()
    };
    assert_eq!(of_root(&world), by_root);
    let evil = |world: &World| world.machine.audit().any(|act| act.act.contains("evil"));
    assert!(evil(&world));
    // A reader behind an index hears whether acts behind it are gone.
    let indices: Vec<u64> = world.machine.audit().map(|act| act.index).collect();
    let gone_until = indices[by_root] - 1;
    assert!(world.machine.audit_may_lack_after(indices[0]));
    assert!(world.machine.audit_may_lack_after(indices[by_root - 1]));
    assert!(!world.machine.audit_may_lack_after(gone_until));

    let (below, _) = flood(LEVEL_OBJECTS);
    assert_eq!(of_root(&below), 0);
    assert!(!evil(&below));
}

impl World {
    fn restore_now_and_then(&mut self) {
        if self.machine.index().is_multiple_of(512) {
            self.restore();
        }
    }
}
