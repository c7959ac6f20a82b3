//! A batch mixes the requests of many callers: none keeps alive what is not its own.

use ringfence_core::{
    AccessChange, Called, ChangeAccess, Identity, LEVEL_ACCESS, Millis, Mode, NamePattern, Open,
    OpenId, Opened, Principal, PrincipalPattern, Renew, Rule, SessionEnd, Verb,
};

use super::test_state::{CLUSTER, TestState};
use super::*;

const TTL: Millis = Millis::from_secs(15);

/// Who asks, and for which sessions.
type Asks = (Option<Caller>, Vec<(SessionId, Secret)>);

fn caller(principal: &str) -> Caller {
    Caller {
        principal: Principal::parse(principal).unwrap(),
        token: None,
        node: 2,
    }
}

fn honest() -> Caller {
    caller("cert:cn:honest")
}

fn thief() -> Caller {
    caller("cert:cn:thief")
}

fn called(caller: Caller, command: Command) -> Command {
    Command::Called(Box::new(Called { caller, command }))
}

/// A cluster whose rights are in this mode, and its sessions.
struct Site {
    state: TestState,
    set_at: u64,
}

impl Site {
    async fn new() -> Self {
        let mut state = TestState::formed().await;
        let level = Command::RaiseLevel {
            level: LEVEL_ACCESS,
        };
        state.apply(ClusterTime(0), level).await;
        Self { state, set_at: 0 }
    }

    async fn change(&mut self, changes: Vec<AccessChange>) {
        let change = Command::ChangeAccess(ChangeAccess {
            cluster: CLUSTER,
            based_on: self.set_at,
            changes,
        });
        let change = called(
            Caller {
                principal: Principal::local(),
                ..honest()
            },
            change,
        );
        let time = self.state.state.machine().time();
        match self.state.apply(time, change).await {
            Outcome::AccessChanged { set_at, .. } => self.set_at = set_at,
            other => panic!("{other:?}"),
        }
    }

    async fn set(&mut self, mode: Mode) {
        let everybody = Rule {
            principals: PrincipalPattern::parse("*").unwrap(),
            verb: Verb::Acquire,
            names: Some(NamePattern::parse("*").unwrap()),
        };
        let changes = vec![
            AccessChange::AddRule(everybody),
            AccessChange::SetMode(mode),
        ];
        self.change(changes).await;
    }

    async fn open(&mut self, n: u8, by: Option<Caller>) -> (SessionId, Secret) {
        let secret = Secret::new([n; 16]);
        let open = Command::Open(Open {
            id: OpenId::new([n; 16]),
            secret,
            seen: None,
            ttl: TTL,
            identity: Identity::parse("").unwrap(),
            acquire: None,
        });
        let open = match by {
            Some(caller) => called(caller, open),
            None => open,
        };
        match self.state.apply(ClusterTime(0), open).await {
            Outcome::Opened(Opened { session, .. }) => (session, secret),
            other => panic!("{other:?}"),
        }
    }

    /// When the session was kept alive last.
    fn silence(&self, (id, _): (SessionId, Secret)) -> Option<Millis> {
        self.state.state.machine().silence(id)
    }

    async fn keep_alive(&mut self, at: u64, batch: &[Asks]) -> Vec<KeptAlive> {
        let batch = batch.iter().map(|(caller, sessions)| KeepAlive {
            sessions: sessions.clone(),
            acknowledged: Vec::new(),
            caller: caller.clone(),
        });
        let batch = batch.collect();
        self.state.keep_alive(ClusterTime(at), batch).await
    }
}

#[tokio::test]
async fn a_stolen_handle_keeps_nothing_alive_in_a_batch_with_its_owner() {
    let mut site = Site::new().await;
    site.set(Mode::Enforced).await;
    let of_honest = site.open(1, Some(honest())).await;
    let of_thief = site.open(2, Some(thief())).await;

    let batch = [
        (Some(thief()), vec![of_honest, of_thief]),
        (None, vec![of_honest]),
    ];
    let kept = site.keep_alive(1_000, &batch).await;
    let refused = [(of_honest.0, Rejection::OtherPrincipal)];
    assert_eq!(kept[0].ended, refused, "it lives on, for another one");
    assert_eq!(kept[1].ended, refused, "nothing was proven");
    assert_eq!(site.silence(of_honest), Some(Millis(1_000)), "not renewed");
    assert_eq!(site.silence(of_thief), Some(Millis(0)));

    let batch = [
        (Some(thief()), vec![of_honest]),
        (Some(honest()), vec![of_honest]),
        (Some(thief()), vec![of_honest, of_thief]),
    ];
    let kept = site.keep_alive(2_000, &batch).await;
    assert_eq!(kept[0].ended, refused, "the owner's request is another one");
    assert_eq!(kept[1].ended, []);
    assert_eq!(kept[2].ended, refused);
    assert_eq!(site.silence(of_honest), Some(Millis(0)));
}

#[tokio::test]
async fn a_wrong_secret_is_one_whoever_asks() {
    let mut site = Site::new().await;
    site.set(Mode::Enforced).await;
    let (id, _) = site.open(1, Some(honest())).await;
    let wrong = (id, Secret::new([9; 16]));
    for asks in [honest(), thief()] {
        let kept = site.keep_alive(1_000, &[(Some(asks), vec![wrong])]).await;
        assert_eq!(kept[0].ended, [(id, Rejection::WrongSecret)]);
    }
}

#[tokio::test]
async fn permissive_and_off_refuse_no_secret_that_is_right() {
    let mut site = Site::new().await;
    site.set(Mode::Permissive).await;
    let session = site.open(1, Some(honest())).await;
    site.change(vec![AccessChange::Ban(thief().principal)])
        .await;
    for mode in [Mode::Permissive, Mode::Off] {
        site.set(mode).await;
        for asks in [Some(thief()), None] {
            let kept = site.keep_alive(1_000, &[(asks, vec![session])]).await;
            assert_eq!(kept[0].ended, []);
            assert_eq!(site.silence(session), Some(Millis(0)));
        }
    }
}

#[tokio::test]
async fn the_sessions_of_a_banned_principal_end_by_their_ttl() {
    let mut site = Site::new().await;
    site.set(Mode::Enforced).await;
    let (banned, other) = (
        site.open(1, Some(honest())).await,
        site.open(2, Some(thief())).await,
    );
    site.keep_alive(
        1_000,
        &[(Some(honest()), vec![banned]), (Some(thief()), vec![other])],
    )
    .await;
    let principal = honest().principal;
    site.change(vec![AccessChange::Ban(principal.clone())])
        .await;

    for at in (2_000..16_000).step_by(1_000) {
        let batch = [
            (Some(honest()), vec![banned, other]),
            (Some(thief()), vec![other]),
        ];
        let kept = site.keep_alive(at, &batch).await;
        let refusal = Rejection::Banned {
            principal: principal.clone(),
        };
        assert_eq!(
            kept[0].ended,
            [(banned.0, refusal.clone()), (other.0, refusal)],
            "at {at}"
        );
        assert_eq!(kept[1].ended, []);
    }
    let kept = site
        .keep_alive(16_000, &[(Some(thief()), vec![other])])
        .await;
    assert_eq!(kept[0].ended, []);
    let ended = site.state.state.machine().session_end(banned.0);
    assert_eq!(ended, Some(SessionEnd::Expired), "one TTL after its last");
}

/// The entry was written before the ban and is applied after it.
#[tokio::test]
async fn a_keep_alive_that_was_under_way_at_the_ban_renews_nothing() {
    let mut site = Site::new().await;
    site.set(Mode::Enforced).await;
    let (id, _) = site.open(1, Some(honest())).await;
    site.change(vec![AccessChange::Ban(honest().principal)])
        .await;
    let renew = Renew {
        sessions: vec![id],
        acknowledged: Vec::new(),
    };
    let renew = Command::Renew(renew);
    site.state.apply(ClusterTime(1_000), renew).await;
    assert_eq!(site.state.state.machine().silence(id), Some(Millis(1_000)));
}

#[tokio::test]
async fn a_token_that_was_revoked_keeps_nothing_alive() {
    let mut site = Site::new().await;
    site.set(Mode::Enforced).await;
    let ci = Principal::parse("token:ci").unwrap();
    let by = Caller {
        principal: ci,
        token: Some(4_711),
        node: 1,
    };
    let session = site.open(1, Some(honest())).await;
    let kept = site.keep_alive(1_000, &[(Some(by), vec![session])]).await;
    let refusal = Rejection::TokenRevoked { id: 4_711 };
    assert_eq!(kept[0].ended, [(session.0, refusal)]);
}

#[tokio::test]
async fn a_session_of_nobody_goes_on_until_somebody_proves_its_secret() {
    let mut site = Site::new().await;
    let session = site.open(1, None).await;
    site.set(Mode::Enforced).await;
    let kept = site.keep_alive(1_000, &[(None, vec![session])]).await;
    assert_eq!(kept[0].ended, []);
    // It is adopted by an entry of its own; meanwhile it lives.
    let kept = site
        .keep_alive(2_000, &[(Some(honest()), vec![session])])
        .await;
    assert_eq!(kept[0].ended, []);
    assert_eq!(site.silence(session), Some(Millis(0)));
    let adopt = Command::Adopt {
        session: session.0,
        secret: session.1,
    };
    let adopted = site
        .state
        .apply(ClusterTime(2_000), called(honest(), adopt));
    assert_eq!(adopted.await, Outcome::Done);
    let batch = [
        (Some(thief()), vec![session]),
        (None, vec![session]),
        (Some(honest()), vec![session]),
    ];
    let kept = site.keep_alive(3_000, &batch).await;
    let refused = [(session.0, Rejection::OtherPrincipal)];
    assert_eq!(kept[0].ended, refused);
    assert_eq!(kept[1].ended, refused);
    assert_eq!(kept[2].ended, []);
}

#[tokio::test]
async fn a_caller_that_is_anonymous_by_name_is_one_of_whom_nothing_is_proven() {
    let mut site = Site::new().await;
    site.set(Mode::Enforced).await;
    let session = site.open(1, Some(caller("anonymous"))).await;
    let batch = [
        (Some(caller("anonymous")), vec![session]),
        (None, vec![session]),
    ];
    let kept = site.keep_alive(1_000, &batch).await;
    assert!(kept.iter().all(|kept| kept.ended.is_empty()), "{kept:?}");
}

/// The caller travels to the leader with the request.
#[test]
fn the_caller_of_a_request_reaches_the_leader_and_one_that_cannot_be_read_is_not_nobody() {
    let request = KeepAlive {
        caller: Some(Caller {
            token: Some(9),
            ..honest()
        }),
        ..KeepAlive::default()
    };
    let mut sent = request_to_pb(&request);
    assert_eq!(request_from_pb(&sent), Some(request));
    if let Some(caller) = &mut sent.caller {
        caller.principal = "martian:x".to_owned();
    }
    assert_eq!(request_from_pb(&sent), None);
}
