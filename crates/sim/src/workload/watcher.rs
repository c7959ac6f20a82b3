//! Watchers: they follow what is granted and what ends, and go on at another node when a stream
//! breaks.

use std::sync::Arc;
use std::time::Duration;

use ringfence_check::history::{WatchCause, WatchEvent, WatchKind, WatchProgress, WatchStarted};
use ringfence_core::{EndCause, Event};
use ringfence_raft::{Known, Node, Position};
use tokio::time::{sleep, timeout};

use crate::machine::Machine;
use crate::net::{Connection, Inlet, Side};
use crate::observe::{Observation, Recorder};
use crate::world::World;

/// The numbers of watchers among clients begin here.
const WATCHERS: u32 = 2_000;
/// How many events a node tells at once.
const BATCH: usize = 16;
/// How often a node says how far it is when nothing happens.
const QUIET: Duration = Duration::from_millis(700);
/// How long a watcher listens to silence.
const SILENCE: Duration = Duration::from_secs(4);
/// How long a watcher rests before it goes to the next node.
const REST: Duration = Duration::from_millis(300);

/// One watch.
pub struct Watcher {
    number: u32,
    world: World,
    machine: Machine,
    recorder: Recorder,
    prefix: String,
    /// Everything up to here was reported; unknown before the beginning and behind a gap.
    told: Option<Place>,
}

/// A position, and the term of the entry there as far as the node that reported it knew.
#[derive(Clone, Copy, Default)]
struct Place {
    at: Position,
    term: Option<u64>,
}

/// What a node tells.
enum Told {
    Events(Vec<(Place, Event)>, Place),
    /// The log never had the position that was offered; it has reached this index.
    Refused(u64),
    /// What was asked for is gone; it goes on from here.
    Compacted(Place),
}

impl Watcher {
    /// A watcher on a machine of its own, from the very beginning.
    #[must_use]
    pub fn new(world: &World, number: u32, prefix: &str, recorder: &Recorder) -> Self {
        Self {
            number,
            machine: world.machine(&format!("w{number}")),
            world: world.clone(),
            recorder: recorder.clone(),
            prefix: prefix.to_owned(),
            told: Some(Place::default()),
        }
    }

    /// Watches for ever.
    pub async fn watch(mut self) {
        let mut random = self.world.random(&format!("watcher {}", self.number));
        loop {
            let nodes = self.world.nodes();
            let Some(node) = random.pick(&nodes) else {
                return;
            };
            if let Some(handle) = node.handle() {
                let net = self.world.net();
                let connected = net.connect(&self.machine, node.machine(), SILENCE).await;
                if let Ok(connection) = connected {
                    // Now and then it leaves on its own.
                    let stays = random.time(SILENCE..20 * SILENCE);
                    timeout(stays, self.follow(connection, handle)).await.ok();
                }
            }
            sleep(REST).await;
        }
    }

    async fn follow(&mut self, connection: Arc<Connection>, node: Node) {
        let from = self.told;
        let (tell, mut hear) = connection.pipe::<Told>(Side::Callee);
        let _detached = connection.spawn(Side::Callee, serve(node, from, tell));
        self.say_started(from.map(|from| from.at));
        loop {
            match timeout(SILENCE, hear.recv()).await {
                Ok(Ok(Some(told))) => self.take(told),
                _ => return,
            }
        }
    }

    fn say_started(&self, after: Option<Position>) {
        self.recorder.see(Observation::WatchStarted(WatchStarted {
            watcher: self.number,
            client: WATCHERS + self.number,
            t: self.recorder.nanos(),
            prefix: self.prefix.clone(),
            after: after.map(|at| (at.index, at.n)),
        }));
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Compacted(head) => {
                self.say_started(None);
                self.progress(head);
            }
            Told::Refused(newest) => self.refused(newest),
            Told::Events(events, upto) => {
                for (place, event) in events {
                    self.event(place, &event);
                }
                if upto.at.n == u32::MAX {
                    self.progress(upto);
                }
            }
        }
    }

    /// Begins with the present at the next node.
    fn refused(&mut self, newest: u64) {
        let Some(Place { at, .. }) = self.told.take() else {
            return;
        };
        self.recorder.see(Observation::WatchRefused {
            watcher: self.number,
            after: (at.index, at.n),
            newest,
        });
    }

    fn event(&mut self, place: Place, event: &Event) {
        let at = place.at;
        let (name, token, session, kind) = match event {
            Event::Granted(granted) => {
                let kind = WatchKind::Granted;
                (&granted.name, granted.token, granted.session, kind)
            }
            Event::Ended {
                name,
                token,
                session,
                cause,
                ..
            } => (name, *token, *session, WatchKind::Ended(cause_of(cause))),
            _ => return,
        };
        if !name.as_str().starts_with(&self.prefix) {
            return;
        }
        self.told = Some(place);
        self.recorder.see(Observation::WatchEvent(WatchEvent {
            watcher: self.number,
            t: self.recorder.nanos(),
            index: at.index,
            n: at.n,
            kind,
            lease: name.to_string(),
            token: token.get(),
            session: Some(session.get()),
            holder: None,
        }));
    }

    fn progress(&mut self, Place { at, term }: Place) {
        let index = at.index;
        let at = Position::end_of(index);
        if self.told.is_some_and(|told| told.at >= at) {
            return;
        }
        self.told = Some(Place { at, term });
        self.recorder.see(Observation::WatchProgress(WatchProgress {
            watcher: self.number,
            t: self.recorder.nanos(),
            index,
        }));
    }
}

/// The node's end: events behind `from`, as they come.
async fn serve(node: Node, from: Option<Place>, tell: Inlet<Told>) {
    if let Some(Place { at, term }) = from {
        match node.known(at, term).await {
            Ok(Known::Yes) => {}
            Ok(Known::No { newest }) => {
                let _heard = tell.send(Told::Refused(newest)).await.is_ok();
                return;
            }
            Err(_) => return,
        }
    }
    let mut feed = node.events();
    let mut at = from.map_or_else(|| feed.head(), |from| from.at);
    loop {
        let told = match feed.since(at, BATCH) {
            Ok(batch) => {
                at = at.max(batch.upto);
                let term = |at: Position| feed.term_of(at.index);
                let place = |at| Place { at, term: term(at) };
                let events = batch.events.into_iter();
                let events = events.map(|(at, event)| (place(at), event)).collect();
                Told::Events(events, place(batch.upto))
            }
            Err(_) => {
                at = feed.head();
                let term = feed.term_of(at.index);
                Told::Compacted(Place { at, term })
            }
        };
        let more = matches!(&told, Told::Events(events, _) if events.len() == BATCH);
        if tell.send(told).await.is_err() {
            return;
        }
        if !more {
            timeout(QUIET, feed.changed()).await.ok();
        }
    }
}

fn cause_of(cause: &EndCause) -> WatchCause {
    match cause {
        EndCause::Released => WatchCause::Released,
        EndCause::Expired => WatchCause::Expired,
        EndCause::Closed => WatchCause::Closed,
        EndCause::Revoked { .. } => WatchCause::Revoked,
        EndCause::Evicted { .. } => WatchCause::Evicted,
        EndCause::Transferred { .. } => WatchCause::Transferred,
        EndCause::PodEnded { .. } => WatchCause::PodEnded,
    }
}
