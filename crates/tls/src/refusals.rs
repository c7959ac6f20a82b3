//! What a process that connects automatically makes of refusals: it logs them rarely, and waits longer
//! from one to the next.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::rarely::RarelyEach;

/// The most addresses of which refusals are remembered.
const ADDRESSES_MAX: usize = 64;
/// The pause after a first refusal; it doubles from one to the next.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause: so much later is a peer found whose certificate was put right.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// By address.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<Arc<str>, Heard>>);

/// What was heard of one address.
#[derive(Default)]
struct Heard {
    /// One behind the other.
    refusals: u32,
    /// The newest refusal, and when the address may be tried again.
    newest: Option<(Instant, String)>,
    lines: RarelyEach,
}

impl Refusals {
    /// The last refusal, if the address is to be left alone for now.
    pub(crate) fn pausing(&self, to: &Arc<str>) -> Option<io::Error> {
        let all = self.lock();
        let (until, why) = all.get(to)?.newest.as_ref()?;
        let again = "it is not asked again for a moment";
        let error = io::Error::new(io::ErrorKind::ConnectionRefused, format!("{why}; {again}"));
        (*until > now()).then_some(error)
    }

    /// A handshake failed, or the other side refused this one behind it.
    pub(crate) fn refused(&self, to: &Arc<str>, why: &str) {
        let mut all = self.lock();
        let heard = heard(&mut all, to);
        heard.refusals = heard.refusals.saturating_add(1);
        let doubled = 1_u32 << (heard.refusals - 1).min(16);
        let pause = PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX);
        heard.newest = Some((now() + pause, why.to_owned()));
        if let Some(unsaid) = heard.lines.say(why) {
            tracing::warn!(%to, %why, unsaid, "not connected");
        }
    }

    /// Something was read behind a handshake.
    pub(crate) fn admitted(&self, to: &Arc<str>) {
        if let Some(heard) = self.lock().get_mut(to) {
            (heard.refusals, heard.newest) = (0, None);
        }
    }

    /// Logs what is no refusal.
    pub(crate) fn tell(&self, to: &Arc<str>, what: &str) {
        if let Some(unsaid) = heard(&mut self.lock(), to).lines.say(what) {
            tracing::warn!(%to, unsaid, "{what}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn heard<'a>(all: &'a mut BTreeMap<Arc<str>, Heard>, to: &Arc<str>) -> &'a mut Heard {
    // A cluster has fewer; a node that has met more logs some lines again.
    if all.len() >= ADDRESSES_MAX && !all.contains_key(to) {
        all.clear();
    }
    all.entry(Arc::clone(to)).or_default()
}

#[expect(
    clippy::disallowed_methods,
    reason = "paces attempts to connect; decides nothing"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_waits_longer_each_time_and_a_second_at_most() {
        let (refusals, to) = (Refusals::default(), Arc::from("n1:7421"));
        assert!(refusals.pausing(&to).is_none());
        let mut before = Duration::ZERO;
        for _ in 0..100 {
            refusals.refused(&to, "it does not trust the CA");
            let all = refusals.lock();
            let (until, _) = all
                .get(&to)
                .and_then(|heard| heard.newest.as_ref())
                .unwrap();
            let pause = until.saturating_duration_since(now());
            assert!(pause <= PAUSE_MAX && (pause > before || before > PAUSE_MAX / 2));
            before = pause;
        }
        let why = refusals.pausing(&to).unwrap().to_string();
        assert!(
            why.contains("does not trust the CA; it is not asked again"),
            "{why}"
        );
        assert!(refusals.pausing(&Arc::from("n2:7421")).is_none());
        refusals.admitted(&to);
        assert!(refusals.pausing(&to).is_none());
    }

    #[test]
    fn a_process_remembers_a_limited_number_of_addresses() {
        let refusals = Refusals::default();
        (0..1_000).for_each(|n| refusals.refused(&Arc::from(n.to_string()), "no"));
        assert!(refusals.lock().len() <= ADDRESSES_MAX);
    }
}
