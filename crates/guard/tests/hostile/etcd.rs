//! etcd behind a proxy that disturbs each call of a guarded write.

use std::sync::Arc;

use ringfence_guard::conformance::{Disturbed, Fault, Held, Hit, HostileStore, Written};
use ringfence_guard::etcd::{EtcdClient, EtcdError, EtcdGuard, Txn};
use ringfence_guard::{Fence, LeaseName};
use tokio::sync::Mutex;

use crate::postgres::nothing_outside;
use crate::servers::Disk;
use crate::servers::etcd::Etcd;
use crate::servers::proxy::Outside;
use crate::{meets, run_to_end};

/// There is no cancel request in etcd.
const HITS: &[Hit] = &[
    Hit::TimesOut,
    Hit::ResetBefore,
    Hit::ResetInside,
    Hit::ResetBehind,
    Hit::Restart,
];

struct Part {
    server: Arc<Mutex<Etcd>>,
    guard: EtcdGuard,
}

fn written(done: Result<(), EtcdError>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(EtcdError::Refused(refused)) => Written::Refused(refused),
        Err(error @ EtcdError::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

fn outside(server: &Arc<Mutex<Etcd>>, hit: Hit) -> Outside {
    if hit != Hit::Restart {
        return nothing_outside();
    }
    let server = Arc::clone(server);
    Arc::new(move || {
        let server = Arc::clone(&server);
        Box::pin(async move {
            let mut server = server.lock().await;
            tokio::task::block_in_place(|| server.crash());
        })
    })
}

impl Part {
    fn key(&self, half: &str) -> String {
        format!("{half}/{}", self.guard.name())
    }

    async fn datum(&self, etcd: &mut EtcdClient, half: &str) -> Option<u64> {
        let value = etcd.get(self.key(half)).await.unwrap();
        value.map(|value| str::from_utf8(&value).unwrap().parse().unwrap())
    }
}

impl HostileStore for Part {
    fn hits(&self) -> Vec<Hit> {
        HITS.to_vec()
    }

    async fn write(&self, fence: &Fence, datum: u64, fault: Option<Fault>) -> Disturbed {
        let (mut etcd, hand) = self.server.lock().await.client_through().await;
        if let Some(fault) = fault {
            // The handshake is over then.
            etcd.get("nothing").await.unwrap();
            hand.arm(fault, outside(&self.server, fault.hit));
        }
        let txn = Txn::new()
            .put(self.key("first"), datum.to_string())
            .put(self.key("second"), datum.to_string());
        let done = self.guard.admit(&mut etcd, fence, txn).await;
        let reached = hand.disarm();
        drop(etcd);
        hand.ended().await;
        Disturbed {
            written: written(done.map(drop)),
            reached,
        }
    }

    async fn look(&self) -> Held {
        let mut etcd = self.server.lock().await.client();
        Held {
            mark: self.guard.mark(&mut etcd).await.unwrap(),
            first: self.datum(&mut etcd, "first").await,
            second: self.datum(&mut etcd, "second").await,
        }
    }
}

#[test]
fn an_etcd_write_that_fails_at_any_call_has_committed_nothing() {
    run_to_end(async {
        let Some(server) = Etcd::start(Disk::Memory, &[]) else {
            return;
        };
        let server = Arc::new(Mutex::new(server));
        let parts = async |name: &LeaseName| Part {
            server: Arc::clone(&server),
            guard: EtcdGuard::new(name.clone()),
        };
        meets(parts, HITS).await;
    });
}
