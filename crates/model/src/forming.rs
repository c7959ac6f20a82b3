//! How a cluster begins: without a past, or restored from a backup.

use ringfence_core::snapshot::{Answer, WaiterRecord};
use ringfence_core::{
    AccessRecord, Acquire, Ask, BackupDigest, ClusterTime, Event, FencingToken, Form, HolderData,
    Identity, InvalidSetting, LeaseName, Millis, Mode, OpenId, Pod, QUIET_TIME_MAX, Rejection,
    RequestNumber, Restored, Seed, SessionId, TOKEN_FLOOR_MAX, TTL_MAX_CEILING,
};

use super::rights::Rights;
use super::{Kept, Model, Session};

/// The greatest number that is taken over from a backup.
const NUMBER_MAX: u64 = (1 << 63) - 1;

/// What a restored state lacks.
#[derive(Clone, Debug)]
pub(super) struct Lacks {
    digest: BackupDigest,
    next: u32,
    parts: u32,
}

impl Model {
    pub(super) fn form(&mut self, form: &Form) -> Result<(), Rejection> {
        if let Some(cluster) = self.cluster {
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
        if let Some(offered) = form.token_floor.filter(|&floor| floor > TOKEN_FLOOR_MAX) {
            return Err(Rejection::TokenFloorTooHigh { offered });
        }
        match (&form.restored, form.token_floor) {
            (Some(past), floor) if !past.drill => self.go_on_above(past, floor)?,
            (_, Some(floor)) => (self.counter, self.token_floor) = (floor, Some(floor)),
            (_, None) if self.counter == 0 => return Err(Rejection::NotReady),
            (_, None) => {}
        }
        self.cluster = Some(form.cluster);
        if form.mode != Mode::Off {
            self.level = self.level.max(4);
            self.rights.mode = form.mode;
            self.rights.set_at = self.index;
        }
        if form.restored.is_some() || form.quiet_time != Millis(0) {
            self.level = self.level.max(6);
            self.raise_versions();
        }
        self.set(form.settings);
        self.quiet_until = ClusterTime(self.time.0.saturating_add(quiet(form)));
        if let Some(past) = &form.restored {
            self.versions_of_the_past(past.versions.min(NUMBER_MAX));
            let above_tokens = self.counter + 1;
            self.next_session = past.sessions.min(NUMBER_MAX).max(above_tokens);
            if past.parts > 0 {
                self.lacks = Some(Lacks {
                    digest: past.digest,
                    next: 0,
                    parts: past.parts,
                });
            }
        }
        Ok(())
    }

    /// Every token of the past has ended: those to come lie above all of them.
    fn go_on_above(&mut self, past: &Restored, floor: Option<u64>) -> Result<(), Rejection> {
        let enough = past.tokens.saturating_add(1 << 32);
        if self.counter <= past.tokens && floor.unwrap_or(0) < enough {
            return Err(Rejection::InvalidSetting(InvalidSetting {
                name: "token_floor",
                offered: floor.unwrap_or(0),
                min: enough,
                max: TOKEN_FLOOR_MAX,
            }));
        }
        self.counter = self.counter.max(floor.unwrap_or(0));
        self.forgotten = FencingToken::new(self.counter);
        Ok(())
    }

    pub(super) fn seed(&mut self, seed: &Seed) -> Result<(), Rejection> {
        let Some(lacks) = &self.lacks else {
            return Ok(());
        };
        if lacks.digest != seed.digest || seed.part > lacks.next {
            return Err(Rejection::NotReady);
        }
        if seed.part < lacks.next {
            return Ok(());
        }
        if !seed.access.is_empty() {
            let tokenless = seed.access.iter().filter(|record| match record {
                AccessRecord::Token { .. } => false,
                AccessRecord::Mode { .. } | AccessRecord::Rule(_) | AccessRecord::Ban(_) => true,
            });
            let tokenless: Vec<AccessRecord> = tokenless.cloned().collect();
            self.rights.add(&Rights::of(&tokenless), self.index);
        }
        for held in &seed.held {
            let free = self
                .lease_at(&held.name)
                .is_none_or(|at| self.leases[at].grant.is_none());
            if free {
                let session = self.stand_in(&held.pod, seed);
                self.grant_to_stand_in(&held.name, session);
            }
        }
        self.lacks = self
            .lacks
            .take()
            .filter(|lacks| lacks.next + 1 < lacks.parts);
        if let Some(lacks) = &mut self.lacks {
            lacks.next += 1;
        }
        Ok(())
    }

    fn grant_to_stand_in(&mut self, name: &LeaseName, id: SessionId) {
        let at = self.lease_or_new(name);
        let number = self.session(id).expect("it stands there").lowest;
        let granted = self.grant_to_waiter(
            at,
            WaiterRecord {
                place: 0,
                session: id,
                request: number,
                until: self.time,
                data: HolderData::default(),
                lock_delay: Millis(0),
            },
        );
        let session = self.session_mut(id).expect("it stands there");
        session.answers.push(Kept {
            number,
            ask: Some(Ask::Acquire(Acquire {
                name: name.clone(),
                wait: None,
                data: HolderData::default(),
                lock_delay: Millis(0),
            })),
            answer: Answer::Granted {
                name: name.clone(),
                token: granted.token,
            },
        });
        session.lowest = RequestNumber::new(number.get() + 1).expect("it is no 0");
    }

    /// The session that stands for a container of the lost cluster.
    fn stand_in(&mut self, pod: &Pod, seed: &Seed) -> SessionId {
        if let Some(known) = self.bound_to(pod) {
            return known.id;
        }
        let number = self.next_session;
        self.next_session += 1;
        let id = SessionId::new(number).expect("numbers begin at 1");
        let mut open = [0; 16];
        open[..8].copy_from_slice(&seed.digest.as_bytes()[..8]);
        open[8..].copy_from_slice(&number.to_be_bytes());
        let identity = format!("{}/{}", pod.namespace(), pod.name());
        self.sessions.push(Session {
            id,
            owner: None,
            open: OpenId::new(open),
            secret: seed.secret,
            identity: Identity::parse(&identity).expect("histories have short names"),
            ttl: Millis::FOREVER,
            seen: self.time,
            lowest: RequestNumber::FIRST,
            answers: Vec::new(),
            lost: Vec::new(),
            pod: Some(pod.clone()),
        });
        self.events.push(Event::SessionOpened { session: id });
        id
    }
}

/// For how many milliseconds nothing is granted.
fn quiet(form: &Form) -> u64 {
    match &form.restored {
        None => form.quiet_time.0,
        Some(past) if past.drill => 0,
        Some(past) => {
            let ttl = past.ttl_greatest.min(TTL_MAX_CEILING);
            let longest = [ttl, form.settings.ttl_max, form.quiet_time];
            longest.into_iter().max().map_or(0, |longest| longest.0) + 60_000
        }
    }
}
