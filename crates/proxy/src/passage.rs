//! Who may pass: the mark of each lease, and how many requests are inside.
//!
//! A lease is *open* for one token, the mark, once no request under an older one is inside. A request under
//! a greater token raises the mark, which shuts the older ones out, and then waits for what they have
//! inside:
//!
//! ```text
//!  8 ── in ───────────────────── answered ─┐
//!  8 ─────────── refused                   │  the mark is 9 from here on, in the file, too
//!  9 ────── raises the mark ── waits ──────┴─ in ── answered
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::Fence;
use ringfence_guard::tower::TurnedAway;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock::now;
use crate::{LEASES_MAX, Marks, Undrained};

/// All leases.
pub(crate) struct Passages {
    marks: Marks,
    leases: Mutex<HashMap<LeaseName, Arc<Lease>>>,
    drain: Duration,
    undrained: Undrained,
    /// Until then requests may be inside that the process before has let in.
    quiet_until: Instant,
}

struct Lease {
    name: LeaseName,
    /// Held while the mark is raised, so that one request does it and the others wait for it.
    raising: tokio::sync::Mutex<()>,
    /// What it holds is looked at and changed at once; waits see each change.
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether the file was read.
    is_read: bool,
    mark: Option<FencingToken>,
    /// Whether the mark is that of the process before.
    is_inherited: bool,
    /// How many requests under the mark are inside.
    inside: usize,
    /// And how many under older tokens.
    older: usize,
    /// Until then requests of the process before may be inside.
    quiet_until: Option<Instant>,
    /// What is inside under an older token than this is cut.
    cut: Option<FencingToken>,
}

/// A request that is inside, until this is dropped.
pub(crate) struct Permit {
    lease: Arc<Lease>,
    token: FencingToken,
    changes: watch::Receiver<State>,
}

impl Passages {
    pub(crate) fn new(marks: Marks, drain: Duration, undrained: Undrained) -> Self {
        Self {
            marks,
            leases: Mutex::default(),
            drain,
            undrained,
            quiet_until: now() + drain,
        }
    }

    /// Lets a request under this fence in, once no older one is inside.
    pub(crate) async fn enter(&self, fence: &Fence) -> Result<Permit, TurnedAway> {
        let lease = self.lease(&fence.name)?;
        if let Some(permit) = lease.enter_open(fence)? {
            return Ok(permit);
        }
        self.raise(&lease, fence).await?;
        let until = now() + self.drain;
        if let Some(permit) = lease.enter_drained(fence, until).await? {
            return Ok(permit);
        }
        match self.undrained {
            Undrained::Refuse => Err(draining(fence)),
            Undrained::Cut => {
                lease.cut_older(fence);
                // What is cut ends at once, but for requests of the process before, which are out of reach.
                let entered = lease.enter_drained(fence, now() + CUT_MAX).await?;
                entered.ok_or_else(|| draining(fence))
            }
        }
    }

    fn lease(&self, name: &LeaseName) -> Result<Arc<Lease>, TurnedAway> {
        let mut leases = self.leases.lock();
        if let Some(lease) = leases.get(name) {
            return Ok(Arc::clone(lease));
        }
        if leases.len() >= LEASES_MAX {
            // One that is named here alone has no request inside, and none that waits.
            leases.retain(|_, lease| Arc::strong_count(lease) > 1);
        }
        if leases.len() >= LEASES_MAX {
            return Err(TurnedAway::Later {
                reason: "TOO_MANY_LEASES",
                message: format!("requests under {LEASES_MAX} leases are inside; come again"),
            });
        }
        let lease = Arc::new(Lease {
            name: name.clone(),
            raising: tokio::sync::Mutex::default(),
            state: watch::Sender::new(State::default()),
        });
        leases.insert(name.clone(), Arc::clone(&lease));
        Ok(lease)
    }

    /// Raises the mark to the token of the fence, in the file and then here.
    async fn raise(&self, lease: &Lease, fence: &Fence) -> Result<(), TurnedAway> {
        let _raising = lease.raising.lock().await;
        if !lease.state.borrow().is_read {
            let mark = self.marks.read(&lease.name).await?;
            lease.state.send_modify(|state| {
                state.is_read = true;
                state.mark = mark;
                state.is_inherited = mark.is_some();
            });
        }
        lease.refuse_stale(fence)?;
        if lease.state.borrow().mark == Some(fence.token) {
            return Ok(());
        }
        self.marks.raise(fence).await?;
        let quiet_until = self.quiet_until;
        lease.state.send_modify(|state| {
            if state.is_inherited {
                state.quiet_until = Some(quiet_until);
            }
            state.is_inherited = false;
            state.mark = Some(fence.token);
            state.older += state.inside;
            state.inside = 0;
        });
        Ok(())
    }
}

/// How long what was cut may take to end.
const CUT_MAX: Duration = Duration::from_secs(1);

impl Lease {
    fn refuse_stale(&self, fence: &Fence) -> Result<(), TurnedAway> {
        match self.state.borrow().mark {
            Some(mark) if fence.token < mark => Err(fence.overtaken_by(mark).into()),
            _ => Ok(()),
        }
    }

    /// Lets it in if the lease is open for it; `None` if the mark has to be raised, or older requests
    /// have to end.
    fn enter_open(self: &Arc<Self>, fence: &Fence) -> Result<Option<Permit>, TurnedAway> {
        self.refuse_stale(fence)?;
        let mut entered = false;
        // What waits here waits for ends of requests, not for beginnings.
        self.state.send_if_modified(|state| {
            entered = state.mark == Some(fence.token) && state.is_drained();
            state.inside += usize::from(entered);
            false
        });
        Ok(entered.then(|| Permit {
            lease: Arc::clone(self),
            token: fence.token,
            changes: self.state.subscribe(),
        }))
    }

    /// The same, and waits for older requests until then.
    async fn enter_drained(
        self: &Arc<Self>,
        fence: &Fence,
        until: Instant,
    ) -> Result<Option<Permit>, TurnedAway> {
        let mut changes = self.state.subscribe();
        loop {
            if let Some(permit) = self.enter_open(fence)? {
                return Ok(Some(permit));
            }
            let quiet = self.state.borrow().quiet_until.map(|end| end.min(until));
            let changed = async {
                match quiet {
                    Some(end) if end > now() => tokio::select! {
                        () = sleep_until(end) => {}
                        _ = changes.changed() => {}
                    },
                    _ => drop(changes.changed().await),
                }
            };
            if timeout_at(until, changed).await.is_err() {
                return self.enter_open(fence);
            }
        }
    }

    fn cut_older(&self, fence: &Fence) {
        self.state.send_modify(|state| {
            state.cut = state.cut.max(Some(fence.token));
            // They are cut with the process that has sent them, as far as they can be.
            state.quiet_until = None;
        });
    }
}

impl State {
    fn is_drained(&self) -> bool {
        self.older == 0 && self.quiet_until.is_none_or(|end| end <= now())
    }
}

impl Permit {
    /// Waits until this request is cut.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + 'static {
        let (mut changes, token) = (self.changes.clone(), self.token);
        async move {
            let cut = changes.wait_for(|state| state.cut.is_some_and(|below| token < below));
            if cut.await.is_err() {
                // The lease outlives its permits.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.lease.state.send_if_modified(|state| {
            let is_older = state.mark != Some(self.token);
            let count = match is_older {
                true => &mut state.older,
                false => &mut state.inside,
            };
            *count = count.saturating_sub(1);
            is_older
        });
    }
}

fn draining(fence: &Fence) -> TurnedAway {
    TurnedAway::Later {
        reason: "DRAINING",
        message: format!(
            "requests under older tokens of lease `{}` are not answered yet; come again",
            fence.name
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::pin::pin;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    const DRAIN: Duration = Duration::from_millis(1_500);

    fn fence(token: u64) -> Fence {
        Fence::parse(&format!("bank/x#{token}")).unwrap()
    }

    fn passages(folder: &TempDir, undrained: Undrained) -> Passages {
        let marks = Marks::open(&folder.path().join("marks.db")).unwrap();
        Passages::new(marks, DRAIN, undrained)
    }

    fn reason<T>(result: Result<T, TurnedAway>) -> &'static str {
        result.map(drop).unwrap_err().reason()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_newer_holder_waits_for_the_older_one_which_is_shut_out_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let passages = passages(&folder, Undrained::Refuse);
        let (first, second) = (
            passages.enter(&fence(8)).await.unwrap(),
            passages.enter(&fence(8)).await.unwrap(),
        );
        let newer = fence(9);
        let mut newer = pin!(passages.enter(&newer));
        assert!(timeout(DRAIN / 3, &mut newer).await.is_err());
        assert_eq!(reason(passages.enter(&fence(8)).await), "STALE_TOKEN");
        drop(first);
        assert!(timeout(DRAIN / 6, &mut newer).await.is_err());
        drop(second);
        drop(newer.await.unwrap());
        assert_eq!(reason(passages.enter(&fence(8)).await), "STALE_TOKEN");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_that_wait_for_the_older_one_enter_once_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let passages = Arc::new(passages(&folder, Undrained::Refuse));
        let older = passages.enter(&fence(8)).await.unwrap();
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let passages = Arc::clone(&passages);
                tokio::spawn(async move { passages.enter(&fence(9)).await.map(drop) })
            })
            .collect();
        tokio::time::sleep(DRAIN / 3).await;
        drop(older);
        for one in waiting {
            one.await.unwrap().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_that_waits_is_stale_once_a_third_one_comes() {
        let folder = tempfile::tempdir().unwrap();
        let passages = Arc::new(passages(&folder, Undrained::Refuse));
        let older = passages.enter(&fence(8)).await.unwrap();
        let waits = Arc::clone(&passages);
        let waiting = tokio::spawn(async move { waits.enter(&fence(9)).await.map(drop) });
        tokio::time::sleep(DRAIN / 6).await;
        let third = fence(10);
        let mut third = pin!(passages.enter(&third));
        assert!(timeout(DRAIN / 6, &mut third).await.is_err());
        assert_eq!(reason(waiting.await.unwrap()), "STALE_TOKEN");
        drop(older);
        drop(third.await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_does_not_end_is_a_reason_to_refuse_or_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let refusing = passages(&folder, Undrained::Refuse);
        let older = refusing.enter(&fence(8)).await.unwrap();
        assert_eq!(reason(refusing.enter(&fence(9)).await), "DRAINING");
        // It has raised the mark nevertheless.
        assert_eq!(reason(refusing.enter(&fence(8)).await), "STALE_TOKEN");
        drop(older);
        drop(refusing.enter(&fence(9)).await.unwrap());
        drop(refusing);

        let folder = tempfile::tempdir().unwrap();
        let cutting = passages(&folder, Undrained::Cut);
        let older = cutting.enter(&fence(8)).await.unwrap();
        let cut = older.cut();
        let inside = tokio::spawn(async move {
            cut.await;
            drop(older);
        });
        let newer = cutting.enter(&fence(9)).await.unwrap();
        inside.await.unwrap();
        assert!(timeout(DRAIN / 6, newer.cut()).await.is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn marks_outlive_the_proxy_and_a_newer_token_waits_for_what_it_has_left_inside() {
        let folder = tempfile::tempdir().unwrap();
        let before = passages(&folder, Undrained::Refuse);
        drop(before.enter(&fence(8)).await.unwrap());
        let taken = Marks::open(&folder.path().join("marks.db"));
        assert!(matches!(taken.map(drop), Err(crate::MarksError::InUse(_))));
        drop(before);

        let after = passages(&folder, Undrained::Refuse);
        assert_eq!(reason(after.enter(&fence(7)).await), "STALE_TOKEN");
        drop(after.enter(&fence(8)).await.unwrap());
        let newer = fence(9);
        let mut newer = pin!(after.enter(&newer));
        assert!(timeout(DRAIN / 2, &mut newer).await.is_err());
        // Nothing was inside under a lease without a mark.
        let other = Fence::parse("bank/y#5").unwrap();
        let entered = timeout(DRAIN / 3, after.enter(&other)).await;
        drop(entered.unwrap().unwrap());
        drop(newer.await.unwrap());
        // And what has drained once is open.
        let again = timeout(DRAIN / 3, async { after.enter(&fence(10)).await }).await;
        drop(again.unwrap().unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_token_that_was_made_up_raises_no_mark() {
        let folder = tempfile::tempdir().unwrap();
        let passages = passages(&folder, Undrained::Refuse);
        assert_eq!(
            reason(passages.enter(&fence(1 << 62)).await),
            "TOKEN_TOO_HIGH"
        );
        drop(passages.enter(&fence(8)).await.unwrap());
    }
}
