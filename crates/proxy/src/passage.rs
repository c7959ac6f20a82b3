//! The gates of all leases, and those who wait at them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::Fence;
use ringfence_guard::tower::TurnedAway;
use tokio::sync::{Notify, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::clock::now;
use crate::gate::{Ask, Gate, Verdict};
use crate::{LEASES_MAX, Marks, Options, Undrained};

/// How long what was cut may take to end.
const CUT_MAX: Duration = Duration::from_secs(1);

/// All leases.
pub(crate) struct Passages {
    marks: Marks,
    /// Held by the one that reads or writes the file. A request that waits for it leaves the queue with its caller.
    file: Arc<tokio::sync::Mutex<()>>,
    leases: Mutex<HashMap<LeaseName, Arc<Lease>>>,
    drain: Duration,
    undrained: Undrained,
    leases_max: usize,
    /// How many requests of one lease may wait and be inside.
    of_lease_max: usize,
    /// Until then requests of the process before may be inside.
    inherited: Option<Instant>,
}

struct Lease {
    name: LeaseName,
    /// Held while the mark is read or raised, so that one request does it and the others wait for it.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// Where one request raises the mark when all other places are taken.
    raising: tokio::sync::Semaphore,
    gate: Mutex<Gate>,
    /// Notified when those who wait, and those who can be cut, have to look again.
    changed: Notify,
}

/// A request that is inside, until this is dropped.
pub(crate) struct Permit {
    lease: Arc<Lease>,
    token: FencingToken,
    /// For how long it counts on if its end is not seen; `None` if it need not.
    unseen: Option<Duration>,
}

impl Passages {
    /// Those of a process that begins now. Requests of the one before may be inside for `inherited`.
    pub(crate) fn new(marks: Marks, options: &Options, inherited: Duration) -> Self {
        Self {
            marks,
            file: Arc::default(),
            leases: Mutex::default(),
            drain: options.drain,
            undrained: options.undrained,
            leases_max: LEASES_MAX,
            of_lease_max: options.limits.requests_of_lease,
            inherited: (!inherited.is_zero()).then(|| now() + inherited),
        }
    }

    pub(crate) const fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Whether nothing is inside, nor may be, of this process or the one before.
    pub(crate) fn are_quiet(&self) -> bool {
        let now = now();
        let leases = self.leases.lock();
        self.inherited.is_none_or(|end| end <= now)
            && (leases.values()).all(|lease| lease.gate.lock().is_quiet(now))
    }

    /// Lets a request under this fence in, once no older one is inside.
    pub(crate) async fn enter(&self, fence: &Fence) -> Result<Permit, TurnedAway> {
        self.marks.check_file()?;
        let (lease, is_full) = self.lease(&fence.name)?;
        let mut raising = match is_full {
            true => Some(lease.raises(fence.token).ok_or_else(|| self.full(fence))?),
            false => None,
        };
        let mut until = now() + self.drain;
        let mut has_cut = false;
        loop {
            let mut changed = pin!(lease.changed.notified());
            // Before it asks: what changes in between wakes it.
            changed.as_mut().enable();
            let verdict = lease.gate.lock().arrive(fence.token, now());
            let wake = match verdict {
                Verdict::In => {
                    return Ok(Permit {
                        lease: Arc::clone(&lease),
                        token: fence.token,
                        unseen: None,
                    });
                }
                Verdict::Stale(mark) => return Err(fence.overtaken_by(mark).into()),
                Verdict::File(_) => {
                    let written = self.write(Arc::clone(&lease), fence.clone());
                    let written = timeout_at(until, written).await;
                    written.unwrap_or_else(|_| Err(unwritten("there was no time for it")))?;
                    // Those before it are stale now, and leave.
                    drop(raising.take());
                    continue;
                }
                Verdict::Wait(wake) => wake.map_or(until, |wake| wake.min(until)),
            };
            if now() < until {
                timeout_at(wake, changed).await.ok();
                continue;
            }
            if has_cut || self.undrained == Undrained::Refuse {
                return Err(draining(fence));
            }
            has_cut = true;
            until = now() + CUT_MAX;
            lease.gate.lock().cut_older();
            lease.changed.notify_waiters();
        }
    }

    /// The lease, and whether as many requests of it as may are under way.
    fn lease(&self, name: &LeaseName) -> Result<(Arc<Lease>, bool), TurnedAway> {
        let mut leases = self.leases.lock();
        if let Some(lease) = leases.get(name) {
            // Each that waits or is inside has it, and so has the map.
            let is_full = Arc::strong_count(lease) > self.of_lease_max;
            return Ok((Arc::clone(lease), is_full));
        }
        if leases.len() >= self.leases_max {
            let now = now();
            // All that is known of these is in the file.
            leases.retain(|_, lease| {
                Arc::strong_count(lease) > 1 || !lease.gate.lock().is_quiet(now)
            });
        }
        if leases.len() >= self.leases_max {
            return Err(TurnedAway::Later {
                reason: "TOO_MANY_LEASES",
                message: format!(
                    "requests under {} leases are under way, or were a moment ago; come again",
                    self.leases_max
                ),
            });
        }
        let lease = Arc::new(Lease {
            name: name.clone(),
            writing: Arc::default(),
            raising: tokio::sync::Semaphore::new(1),
            gate: Mutex::default(),
            changed: Notify::new(),
        });
        leases.insert(name.clone(), Arc::clone(&lease));
        Ok((lease, false))
    }

    fn full(&self, fence: &Fence) -> TurnedAway {
        TurnedAway::Later {
            reason: "TOO_MANY_REQUESTS",
            message: format!(
                "{} requests under lease `{}` are under way; come again",
                self.of_lease_max, fence.name
            ),
        }
    }

    /// Reads the mark, or raises it to the token of the fence, in the file and then here. What has begun goes
    /// on when its caller leaves: otherwise the file could have a mark that is not known here. So at most one
    /// is at work for no caller.
    async fn write(&self, lease: Arc<Lease>, fence: Fence) -> Result<(), TurnedAway> {
        let of_lease = Arc::clone(&lease.writing).lock_owned().await;
        let is_done = lease.gate.lock().needs(fence.token).is_none();
        if is_done {
            // Another one has done it meanwhile.
            return Ok(());
        }
        let of_file = Arc::clone(&self.file).lock_owned().await;
        let (marks, inherited) = (self.marks.clone(), self.inherited);
        let writing = tokio::spawn(async move {
            let _turns = (of_lease, of_file);
            let asked = lease.gate.lock().needs(fence.token);
            match asked {
                Some(Ask::Read) => {
                    let mark = marks.read(&lease.name).await?;
                    lease.gate.lock().read(mark, inherited);
                }
                Some(Ask::Raise) => match marks.raise(&fence).await {
                    Ok(()) => lease.gate.lock().raised(fence.token),
                    Err(away) => {
                        lease.gate.lock().unread();
                        return Err(away);
                    }
                },
                None => {}
            }
            lease.changed.notify_waiters();
            Ok(())
        });
        let written = writing.await;
        written.unwrap_or_else(|error| Err(unwritten(&error.to_string())))
    }
}

impl Lease {
    /// The place beyond the limit of a request that raises the mark: what is under older tokens cannot keep
    /// it out.
    fn raises(&self, token: FencingToken) -> Option<SemaphorePermit<'_>> {
        let needs = self.gate.lock().needs(token);
        (needs == Some(Ask::Raise)).then(|| self.raising.try_acquire().ok())?
    }
}

impl Permit {
    /// Something of the request goes to the service from here on. If its end is not seen it counts for so
    /// long from the moment on when nothing more can go there, which is when this is dropped.
    pub(crate) const fn begin(&mut self, work_max: Duration) {
        self.unseen = Some(work_max);
    }

    /// The request is over: nothing was sent, its end was seen, or it was cut.
    pub(crate) const fn end(&mut self) {
        self.unseen = None;
    }

    /// Waits until this request is cut.
    pub(crate) async fn cut(&self) {
        loop {
            let mut changed = pin!(self.lease.changed.notified());
            changed.as_mut().enable();
            if self.lease.gate.lock().is_cut(self.token) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let unseen = self.unseen.map(|work_max| now() + work_max);
        let is_told = self.lease.gate.lock().leave(self.token, unseen);
        if is_told {
            self.lease.changed.notify_waiters();
        }
    }
}

fn unwritten(why: &str) -> TurnedAway {
    TurnedAway::Later {
        reason: "MARKS_UNAVAILABLE",
        message: format!("the mark was not written: {why}; come again"),
    }
}

fn draining(fence: &Fence) -> TurnedAway {
    TurnedAway::Later {
        reason: "DRAINING",
        message: format!(
            "requests under older tokens of lease `{}` may still be at work in the service; come again",
            fence.name
        ),
    }
}

#[cfg(test)]
mod tests;
