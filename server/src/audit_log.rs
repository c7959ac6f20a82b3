//! `serve --audit-log`: the acts of operators as this node applies them, and samples of what it
//! refuses, one JSON object a line.
//!
//! The acts come from the replicated state, which keeps the newest 1,024: they stand in the log before
//! they stand here, so a node that was away, or has installed a snapshot, writes them later. What it
//! has missed by then it says. An act may be written twice, with the same index; after a restart the
//! file's end says where to go on.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_access::now_unix;
use ringfence_core::{AUDIT_RECORDS_MAX, AuditRecord, ClusterId, Frozen};
use ringfence_raft::Node;
use ringfence_services::{Context, RefusalCounts};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// How often the state is looked at for new acts; a look is a look-up.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often refusals are written: one line for each principal and verb in so long at most.
const REFUSALS_EVERY: Duration = Duration::from_secs(10);
/// The least time between two lines of the node's log about a file that cannot be written.
const TROUBLE_LOGGED_EVERY: Duration = Duration::from_secs(60);
/// How much of a file's end is searched for the last act when the node starts.
const TAIL_BYTES_MAX: u64 = 4 << 20;

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
    written: Written,
    /// For a file: it was renamed perhaps.
    hangup: Option<Signal>,
    node: Node,
    context: Context,
}

enum Out {
    Stdout,
    File {
        file: File,
        /// A write has failed, perhaps within a line.
        torn: bool,
    },
}

/// The last act that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Written {
    /// As text.
    cluster: String,
    index: u64,
}

impl AuditLog {
    /// Opens it for this node.
    ///
    /// # Errors
    /// If the file cannot be opened, or signals cannot be received.
    pub(crate) fn open(target: &AuditTarget, node: &Node, context: &Context) -> io::Result<Self> {
        let (path, out, written) = match target {
            AuditTarget::Stdout => (None, Out::Stdout, Written::default()),
            AuditTarget::File(path) => {
                let (file, torn) = open(path)?;
                (
                    Some(path.clone()),
                    Out::File { file, torn },
                    last_written(path)?,
                )
            }
        };
        let hangup = path.is_some().then(|| signal(SignalKind::hangup()));
        let hangup = hangup.transpose()?;
        context.metrics().refusals().want();
        Ok(Self {
            path,
            out: Some(out),
            written,
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
        // Counts that could not be written are lost, and the next line says how many.
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
            let (mut lines, upto) = self.acts();
            let mut counted = 0;
            if with_refusals {
                let counts = self.context.metrics().refusals().take();
                counted = counts.apart.values().sum::<u64>() + counts.others;
                lines.extend(refused(&counts, unwritten, self.own_id()));
            }
            if !lines.is_empty() {
                match self.write(&lines).await {
                    Ok(()) => {
                        if let Some(upto) = upto {
                            self.written = upto;
                        }
                        if with_refusals {
                            unwritten = 0;
                        }
                    }
                    Err(error) => {
                        unwritten += counted;
                        let is_due = match &mut trouble {
                            None => true,
                            Some(pause) => {
                                futures_util::FutureExt::now_or_never(pause.tick()).is_some()
                            }
                        };
                        if is_due {
                            warn!(%error, "the audit log cannot be written; acts are written later");
                            let mut pause = interval(TROUBLE_LOGGED_EVERY);
                            pause.reset();
                            trouble = Some(pause);
                        }
                    }
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

    /// Lines for the acts that were not written yet, and what is written with them.
    fn acts(&self) -> (Vec<Value>, Option<Written>) {
        let after = |state: &Frozen| match text_of(state.cluster()) == self.written.cluster {
            true => self.written.index,
            false => 0,
        };
        let has_new = |state: &Frozen| state.audit_after(after(state)).next().is_some();
        if !self.node.read(|machine| has_new(machine)) {
            return (Vec::new(), None);
        }
        let state = self.node.frozen();
        let after = after(&state);
        let node = self.own_id();
        let mut lines = Vec::new();
        let first = state.audit().next();
        if let Some(oldest) = first.filter(|_| state.audit_may_lack_after(after)) {
            lines.push(missed(after, oldest.index, node));
        }
        let mut index = after;
        for record in state.audit_after(after) {
            index = record.index;
            lines.push(act(record, state.cluster(), node));
        }
        let cluster = text_of(state.cluster());
        (lines, Some(Written { cluster, index }))
    }

    /// The file that is there now; the old one stays open if there is none.
    async fn reopen(&mut self) {
        let Some(path) = self.path.clone() else {
            return;
        };
        // On a thread where a disk may hold it up.
        let there = path.clone();
        let opened = tokio::task::spawn_blocking(move || open(&there)).await;
        match opened.map_err(io::Error::other).flatten() {
            Ok((file, torn)) => {
                let new = Out::File { file, torn };
                let old = self.out.replace(new);
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

    /// Writes lines on a thread where a disk or a reader may hold them up.
    async fn write(&mut self, lines: &[Value]) -> io::Result<()> {
        let Some(mut out) = self.out.take() else {
            return Err(io::Error::other("a write was given up"));
        };
        let mut text = String::new();
        for line in lines {
            text.push_str(&line.to_string());
            text.push('\n');
        }
        let writing = tokio::task::spawn_blocking(move || {
            let done = out.write(&text);
            (out, done)
        });
        let (out, done) = writing.await.map_err(io::Error::other)?;
        self.out = Some(out);
        done
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

impl Out {
    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout
                    .write_all(text.as_bytes())
                    .and_then(|()| stdout.flush())
            }
            Self::File { file, torn } => {
                if *torn {
                    file.write_all(b"\n")?;
                }
                let done = file.write_all(text.as_bytes());
                *torn = done.is_err();
                done
            }
        }
    }
}

/// Opens a file to append to, readable by its owner alone if it is new; and whether its last line is
/// not whole.
fn open(path: &Path) -> io::Result<(File, bool)> {
    // A pipe without a reader is full soon, and a write would wait for ever, also when the node stops.
    let is_fit = |kind: FileType| kind.is_file() || kind.is_char_device();
    if let Ok(there) = fs::metadata(path)
        && !is_fit(there.file_type())
    {
        let why = "it is no regular file; expected one, or - for stdout, not a pipe, a socket or a \
                   folder";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true).mode(0o600);
    let mut file = options.open(path)?;
    let mut last = [b'\n'];
    // A device has no end to look at.
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((file, last != [b'\n']))
}

/// The newest act at the end of a file; none if there is none in its last 4 MiB.
fn last_written(path: &Path) -> io::Result<Written> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Written::default());
    }
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut tail)?;
    let mut lines = tail.rsplit(|byte| *byte == b'\n');
    let newest = lines.find_map(|line| {
        let object: Value = serde_json::from_slice(line).ok()?;
        let cluster = object["cluster"].as_str()?.to_owned();
        let index = object["index"].as_u64()?;
        (object["kind"] == "ACT").then_some(Written { cluster, index })
    });
    Ok(newest.unwrap_or_default())
}

fn text_of(cluster: Option<ClusterId>) -> String {
    cluster.map_or_else(String::new, |cluster| cluster.to_string())
}

fn act(record: &AuditRecord, cluster: Option<ClusterId>, node: u64) -> Value {
    json!({
        "kind": "ACT",
        "cluster": text_of(cluster),
        "index": record.index,
        "at_unix_ms": record.wall.0,
        "principal": record.principal.as_ref().map(|who| who.as_str()),
        "proven_by": (record.node != 0).then_some(record.node),
        "act": record.act,
        "reason": record.reason,
        "node": node,
    })
}

/// Acts between two indices are gone: they are said to be missing where they would stand.
fn missed(after: u64, before: u64, node: u64) -> Value {
    json!({
        "kind": "MISSED",
        "after": after,
        "before": before,
        "why": format!("the cluster keeps the newest {AUDIT_RECORDS_MAX} acts"),
        "at_unix_ms": now_unix().saturating_mul(1_000),
        "node": node,
    })
}

/// One line for each kind of refusal, and one for all that were not counted apart or not written.
fn refused(counts: &RefusalCounts, unwritten: u64, node: u64) -> Vec<Value> {
    let at = now_unix().saturating_mul(1_000);
    let apart = counts.apart.iter().map(|(refused, count)| {
        json!({
            "kind": "REFUSED",
            "reason": refused.reason,
            "what": refused.what,
            "principal": (!refused.principal.is_empty()).then_some(&refused.principal),
            "source": (!refused.source.is_empty()).then_some(&refused.source),
            "enforced": refused.enforced,
            "count": count,
            "at_unix_ms": at,
            "node": node,
        })
    });
    let mut lines: Vec<Value> = apart.collect();
    let others = counts.others + unwritten;
    if others > 0 {
        lines.push(json!({
            "kind": "REFUSED",
            "reason": "other",
            "count": others,
            "at_unix_ms": at,
            "node": node,
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        for path in [path.as_path(), folder.path()] {
            let refused = open(path).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        assert!(open(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn a_file_is_its_owners_and_its_end_says_where_to_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let (file, torn) = open(&path).unwrap();
        assert!(!torn && last_written(&path).unwrap() == Written::default());
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let cluster = ClusterId::new([7; 16]);
        let mut out = Out::File { file, torn };
        let object = json!({
            "kind": "ACT", "cluster": cluster.to_string(), "index": 12,
        });
        out.write(&format!("{object}\n{{\"kind\":\"REFUSED\"}}\n{{\"half"))
            .unwrap();
        let written = Written {
            cluster: cluster.to_string(),
            index: 12,
        };
        assert_eq!(last_written(&path).unwrap(), written);
        let (file, torn) = open(&path).unwrap();
        assert!(torn);
        Out::File { file, torn }.write("{}\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("{\"half\n{}\n"), "{text}");
    }
}
