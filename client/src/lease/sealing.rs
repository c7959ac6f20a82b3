//! Sealing a lease between its grant and the report that it is held.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rand::Rng;
use ringfence_core::{EndsBelief, Fence, SealAnswer, Sealable};
use ringfence_planted::{Bug, planted};

use crate::clock::Moment;
use crate::lease::HeldLease;
use crate::lease::seal::Seal;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::session::state::SessionState;
use crate::session::unsealed::{Unsealed, UnsealedGuard, in_a_line};
use crate::transport::random;

/// The first pause of a lock whose lease was given back because it could not be sealed.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The longest: each try takes a token and an entry in the cluster's log.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a lease that was granted is not sealed. It was never held.
#[derive(Debug)]
pub(crate) enum NotSealed {
    /// The grant has ended meanwhile.
    Ended(Loss),
    /// These guards are not sealed; the lease is being released.
    Unsealed(Vec<UnsealedGuard>),
}

/// Seals a lease that the caller has not got yet, by `limit` at the latest. Dropping the future
/// releases it.
pub(crate) async fn sealed(
    lease: HeldLease,
    seal: &Seal,
    limit: Option<Moment>,
) -> Result<HeldLease, NotSealed> {
    if seal.is_empty() {
        return Ok(lease);
    }
    // Listed until they have answered: this grant could come back to a caller from a hand-over by
    // its token.
    let pending = seal.guards.iter().map(|guard| UnsealedGuard {
        label: guard.label().to_owned(),
        why: Unsealed::Pending,
    });
    lease.grant.set_unsealed(pending.collect());
    let unsealed = advance_all(&lease, seal, limit).await?;
    // The last answer may have come behind the end of belief.
    if let Some(loss) = lease.loss() {
        return Err(NotSealed::Ended(loss));
    }
    if unsealed.is_empty() {
        lease.grant.set_unsealed(Vec::new());
        return Ok(lease);
    }
    let (name, token, guards) = (lease.name(), lease.token(), in_a_line(&unsealed));
    if seal.goes_on {
        tracing::warn!(%name, %token, guards, "lease held with guards that are not sealed");
        lease.grant.set_unsealed(unsealed);
        return Ok(lease);
    }
    tracing::warn!(%name, %token, guards, "lease given back: not all guards are sealed");
    Err(NotSealed::Unsealed(unsealed))
}

/// Asks all guards at once. Returns those that are not sealed when all have answered, when the time
/// is over, or, unless it goes on, as soon as there is one. Guards that had not answered by then are
/// among them only if their time was over.
async fn advance_all(
    lease: &HeldLease,
    seal: &Seal,
    limit: Option<Moment>,
) -> Result<Vec<UnsealedGuard>, NotSealed> {
    let (fence, session) = (lease.fence(), &lease.session);
    let began = session.transport.now();
    let until = began + seal.time_for(session.ttl());
    let until = limit.map_or(until, |limit| until.min(limit));
    let mut lost = pin!(lease.lost());
    let mut time_over = pin!(time_over(session, until));
    // By their places: two guards may have one label.
    let mut waiting: BTreeSet<usize> = (0..seal.guards.len()).collect();
    let asking = seal.guards.iter().enumerate();
    let mut answers: FuturesUnordered<_> = asking
        .map(|(at, guard)| ask(guard, &fence).map(move |answer| (at, answer)))
        .collect();
    let mut unsealed = Vec::new();
    while !waiting.is_empty() && (seal.goes_on || unsealed.is_empty()) {
        if planted(Bug::HeldBeforeTheLastAdvance) && waiting.len() == 1 {
            break;
        }
        let of = |at: usize, why| UnsealedGuard {
            label: seal.guards[at].label().to_owned(),
            why,
        };
        tokio::select! {
            // Biased: a grant that has ended counts before an answer, and an answer before the
            // time, which may both have passed while this process slept.
            biased;
            loss = &mut lost => return Err(NotSealed::Ended(loss)),
            Some((at, answer)) = answers.next() => {
                waiting.remove(&at);
                match answer {
                    SealAnswer::Durable => {}
                    SealAnswer::NotDurable { why } => {
                        unsealed.push(of(at, Unsealed::NotDurable { why }));
                    }
                    SealAnswer::Refused(refused) if refused.ends_belief_in(&fence) => {
                        lease.report_stale();
                        return Err(NotSealed::Ended(Loss::Reported));
                    }
                    SealAnswer::Refused(refused) => {
                        unsealed.push(of(at, Unsealed::Refused(refused)));
                    }
                    SealAnswer::Failed { why } => unsealed.push(of(at, Unsealed::Failed { why })),
                }
            }
            why = &mut time_over => {
                unsealed.extend(waiting.iter().map(|at| of(*at, why.clone())));
                break;
            }
        }
    }
    Ok(unsealed)
}

/// Asks one guard. Its panic is its failure: an elector that dies with a guard never leads again.
async fn ask(guard: &Arc<dyn Sealable>, fence: &Fence) -> SealAnswer {
    let asked = AssertUnwindSafe(async move { guard.seal(fence).await });
    asked.catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let why = text.map_or_else(|| "panicked".into(), |text| format!("panicked: {text}"));
        SealAnswer::Failed { why }
    })
}

/// Completes when there is no more time for sealing, and says why. Keep-alives that are acknowledged
/// meanwhile put the jeopardy off.
async fn time_over(session: &SessionInner, until: Moment) -> Unsealed {
    let mut state = session.state();
    let began = session.transport.now();
    let calm = |state: &SessionState| *state == SessionState::Live;
    tokio::select! {
        biased;
        _state = state.wait_for(|state| !calm(state)) => Unsealed::Jeopardy,
        () = session.transport.sleep_until(until) => {
            let waited = session.transport.now().saturating_since(began);
            Unsealed::NoAnswer { waited }
        }
    }
}

/// How long a lock waits until it acquires again, after `tries` leases that could not be sealed.
pub(crate) fn pause(tries: u32) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << tries.min(16)).min(PAUSE_MAX);
    doubled.mul_f64(random::rng().random_range(0.8..1.0))
}
