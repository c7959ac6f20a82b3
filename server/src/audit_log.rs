//! `serve --audit-log`: the acts of operators as this node applies them, and samples of what it
//! refuses, one JSON object a line.
//!
//! The acts come from the replicated state, which keeps 1,024: they stand in the log before
//! they stand here, so a node that was away, or has installed a snapshot, writes them later. What it
//! may have missed by then it says.
//!
//! Each act is written once, and a second time, with the same index, if the node ends between writing
//! it and noting that: the file's end says where to go on, and where it cannot, [`position`] does.

mod line;
mod out;
mod position;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_core::Frozen;
use ringfence_raft::Node;
use ringfence_services::Context;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use self::line::Line;
use self::out::{Out, last_written};
use self::position::{Bookmark, Position};
use crate::acts;

/// How often the state is looked at for new acts; a look is a look-up.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often refusals are written: one line for each principal and verb in so long at most.
const REFUSALS_EVERY: Duration = Duration::from_secs(10);
/// The least time between two lines of the node's log about a file that cannot be written.
const TROUBLE_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

impl AuditTarget {
    /// What `--audit-log` names.
    pub(crate) fn of(path: PathBuf) -> Self {
        match path.as_os_str() == "-" {
            true => Self::Stdout,
            false => Self::File(path),
        }
    }
}

/// An open audit log.
pub(crate) struct AuditLog {
    path: Option<PathBuf>,
    /// `None` while a write is under way.
    out: Option<Out>,
    bookmark: Bookmark,
    /// The last act that was written.
    written: Position,
    /// For a file: it was renamed perhaps.
    hangup: Option<Signal>,
    node: Node,
    context: Context,
}

impl AuditLog {
    /// Opens it for this node, which has this data directory; a file is opened again at each hangup.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn open(
        target: &AuditTarget,
        data_dir: &Path,
        node: &Node,
        context: &Context,
        hangup: Signal,
    ) -> io::Result<Self> {
        let path = match target {
            AuditTarget::Stdout => None,
            AuditTarget::File(path) => Some(path.clone()),
        };
        let bookmark = Bookmark::new(data_dir, path.as_deref());
        let (out, at_end) = match &path {
            None => (Out::stdout()?, None),
            Some(path) => (Out::open(path)?, last_written(path)?),
        };
        let hangup = path.is_some().then_some(hangup);
        context.metrics().refusals().want();
        Ok(Self {
            path,
            out: Some(out),
            // What stands in the file counts: its end may be lost, with the machine's power.
            written: at_end.or_else(|| bookmark.read()).unwrap_or_default(),
            bookmark,
            hangup,
            node: node.clone(),
            context: context.clone(),
        })
    }

    /// Writes until the node stops.
    pub(crate) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut looks = interval(LOOK_EVERY);
        let mut refusals = interval(REFUSALS_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        refusals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Counts that could not be written are lost, and the next lines say how many.
        let mut unwritten = 0_u64;
        let mut trouble: Option<tokio::time::Interval> = None;
        loop {
            let (mut stop, mut hung_up_now) = (false, false);
            let with_refusals = tokio::select! {
                _ = looks.tick() => false,
                _ = refusals.tick() => true,
                () = hung_up(&mut self.hangup) => {
                    hung_up_now = true;
                    false
                }
                _ = stopping.wait_for(|stopping| *stopping) => {
                    stop = true;
                    true
                }
            };
            if hung_up_now {
                self.reopen().await;
            }
            let mut lines = self.acts();
            if with_refusals {
                let counts = self.context.metrics().refusals().take();
                let counted = std::mem::take(&mut unwritten);
                lines.extend(Line::refused(&counts, counted, self.own_id()));
            }
            if !lines.is_empty() {
                let (arrived, done) = self.write(&lines).await;
                let newest = lines[..arrived].iter().rev();
                if let Some(act) = newest.clone().find_map(|line| line.act.clone()) {
                    self.written = act;
                }
                unwritten += lines[arrived..]
                    .iter()
                    .map(|line| line.refusals)
                    .sum::<u64>();
                let is_due = |trouble: &mut Option<tokio::time::Interval>| match trouble {
                    None => true,
                    Some(pause) => futures_util::FutureExt::now_or_never(pause.tick()).is_some(),
                };
                if let Err(error) = done
                    && is_due(&mut trouble)
                {
                    warn!(%error, "the audit log cannot be written; acts are written later");
                    let mut pause = interval(TROUBLE_LOGGED_EVERY);
                    pause.reset();
                    trouble = Some(pause);
                }
            }
            if stop {
                return;
            }
        }
    }

    fn own_id(&self) -> u64 {
        self.node.status().node_id.unwrap_or_default()
    }

    /// Lines for the acts that were not written yet.
    fn acts(&self) -> Vec<Line> {
        let after = |state: &Frozen| self.written.after(&acts::text_of(state.cluster()));
        let has_new = |state: &Frozen| state.audit_after(after(state)).next().is_some();
        if !self.node.read(|machine| has_new(machine)) {
            return Vec::new();
        }
        let state = self.node.frozen();
        let after = after(&state);
        let (cluster, node) = (state.cluster(), self.own_id());
        let lacks = state.audit_may_lack_after(after);
        let before = state.audit_complete_from().filter(|_| lacks);
        let missed = before.map(|before| Line::missed(cluster, after, before, node));
        let new = state.audit_after(after);
        let new = new.map(|record| Line::act(record, cluster, node));
        missed.into_iter().chain(new).collect()
    }

    /// The file that is there now; the old one stays open if there is none.
    async fn reopen(&mut self) {
        let Some(path) = self.path.clone() else {
            return;
        };
        // On a thread where a disk may hold it up.
        let there = path.clone();
        let opened = tokio::task::spawn_blocking(move || Out::open(&there)).await;
        match opened.map_err(io::Error::other).flatten() {
            Ok(out) => {
                let old = self.out.replace(out);
                // What is left of the old file may have to be written before it is closed.
                tokio::task::spawn_blocking(move || drop(old));
                info!(file = %path.display(), "the audit log was opened again");
            }
            Err(error) => warn!(
                file = %path.display(),
                %error,
                "the audit log cannot be opened again; the old file is still written"
            ),
        }
    }

    /// Writes lines on a thread where a disk or a reader may hold them up; how many have arrived.
    async fn write(&mut self, lines: &[Line]) -> (usize, io::Result<()>) {
        let Some(mut out) = self.out.take() else {
            return (0, Err(io::Error::other("a write was given up")));
        };
        let texts: Vec<String> = lines.iter().map(Line::text).collect();
        let acts: Vec<Option<Position>> = lines.iter().map(|line| line.act.clone()).collect();
        let bookmark = self.bookmark.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let (arrived, done) = out.write(&texts);
            let newest = acts.into_iter().take(arrived).flatten().next_back();
            let noted = newest.map_or(Ok(()), |act| bookmark.write(&act));
            (out, arrived, done.and(noted))
        });
        match writing.await {
            Ok((out, arrived, done)) => {
                self.out = Some(out);
                (arrived, done)
            }
            Err(error) => (0, Err(io::Error::other(error))),
        }
    }
}

/// Resolves at the next SIGHUP, if it is listened to.
async fn hung_up(hangup: &mut Option<Signal>) {
    let received = match hangup {
        Some(hangup) => hangup.recv().await,
        None => None,
    };
    if received.is_none() {
        std::future::pending::<()>().await;
    }
}
