//! A call that waits while its caller's credential ends, at a node in the process of the test.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use ringfence_core::{
    AccessChange, Called, Caller, ChangeAccess, Command, LEVEL_ACCESS, LeaseName, Mode,
    NamePattern, Outcome, Principal, PrincipalPattern, Rule, Verb,
};
use ringfence_raft::{Node, NodeConfig};
use ringfence_rest::Rest;
use ringfence_services::{
    Client, Context, Identified, LeaseService, Pool, SessionService, since_epoch,
};
use ringfence_testkit::ports::Port;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of one that enforces rights; `cert:cn:alice` may acquire `bank`.
struct Site {
    node: Node,
    rest: Rest,
    _dir: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

fn alice() -> Principal {
    Principal::parse("cert:cn:alice").unwrap()
}

impl Site {
    async fn new() -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), Port::any());
        let config = NodeConfig {
            peer_listen: port.address(),
            peer_port_is_local: true,
            initial_cluster: vec![("n1".to_owned(), port.address().to_string())],
            token_floor: Some(0),
            ..NodeConfig::new("n1", dir.path().join("n1"))
        };
        let node = Node::start(config).await.unwrap();
        let (stop, stopping) = watch::channel(false);
        let context = Context::new(node.clone(), Pool::new(), stopping);
        let leases = Arc::new(LeaseService::new(context.clone()));
        let sessions = Arc::new(SessionService::new(context.clone()));
        let stray = Client::new(context.new_account());
        let site = Self {
            node,
            rest: Rest::new(leases, sessions, stray),
            _dir: dir,
            _stop: stop,
        };
        site.until(|machine| machine.level() >= LEVEL_ACCESS).await;
        let rule = Rule {
            principals: PrincipalPattern::Exact(alice()),
            verb: Verb::Acquire,
            names: Some(NamePattern::parse("bank").unwrap()),
        };
        let changes = [
            AccessChange::AddRule(rule),
            AccessChange::SetMode(Mode::Enforced),
        ];
        site.change(changes.to_vec()).await;
        site
    }

    async fn until(&self, holds: impl Fn(&ringfence_core::StateMachine) -> bool) {
        let holds = async {
            while !self.node.read(&holds) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, holds).await.unwrap();
    }

    /// The principal `local` changes rights.
    async fn change(&self, changes: Vec<AccessChange>) {
        let (cluster, based_on) = self.node.read(|machine| {
            let set_at = machine.access().set_at();
            (machine.cluster().unwrap(), set_at)
        });
        let caller = Caller {
            principal: Principal::local(),
            token: None,
            node: 1,
        };
        let command = Command::ChangeAccess(ChangeAccess {
            cluster,
            based_on,
            changes,
        });
        let called = Command::Called(Box::new(Called { caller, command }));
        let outcome = self.node.propose(called).await.unwrap().outcome;
        assert!(
            matches!(outcome, Outcome::AccessChanged { .. }),
            "{outcome:?}"
        );
    }

    /// Asks as alice, with a credential that is valid for so many seconds, perhaps under a key.
    async fn ask(
        &self,
        valid: Option<u64>,
        key: Option<&str>,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        let mut request = Request::post(path)
            .header("host", "node")
            .header("content-type", "application/json")
            .extension(Identified {
                principal: alice(),
                token: None,
                pod: None,
                process: None,
                expires_unix: valid.map(|valid| since_epoch().as_secs() + valid),
            });
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string())));
        let answer = self.rest.answer(request.unwrap());
        let (head, body) = timeout(PATIENCE, answer).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), serde_json::from_slice(&body).unwrap())
    }

    /// A session that has acquired `bank`.
    async fn holder(&self) -> (String, u64) {
        let body = json!({"name": "bank", "ttl": "60s"});
        let (status, held) = self.ask(None, None, "/v1/acquire", body).await;
        assert_eq!(status, 200, "{held}");
        let session = held["session"].as_str().unwrap().to_owned();
        (session, held["token"].as_u64().unwrap())
    }

    async fn open(&self) -> String {
        let (status, opened) = self
            .ask(None, None, "/v1/sessions", json!({"ttl": "60s"}))
            .await;
        assert!(status < 300, "{opened}");
        opened["session"].as_str().unwrap().to_owned()
    }

    async fn release(&self, (session, token): (String, u64)) {
        let body = json!({"session": session, "name": "bank", "token": token});
        let (status, released) = self.ask(None, None, "/v1/release", body).await;
        assert_eq!(status, 200, "{released}");
    }

    /// How many wait for `bank`, and whether it is held.
    fn bank(&self) -> (u64, bool) {
        let name = LeaseName::parse("bank").unwrap();
        self.node.read(|machine| {
            let lease = machine.get(&name).unwrap();
            (lease.waiters.into(), lease.holder.is_some())
        })
    }
}

fn refused(answer: &(u16, Value), outcome: &str) {
    let (status, body) = answer;
    let seen = (*status, body["reason"].as_str(), body["outcome"].as_str());
    assert_eq!(
        seen,
        (401, Some("UNAUTHENTICATED"), Some(outcome)),
        "{body}"
    );
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("the credential has expired"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_the_credential_and_leaves_no_grant_behind() {
    let site = Site::new().await;
    let holder = site.holder().await;
    let session = site.open().await;
    let sessions = |machine: &ringfence_core::StateMachine| machine.summary().sessions;
    let before = site.node.read(sessions);

    let of_session = json!({"name": "bank", "session": session, "wait": "30s"});
    let of_its_own = json!({"name": "bank", "ttl": "60s", "wait": "30s"});
    for body in [of_session, of_its_own] {
        let answer = site.ask(Some(1), None, "/v1/acquire", body).await;
        refused(&answer, "not_done");
        assert_eq!(site.bank(), (0, true), "no session waits");
        assert_eq!(site.node.read(sessions), before);
    }
    site.release(holder).await;
    assert_eq!(site.bank(), (0, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_under_a_key_keeps_its_place_for_another_credential() {
    let site = Site::new().await;
    let holder = site.holder().await;
    let session = site.open().await;
    let body = json!({"name": "bank", "session": session, "wait": "30s"});
    let answer = site
        .ask(Some(1), Some("1"), "/v1/acquire", body.clone())
        .await;
    refused(&answer, "unknown");
    assert_eq!(site.bank(), (1, true));
    let (granted, ()) = tokio::join!(
        site.ask(None, Some("1"), "/v1/acquire", body),
        site.release(holder)
    );
    assert_eq!(granted.0, 200, "{}", granted.1);
}

/// Rights that do not bind end no wait.
#[tokio::test(flavor = "multi_thread")]
async fn while_rights_do_not_bind_a_wait_outlives_its_credential() {
    let site = Site::new().await;
    let holder = site.holder().await;
    site.change(vec![AccessChange::SetMode(Mode::Permissive)])
        .await;
    let body = json!({"name": "bank", "ttl": "60s", "wait": "30s"});
    let ((status, granted), ()) =
        tokio::join!(site.ask(Some(1), None, "/v1/acquire", body), async {
            sleep(Duration::from_millis(1_500)).await;
            site.release(holder).await;
        });
    assert_eq!(status, 200, "{granted}");
}
