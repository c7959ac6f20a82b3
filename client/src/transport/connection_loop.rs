//! Keeps one good stream open, for ever: connects, follows the leader, notices dead connections,
//! hands replies to their callers.

use std::time::Duration;

use ringfence_core::ClusterId;
use ringfence_proto::v1::{ServerMessage, server_frame};
use tonic::Status;

use crate::clock::Moment;
use crate::transport::connection::{self, OpenStream};
use crate::transport::endpoint::Endpoint;
use crate::transport::race::race;
use crate::transport::retry;
use crate::transport::{Transport, cluster_time_of};

/// How long the leader has to answer when another member names it; that member serves as well.
const LEADER_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
/// A member that only refuses for this long may be cut off from the rest: try another one.
const REFUSING_MAX: Duration = Duration::from_secs(1);
/// After so many rounds in which every member refused who this client is, `connect` reports it. In one
/// round a member may lag that does not know a new token yet.
const REFUSED_ROUNDS: u32 = 4;
/// How often a stream is looked at, at least this many times within the time it may be silent.
const SILENCE_CHECKS: u32 = 4;
/// A stream that lived for less than this was of little use, whatever it answered: what is asked on
/// every new stream may be what breaks it.
const USEFUL_STREAM_MIN: Duration = Duration::from_millis(500);

/// Runs until the client's thread ends.
pub(crate) async fn run(transport: &Transport) {
    // Streams in a row that were of little use. The first is followed by another at once, since
    // leaders die; later ones after pauses, or a server that breaks every stream, or two that name
    // each other as the leader, would be connected to as fast as they can take it.
    let mut short_streams = 0_u32;
    loop {
        let opened = establish(transport).await;
        let since = transport.now();
        let endpoint = opened.endpoint.clone();
        transport.link.connected(
            endpoint.clone(),
            opened.channel.clone(),
            opened.outbound.clone(),
        );
        tracing::debug!(%endpoint, "connected");
        let end = StreamMonitor::new(transport, &endpoint).run(opened).await;
        transport
            .link
            .disconnected(&format!("{endpoint}: {}", end.why));
        tracing::debug!(%endpoint, why = end.why, "disconnected");
        let now = transport.now();
        if end.failed {
            transport.endpoints().failed(&endpoint, now);
        }
        let useful = now.saturating_since(since) >= USEFUL_STREAM_MIN;
        short_streams = if useful {
            0
        } else {
            short_streams.saturating_add(1)
        };
        if let Some(tries) = short_streams.checked_sub(2) {
            let until = now + retry::pause(tries, None);
            transport.options.clock.sleep_until(until).await;
        }
    }
}

/// Connects to a member, the leader if it can be reached.
async fn establish(transport: &Transport) -> OpenStream {
    let credential = &transport.options.credential;
    let (mut tries, mut refused_rounds) = (0, 0);
    let mut adopt_other_cluster = false;
    loop {
        let candidates = transport.endpoints().candidates(transport.now());
        let refused_before = credential.refusals();
        let race = race(candidates, &transport.options, tries).await;
        let refused = credential.refusals() - refused_before;
        refused_rounds = match race.winner.is_none() && refused > 0 {
            true if refused >= race.failed.len() as u64 => refused_rounds + 1,
            _ => 0,
        };
        credential.set_refused_by_all(refused_rounds >= REFUSED_ROUNDS);
        let mut errors = Vec::new();
        for (endpoint, why) in race.failed {
            transport.endpoints().failed(&endpoint, transport.now());
            errors.push(format!("{endpoint}: {why}"));
        }
        if let Some(opened) = race.winner {
            match accept(transport, &opened, adopt_other_cluster) {
                Ok(()) => return prefer_leader(transport, opened).await,
                Err(why) => {
                    transport
                        .endpoints()
                        .failed(&opened.endpoint, transport.now());
                    // Adopted if a second round finds no node of the cluster we knew.
                    // One round may hit a single misconfigured or restored node while the others
                    // are briefly unreachable. Adopting its cluster would lose every session.
                    adopt_other_cluster = tries > 0;
                    errors.push(format!("{}: {why}", opened.endpoint));
                }
            }
        }
        transport.link.unreachable(&errors.join("; "));
        let until = transport.now() + retry::pause(tries, None);
        transport.options.clock.sleep_until(until).await;
        tries = tries.saturating_add(1);
    }
}

/// Whether to talk to the cluster that greeted.
fn accept(
    transport: &Transport,
    opened: &OpenStream,
    adopt_other_cluster: bool,
) -> Result<(), &'static str> {
    let greeting = &opened.greeting;
    let cluster =
        ClusterId::from_slice(&greeting.cluster_id).ok_or("it belongs to no cluster yet")?;
    let idle = transport.is_idle();
    if !transport.is_ours(cluster) && !idle && !adopt_other_cluster {
        return Err("it belongs to another cluster than before");
    }
    transport.belong_to(cluster, greeting.cluster_time_ms);
    transport.endpoints().greeted(&opened.endpoint);
    Ok(())
}

/// Goes to the leader that the greeting names, if it answers quickly.
async fn prefer_leader(transport: &Transport, opened: OpenStream) -> OpenStream {
    let named = &opened.greeting.leader_client_address;
    let hint = transport
        .endpoints()
        .hint(named, Some(&opened.endpoint), transport.now());
    let Some(leader) = hint else { return opened };
    match connection::open(&leader, &transport.options, LEADER_CONNECT_TIMEOUT).await {
        Ok(direct) if direct.greeting.cluster_id == opened.greeting.cluster_id => {
            transport.saw_cluster_time(direct.greeting.cluster_time_ms);
            transport.endpoints().greeted(&leader);
            direct
        }
        Ok(_) | Err(_) => {
            // A leader that has just died is named for seconds. Marking the address keeps every
            // hint of that time from costing another detour.
            transport.endpoints().failed(&leader, transport.now());
            opened
        }
    }
}

/// Why a stream is over.
struct StreamEnd {
    why: String,
    /// Whether the address is to be avoided for a while.
    failed: bool,
}

struct StreamMonitor<'a> {
    transport: &'a Transport,
    endpoint: &'a Endpoint,
    last_received: Moment,
    refusing_since: Option<Moment>,
}

impl<'a> StreamMonitor<'a> {
    fn new(transport: &'a Transport, endpoint: &'a Endpoint) -> Self {
        Self {
            transport,
            endpoint,
            last_received: transport.now(),
            refusing_since: None,
        }
    }

    async fn run(mut self, mut opened: OpenStream) -> StreamEnd {
        let mut check_silence = self.next_check();
        // The stream was opened with the token before this look at it, or with this one.
        let mut shown = self.transport.options.credential.shown();
        loop {
            let end = crate::sync::select! {
                message = opened.inbound.message() => self.on_message(message),
                () = self.transport.options.clock.sleep_until(check_silence) => {
                    check_silence = self.next_check();
                    self.check_silence()
                }
                () = shown.replaced() => Some(StreamEnd {
                    why: "there is another token to show".into(),
                    failed: false,
                }),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Hands the replies of a message out.
    fn on_message(&mut self, message: Result<Option<ServerMessage>, Status>) -> Option<StreamEnd> {
        let message = match message {
            Ok(Some(message)) => message,
            Ok(None) => {
                return Some(StreamEnd {
                    why: "the server ended it".into(),
                    failed: true,
                });
            }
            Err(status) => {
                return Some(StreamEnd {
                    why: connection::describe(&status),
                    failed: true,
                });
            }
        };
        let now = self.transport.now();
        self.last_received = now;
        let mut replies = message.frames;
        let newest = replies
            .iter()
            .filter_map(|frame| cluster_time_of(frame.body.as_ref()?))
            .max();
        if let Some(time) = newest {
            self.transport.saw_cluster_time(time);
        }
        let mut leaving = None;
        replies.retain(|frame| match &frame.body {
            Some(server_frame::Body::GoingAway(notice)) => {
                leaving = Some(notice.leader_client_address.clone());
                false
            }
            _ => frame.id != 0,
        });
        // Replies are handed out before a going-away notice is obeyed: the server answers what it
        // has done, and those calls need no second try.
        let count = replies.len();
        let hints = self.transport.link.answer(replies);
        if let Some(leader) = leaving {
            self.transport
                .endpoints()
                .hint(&leader, Some(self.endpoint), now);
            return Some(StreamEnd {
                why: "the server is stopping".into(),
                failed: true,
            });
        }
        // A reply that is no retry hint shows that this member can serve; a minority that is cut
        // off refuses everything.
        if hints.len() < count {
            self.refusing_since = None;
        }
        let mut endpoints = self.transport.endpoints();
        for leader in hints.iter().filter_map(|hint| hint.leader.as_deref()) {
            if let Some(leader) = endpoints.hint(leader, Some(self.endpoint), now) {
                return Some(StreamEnd {
                    why: format!("the leader is {leader}"),
                    failed: false,
                });
            }
        }
        drop(endpoints);
        if !hints.is_empty() {
            let since = *self.refusing_since.get_or_insert(now);
            if now.saturating_since(since) > REFUSING_MAX {
                return Some(StreamEnd {
                    why: "it only refuses".into(),
                    failed: true,
                });
            }
        }
        None
    }

    /// Looks whether the connection is dead: something was asked, and nothing at all was heard
    /// since.
    fn check_silence(&self) -> Option<StreamEnd> {
        let asked = self.transport.link.oldest_unanswered()?;
        let silent = self
            .transport
            .now()
            .saturating_since(asked.max(self.last_received));
        let why = format!("no reply for {silent:?}");
        (silent >= self.silence_max()).then_some(StreamEnd { why, failed: true })
    }

    fn next_check(&self) -> Moment {
        let now = self.transport.now();
        let max = self.silence_max();
        let next = now + max / SILENCE_CHECKS;
        // What is unanswered already is looked at when it is due, not a quarter later.
        match self.transport.link.oldest_unanswered() {
            Some(asked) => next.min(now.max(asked.max(self.last_received) + max)),
            None => next,
        }
    }

    /// How long the server may leave what was asked without any reply. A quarter of the shortest
    /// TTL leaves the time to ask another member before the window ends.
    fn silence_max(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(200);
        let shortest = self.transport.shortest_ttl().unwrap_or(Duration::MAX);
        self.transport
            .options
            .silence_max()
            .min(shortest / 4)
            .max(LEAST)
    }
}
