//! How a cluster begins: without a past, or restored from a backup of another one.
//!
//! A restored state is made of ordinary entries. A [`Form`] with a past gives the state everything
//! that is small; [`Seed`]s follow with rights and with names that Pods held. They are numbered, and
//! each counts once, so a leader that takes over in the middle proposes them again without harm.
//! Until the last one is applied no client's command has an effect.

use alloc::format;

use ringfence_planted::{Bug, planted};

use crate::access::Access;
use crate::access::change::Mode;
use crate::answer::Answer;
use crate::backup::HeldByPod;
use crate::command::{Acquire, Ask, Form, Restored, Seed};
use crate::event::Event;
use crate::id::{FencingToken, OpenId, RequestNumber, SessionId};
use crate::lease::Waiter;
use crate::level::{LEVEL_ACCESS, LEVEL_RESTORE};
use crate::machine::StateMachine;
use crate::name::{HolderData, Identity};
use crate::outcome::{Outcome, Rejection};
use crate::pod::Pod;
use crate::requests::fingerprint;
use crate::session::Session;
use crate::settings::{
    InvalidSetting, LINEAGE_MAX, LOCK_DELAY_MAX, QUIET_TIME_MAX, RESTORE_TOKEN_GAP,
    TOKEN_FLOOR_MAX, TTL_MAX_CEILING,
};
use crate::snapshot::Seeding;
use crate::state::Frozen;
use crate::time::Millis;

/// No number of a session and no version of an object that a cluster has given out is as great; more
/// would leave none to give out.
const NUMBER_MAX: u64 = FencingToken::MAX;

impl Frozen {
    /// Whether a cluster is formed and, if it is a restored one, has all of its state.
    #[must_use]
    pub fn is_formed(&self) -> bool {
        self.header.cluster.is_some() && self.header.seeding.is_none()
    }

    /// How far the restoring of this cluster has come; `None` if it is complete or there is none.
    #[must_use]
    pub fn seeding(&self) -> Option<&Seeding> {
        self.header.seeding.as_ref()
    }
}

impl StateMachine {
    pub(crate) fn form(&mut self, form: &Form) -> Result<Outcome, Rejection> {
        if let Some(cluster) = self.header.cluster {
            return Err(Rejection::AlreadyFormed { cluster });
        }
        form.settings.check().map_err(Rejection::InvalidSetting)?;
        if form.quiet_time > QUIET_TIME_MAX {
            return Err(Rejection::InvalidSetting(InvalidSetting {
                name: "quiet_time",
                offered: form.quiet_time.0,
                min: 0,
                max: QUIET_TIME_MAX.0,
            }));
        }
        match &form.restored {
            Some(restored) if !restored.drill => self.continue_tokens(form, restored)?,
            _ => self.first_tokens(form.token_floor)?,
        }
        let header = &mut self.state.header;
        header.cluster = Some(form.cluster);
        if form.mode != Mode::Off {
            header.level = header.level.max(LEVEL_ACCESS);
            self.state.access = Access::formed(form.mode, header.index);
        }
        if form.restored.is_some() || form.quiet_time > Millis(0) {
            header.level = header.level.max(LEVEL_RESTORE);
            self.raise_versions();
        }
        if let Some(restored) = &form.restored {
            self.continue_from(restored);
        }
        let quiet = quiet_time(form);
        if quiet > Millis(0) {
            // Else it is left as releases without quiet times leave it: equal logs make equal states.
            self.state.header.quiet_until = self.time().after(quiet);
        }
        self.set(form.settings);
        Ok(Outcome::Done)
    }

    /// The tokens of a cluster that has no past, or that is to be a drill.
    fn first_tokens(&mut self, floor: Option<u64>) -> Result<(), Rejection> {
        let header = &mut self.state.header;
        match floor {
            Some(offered) if offered > TOKEN_FLOOR_MAX => {
                return Err(Rejection::TokenFloorTooHigh { offered });
            }
            Some(floor) => header.tokens.start_at(floor),
            // Without a believable clock a wiped cluster could repeat tokens.
            None if header.tokens.reached() == 0 => return Err(Rejection::NotReady),
            None => {}
        }
        header.token_floor = floor;
        Ok(())
    }

    /// The tokens of a restored cluster lie above those of all clusters before it. The clock says how
    /// far these can have come; where it does not, an operator has to.
    fn continue_tokens(&mut self, form: &Form, restored: &Restored) -> Result<(), Rejection> {
        let header = &mut self.state.header;
        let floor = form.token_floor;
        if let Some(offered) = floor.filter(|floor| *floor > TOKEN_FLOOR_MAX) {
            return Err(Rejection::TokenFloorTooHigh { offered });
        }
        let least = restored.tokens.saturating_add(RESTORE_TOKEN_GAP);
        let behind = header.tokens.reached() <= restored.tokens;
        if behind && floor.is_none_or(|floor| floor < least) && !planted(Bug::RestoreTrustsTheClock)
        {
            return Err(Rejection::InvalidSetting(InvalidSetting {
                name: "token_floor",
                offered: floor.unwrap_or_default(),
                min: least,
                max: TOKEN_FLOOR_MAX,
            }));
        }
        header.tokens.raise(floor.unwrap_or_default());
        if !planted(Bug::RestoreLeavesFloors) {
            header.tokens.close();
            header.forgotten = FencingToken::new(header.tokens.reached());
        }
        if planted(Bug::RestoreKeepsTokenFloor) {
            header.token_floor = restored.token_floor;
        }
        Ok(())
    }

    /// Nothing of the past comes again: no session number, no version of an object, no token.
    fn continue_from(&mut self, restored: &Restored) {
        let header = &mut self.state.header;
        header.versions = header.versions.max(restored.versions.min(NUMBER_MAX));
        // A watch that goes on from a version of the past must list again.
        header.versions_forgotten = header.versions;
        // The token counter stands at the clock or above it.
        let sessions = restored
            .sessions
            .min(NUMBER_MAX)
            .max(header.tokens.reached() + 1);
        if !planted(Bug::RestoreNumbersSessionsFromOne) {
            header.next_session = header.next_session.max(sessions);
        }
        if !restored.drill {
            let spare = restored.lineage.len().saturating_sub(LINEAGE_MAX);
            header.lineage = restored.lineage[spare..].to_vec();
        }
        header.seeding = (restored.parts > 0).then_some(Seeding {
            digest: restored.digest,
            parts: restored.parts,
            done: 0,
        });
    }

    /// The next part of a restored state; one that was applied before changes nothing.
    pub(crate) fn seed(&mut self, seed: &Seed) -> Result<Outcome, Rejection> {
        let Some(seeding) = self.seeding() else {
            return Ok(Outcome::Done);
        };
        if seeding.digest != seed.digest || seed.part > seeding.done {
            return Err(Rejection::NotReady);
        }
        if seed.part < seeding.done {
            return Ok(Outcome::Done);
        }
        let access = self.access.seeded(&seed.access, self.index());
        self.state.access = access.map_err(Rejection::InvalidAccess)?;
        for held in &seed.held {
            // Whether there was a token left decides nothing here.
            let _: Option<FencingToken> = self.hold_for_pod(held, seed);
        }
        let seeding = &mut self.state.header.seeding;
        *seeding = seeding.take().and_then(Seeding::next);
        Ok(Outcome::Done)
    }

    /// A process in a Pod may still work under a grant of the lost cluster, and no time ends its
    /// belief. So the name is held for it, until its Pod's end is seen or an operator ends it. `None`
    /// if it is held, or no number is left.
    fn hold_for_pod(&mut self, held: &HeldByPod, seed: &Seed) -> Option<FencingToken> {
        if self.grant_of(&held.name).is_some() {
            return None;
        }
        let session = self.session_for_pod(&held.pod, seed)?;
        let request = self.sessions.get(&session)?.requests.lowest();
        let acquire = Acquire {
            name: held.name.clone(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        };
        let waiter = Waiter {
            session,
            request,
            until: self.time(),
            data: acquire.data.clone(),
            lock_delay: acquire.lock_delay,
        };
        let token = self.grant(&held.name, waiter)?;
        let name = held.name.clone();
        let requests = &mut self.state.sessions.get_mut(&session)?.requests;
        let asked = fingerprint(&Ask::Acquire(acquire));
        requests.remember(request, asked, Answer::Granted { name, token });
        // As if each were confirmed: a session may hold more names than it may have unconfirmed.
        requests.confirm_below(RequestNumber::new(request.get() + 1)?);
        Some(token)
    }

    /// The session that stands for a container of the lost cluster. No client knows its secret; the
    /// container itself takes its place when it opens a session of its own.
    fn session_for_pod(&mut self, pod: &Pod, seed: &Seed) -> Option<SessionId> {
        if let Some(id) = self.pods.get(&pod.key()) {
            return Some(*id);
        }
        let number = self.header.next_session;
        let id = SessionId::new(number)?;
        self.state.header.next_session = number.checked_add(1)?;
        let [high, low] = [&seed.digest.as_bytes()[..8], &number.to_be_bytes()];
        let open = OpenId::from_slice(&[high, low].concat())?;
        let identity = Identity::parse(&format!("{}/{}", pod.namespace(), pod.name()));
        let identity = identity.or_else(|_| Identity::parse(pod.name()));
        let mut session = Session::new(
            (open, seed.secret),
            identity.unwrap_or_else(|_| Identity::unknown()),
            Millis::FOREVER,
            self.time(),
        );
        session.bind(pod.clone());
        session.armed = session.deadline(self.header.term_start);
        self.add_session(id, session);
        self.events.push(Event::SessionOpened { session: id });
        Some(id)
    }
}

/// For how long nothing is granted. Holders of a lost cluster believe for their TTL at most, and
/// their leases may have a lock-delay.
fn quiet_time(form: &Form) -> Millis {
    match &form.restored {
        Some(_) if planted(Bug::RestoreWithoutQuietTime) => Millis(0),
        Some(restored) if restored.drill => Millis(0),
        Some(restored) => {
            let ttl = restored.ttl_greatest.min(TTL_MAX_CEILING);
            let believed = ttl.max(form.settings.ttl_max).max(form.quiet_time);
            Millis(believed.0 + LOCK_DELAY_MAX.0)
        }
        None => form.quiet_time,
    }
}

impl Seeding {
    /// With one part more; `None` if that was the last one.
    fn next(self) -> Option<Self> {
        let done = self.done.saturating_add(1);
        (done < self.parts).then_some(Self { done, ..self })
    }
}
