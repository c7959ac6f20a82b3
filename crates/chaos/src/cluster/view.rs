//! What each node says of itself, asked within its own network, where no fault is in the way.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::HTTP_PORT;
use crate::clock::now_ns;

/// Between two questions.
const EVERY: Duration = Duration::from_millis(120);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_millis(400);
/// What was said longer ago than this says nothing about now.
const FRESH_NS: u64 = 900_000_000;

/// What a node said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// When, in ns; 0 if it never did.
    pub(crate) at: u64,
    pub(crate) term: u64,
    pub(crate) leads: bool,
    /// Whether it knows a leader.
    pub(crate) led: bool,
    pub(crate) applied: u64,
}

impl View {
    /// Whether it is of now.
    pub(crate) fn is_fresh(&self) -> bool {
        self.at != 0 && now_ns().saturating_sub(self.at) < FRESH_NS
    }
}

/// The newest view of each node.
#[derive(Debug)]
pub(crate) struct Views {
    views: Arc<Mutex<Vec<View>>>,
    stop: Arc<AtomicBool>,
}

impl Views {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            views: Arc::new(Mutex::new(vec![View::default(); nodes])),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// Asks the node at `place` again and again, until these views are dropped. To be called
    /// within the node's network, where the thread that it starts then lives.
    pub(crate) fn asking(&self, place: usize, address: Ipv4Addr) -> impl FnOnce() + Send + use<> {
        let (views, stop) = (Arc::clone(&self.views), Arc::clone(&self.stop));
        move || {
            let thread = std::thread::Builder::new().name("view".to_owned());
            let started = thread.spawn(move || {
                let (quiet, pause) = std::sync::mpsc::channel::<()>();
                while !stop.load(Ordering::Relaxed) {
                    if let Some(view) = ask(address) {
                        views.lock().unwrap_or_else(PoisonError::into_inner)[place] = view;
                    }
                    // No thread sends: this is a pause.
                    pause.recv_timeout(EVERY).ok();
                }
                drop(quiet);
            });
            drop(started);
        }
    }

    pub(crate) fn all(&self) -> Vec<View> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.clone()
    }

    /// The place of the node that leads, and its term: of several that believe so the newest.
    pub(crate) fn leader(&self) -> Option<(usize, u64)> {
        let views = self.all();
        let leading = views.iter().enumerate();
        let leading = leading.filter(|(_, view)| view.leads && view.is_fresh());
        let newest = leading.max_by_key(|(_, view)| view.term)?;
        Some((newest.0, newest.1.term))
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn ask(address: Ipv4Addr) -> Option<View> {
    // Before the question: what is answered was so later.
    let at = now_ns();
    let to = SocketAddr::from((address, HTTP_PORT));
    let mut stream = TcpStream::connect_timeout(&to, LIMIT).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    read(&answer, at)
}

fn read(metrics: &str, at: u64) -> Option<View> {
    let figure = |name: &str| {
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok()
    };
    Some(View {
        at,
        term: figure("ringfence_raft_term")?,
        leads: figure("ringfence_raft_is_leader")? == 1,
        led: figure("ringfence_raft_leader_id")? != 0,
        applied: figure("ringfence_raft_applied_index")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_others() {
        let metrics = "HTTP/1.1 200 OK\r\n\r\n# HELP ringfence_raft_term The newest term.\n\
                       ringfence_raft_term 7\nringfence_raft_terms_led_total 2\n\
                       ringfence_raft_is_leader 1\nringfence_raft_leader_id 3\n\
                       ringfence_raft_applied_index 4711\n";
        let view = read(metrics, 5).expect("all are there");
        let expected = View {
            at: 5,
            term: 7,
            leads: true,
            led: true,
            applied: 4711,
        };
        assert_eq!(view, expected);
    }

    #[test]
    fn an_answer_without_the_figures_is_none() {
        assert_eq!(read("HTTP/1.1 503 Service Unavailable\r\n\r\n", 5), None);
    }
}
