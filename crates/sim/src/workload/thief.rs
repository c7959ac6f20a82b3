//! Thieves: a client with a small right of its own that has overheard numbers and secrets of others'
//! sessions, and asks in their name.
//!
//! Where rights bind, nothing of it may have an effect. Where they do not, who knows the secret may
//! do anything, so that a thief only keeps sessions alive there.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use ringfence_client::sim::Network;
use ringfence_core::{Principal, SessionId};
use ringfence_proto::v1::{self, client_frame};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::administrator::Course;
use crate::callers::{Loot, Stolen};
use crate::client::SimClient;
use crate::node;
use crate::random::Random;
use crate::workload::Pace;
use crate::world::World;

/// How long a thief rests between two messages.
const REST: (Duration, Duration) = (Duration::from_millis(60), Duration::from_millis(900));
/// How many messages it sends over one stream at most.
const MESSAGES_MAX: u64 = 12;
/// How many sessions it keeps alive in one message at most.
const BATCH: usize = 8;
/// How long it waits for a connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// A session that its own client has named since then may be kept alive by others that may.
const LIVING: Duration = Duration::from_secs(2);

/// A hostile client.
pub struct Thief {
    client: SimClient,
    world: World,
    loot: Loot,
    principal: Principal,
    course: Course,
}

/// A session of the loot, and whose it is.
struct Target {
    stolen: Stolen,
    own: bool,
    /// A lease that it holds, and the token.
    held: Option<(String, u64)>,
}

impl Thief {
    /// A thief on this machine, which shows the credential of `principal`.
    #[must_use]
    pub fn new(client: &SimClient, loot: &Loot, principal: &Principal, course: Course) -> Self {
        Self {
            world: client.world().clone(),
            client: client.clone(),
            loot: loot.clone(),
            principal: principal.clone(),
            course,
        }
    }

    /// Steals, for ever.
    pub async fn steal(self, pace: Pace) {
        let mut random = self.world.random("thief");
        loop {
            sleep(pace.of(random.time(REST.0..REST.1))).await;
            let nodes = self.world.nodes();
            let Some(node) = random.pick(&nodes) else {
                return;
            };
            self.visit(&mut random, node.index(), pace).await;
        }
    }

    async fn visit(&self, random: &mut Random, node: usize, pace: Pace) {
        let (send, messages) = mpsc::unbounded_channel::<v1::ClientMessage>();
        let outgoing = stream::unfold(messages, |mut messages| async move {
            Some((messages.recv().await?, messages))
        });
        let outgoing = outgoing.boxed();
        let address = node::client_address(node).to_string();
        let connecting = self.client.network().connect(&address, outgoing);
        let Ok(Ok(_incoming)) = timeout(PATIENCE, connecting).await else {
            return;
        };
        let mut frame = 0;
        for _ in 0..1 + random.within(0..MESSAGES_MAX) {
            let bodies = self.bodies(random, node);
            let frames = bodies.into_iter().map(|body| {
                frame += 1;
                v1::ClientFrame {
                    id: frame,
                    body: Some(body),
                    ..Default::default()
                }
            });
            let frames: Vec<_> = frames.collect();
            if !frames.is_empty() && send.send(v1::ClientMessage { frames }).is_err() {
                return;
            }
            sleep(pace.of(random.time(REST.0..REST.1))).await;
        }
    }

    /// What it says next.
    fn bodies(&self, random: &mut Random, node: usize) -> Vec<client_frame::Body> {
        let targets = self.targets(node);
        let mut bodies = vec![self.keep_alive(random, &targets)];
        let others: Vec<&Target> = targets.iter().filter(|target| !target.own).collect();
        if self.course == Course::Bound
            && let Some(target) = random.pick(&others)
        {
            bodies.extend(self.request(random, target));
        }
        bodies
    }

    /// The sessions that it may name: those whose owner every later entry knows.
    fn targets(&self, node: usize) -> Vec<Target> {
        let node = self.world.node(node);
        let Some(handle) = node.handle() else {
            return Vec::new();
        };
        let of = |stolen: Stolen| {
            let id = SessionId::new(stolen.session)?;
            let (owner, held, ended) = node.machine().visit(|| {
                handle.read(|machine| {
                    let held = machine
                        .session(id)
                        .and_then(|view| view.leases.first().cloned());
                    let ended = machine.session_end(id).is_some();
                    (machine.session_owner(id).cloned(), held, ended)
                })
            });
            if ended {
                self.loot.forget(stolen.session);
            }
            let own = owner? == self.principal;
            let held = held.map(|(name, token)| (name.to_string(), token.get()));
            Some(Target { stolen, own, held })
        };
        self.loot.all().into_iter().filter_map(of).collect()
    }

    /// Sessions of others among its own. What may be kept alive lives without it: a session whose
    /// client is gone has to end.
    fn keep_alive(&self, random: &mut Random, targets: &[Target]) -> client_frame::Body {
        let now = self.world.now();
        let mut sessions = Vec::new();
        let mut acknowledged = Vec::new();
        for target in targets {
            if sessions.len() == BATCH {
                break;
            }
            let may = target.own || self.course == Course::Rolling;
            let lives = now.saturating_sub(target.stolen.heard) < LIVING;
            if (may && !lives) || random.chance(150) {
                continue;
            }
            sessions.push(target.stolen.handle());
            if let (false, Course::Bound, Some((_, token))) =
                (target.own, self.course, &target.held)
            {
                acknowledged.push(v1::Acknowledged {
                    session: target.stolen.session,
                    token: *token,
                });
            }
        }
        client_frame::Body::KeepAlive(v1::KeepAliveRequest {
            id: 0,
            sessions,
            acknowledged,
        })
    }

    /// A request in the name of another principal's session: one that it has overheard, or its own.
    fn request(&self, random: &mut Random, target: &Target) -> Option<client_frame::Body> {
        use client_frame::Body;
        let session = Some(target.stolen.handle());
        if random.chance(500)
            && let Some(overheard) = random.pick(&target.stolen.asked)
        {
            return Some(overheard.clone());
        }
        let number = 1 + random.within(0..40);
        Some(match (random.within(0..4), &target.held) {
            (0, Some((name, token))) => Body::Release(v1::ReleaseRequest {
                session,
                number,
                lowest: 1,
                name: name.clone(),
                token: *token,
                close_session: random.chance(300),
            }),
            (1, Some((name, token))) => Body::Transfer(v1::TransferRequest {
                session,
                number,
                lowest: 1,
                name: name.clone(),
                token: *token,
                to_session: 0,
            }),
            (2, _) => Body::Close(v1::CloseRequest { session }),
            _ => Body::Cancel(v1::CancelRequest {
                session,
                number: number + 1,
                lowest: 1,
                target: number,
            }),
        })
    }
}
