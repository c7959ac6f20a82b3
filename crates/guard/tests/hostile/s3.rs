//! S3 behind a proxy that disturbs each request of a guarded write: at each in turn, and behind one
//! that cuts connections at random bytes.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ringfence_guard::conformance::{Disturbed, Fault, Held, Hit, HostileStore, Written};
use ringfence_guard::s3::{Change, S3Error, S3Guard, S3Store};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use rustix::net::sockopt::set_socket_linger;
use tokio::io::AsyncReadExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::postgres::nothing_outside;
use crate::servers::Disk;
use crate::servers::proxy::Outside;
use crate::servers::s3::{S3, builder};
use crate::soak::{Came, Chance, Tally, writes};
use crate::{run_to_end, withstands};

const HITS: &[Hit] = &[
    Hit::TimesOut,
    Hit::ResetBefore,
    Hit::ResetInside,
    Hit::ResetBehind,
    Hit::Restart,
];

struct Part {
    server: Arc<Mutex<S3>>,
    name: LeaseName,
}

fn written(done: Result<(), S3Error>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(S3Error::Refused(refused)) => Written::Refused(refused),
        Err(error @ S3Error::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

fn outside(server: &Arc<Mutex<S3>>, hit: Hit) -> Outside {
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
    fn guard(&self, store: &S3Store) -> S3Guard {
        S3Guard::new(store, self.name.clone(), self.name.as_str()).unwrap()
    }
}

/// Both data in one body.
fn change(datum: u64) -> Change {
    Change::put(format!("{datum} {datum}"))
}

impl HostileStore for Part {
    fn hits(&self) -> Vec<Hit> {
        HITS.to_vec()
    }

    async fn write(&self, fence: &Fence, datum: u64, fault: Option<Fault>) -> Disturbed {
        let (store, hand) = self.server.lock().await.store_through().await;
        if let Some(fault) = fault {
            hand.arm(fault, outside(&self.server, fault.hit));
        }
        let done = self.guard(&store).admit(fence, change(datum)).await;
        let reached = hand.disarm();
        drop(store);
        hand.ended().await;
        Disturbed {
            written: written(done.map(drop)),
            reached,
        }
    }

    async fn look(&self) -> Held {
        let store = self.server.lock().await.store();
        let guard = self.guard(&store);
        let body = guard.read().await.unwrap();
        let mut data = body.iter().flat_map(|body| {
            let body = str::from_utf8(body).unwrap();
            body.split(' ').map(|datum| datum.parse().unwrap())
        });
        Held {
            mark: guard.mark().await.unwrap(),
            first: data.next(),
            second: data.next(),
        }
    }
}

#[test]
fn an_s3_write_that_fails_at_any_request_has_committed_nothing() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        let server = Arc::new(Mutex::new(server));
        let parts = async |name: &LeaseName| Part {
            server: Arc::clone(&server),
            name: name.clone(),
        };
        let report = withstands(parts, HITS).await;
        assert!(
            report.committed > 0,
            "no lost answer was settled: {report:?}"
        );
    });
}

/// Writers at a time, each with a lease, an object and a proxy of its own.
const WORKERS: u64 = 8;

/// How many bytes a connection carries at most, in one direction, before it is cut: some writes
/// with their answers.
const BYTES: u64 = 6_000;

/// A port at which each connection to the server is reset once it has carried so many bytes, in a
/// direction that is drawn like their number.
async fn cutting(server: u16, mut chance: Chance) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await;
            let server = server.unwrap();
            for end in [&client, &server] {
                end.set_nodelay(true).unwrap();
                set_socket_linger(end, Some(Duration::ZERO)).unwrap();
            }
            let bytes = chance.below(BYTES);
            let limits = match chance.below(2) {
                0 => [bytes, u64::MAX],
                _ => [u64::MAX, bytes],
            };
            tokio::spawn(async move {
                let (up, to_client) = client.into_split();
                let (down, to_server) = server.into_split();
                let up = carry(up, to_server, limits[0]);
                let down = carry(down, to_client, limits[1]);
                // The one that is cut takes both ends with it.
                tokio::select! { () = up => {}, () = down => {} }
            });
        }
    });
    port
}

async fn carry(from: OwnedReadHalf, mut to: OwnedWriteHalf, limit: u64) {
    let copied = tokio::io::copy(&mut from.take(limit), &mut to).await;
    copied.ok();
}

struct Worker {
    /// Behind the proxy.
    guard: S3Guard,
    calm: S3Guard,
    chance: Chance,
    token: u64,
}

impl Worker {
    /// One write through a connection that may be cut, and a look at what the store holds then.
    async fn write(&mut self, id: u64, tally: &mut Tally, denied: &mut HashSet<u64>) {
        let stale = self.chance.below(2) == 0;
        let new = !stale && self.chance.below(20) == 0;
        let shown = match (stale, new) {
            (true, _) => self.token - 1,
            (_, true) => self.token + 1,
            _ => self.token,
        };
        let token = FencingToken::new(shown).unwrap();
        let fence = Fence::new(self.guard.name().clone(), token);
        let done = self.guard.admit(&fence, change(id)).await;
        let came = match written(done.map(drop)) {
            Written::Committed => Came::Committed,
            Written::Refused(_) => Came::Refused,
            Written::Failed(_) => Came::Failed,
            Written::Unknown(_) => Came::Unknown,
        };
        if matches!(came, Came::Refused | Came::Failed) {
            denied.insert(id);
        }
        let body = self.calm.read().await.unwrap().unwrap_or_default();
        let text = str::from_utf8(&body).unwrap();
        let ids: Vec<u64> = text
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        tally.judge(
            stale,
            came,
            ids.iter().filter(|found| **found == id).count(),
            2,
        );
        // Nor does one arrive later that was said not to be written.
        assert!(
            ids.iter().all(|id| !denied.contains(id)),
            "{ids:?} came late"
        );
        let mark = self.calm.mark().await.unwrap().unwrap().get();
        assert!(
            mark >= self.token,
            "the mark fell from {} to {mark}",
            self.token
        );
        self.token = mark;
    }
}

#[test]
fn hostile_s3_writes_commit_nothing_stale_and_nothing_torn() {
    run_to_end(async {
        let Some(server) = S3::start(Disk::Memory) else {
            return;
        };
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let name = LeaseName::parse(&format!("soak/{number}")).unwrap();
            let proxy = cutting(server.port(), Chance(number)).await;
            let [through, calm] = [proxy, server.port()].map(|port| {
                let store = S3Store::new(builder(port)).unwrap();
                S3Guard::new(&store, name.clone(), name.as_str()).unwrap()
            });
            let mut worker = Worker {
                guard: through,
                calm,
                chance: Chance(number),
                token: 2,
            };
            let floor = FencingToken::new(2).unwrap();
            worker.calm.advance_to(floor).await.unwrap();
            workers.push(tokio::spawn(async move {
                let (mut tally, mut denied) = (Tally::default(), HashSet::new());
                for id in 0..writes().div_ceil(WORKERS) {
                    worker.write(id, &mut tally, &mut denied).await;
                }
                tally
            }));
        }
        let mut sum = Tally::default();
        for worker in workers {
            sum.add(&worker.await.unwrap());
        }
        sum.settle("S3");
    });
}
