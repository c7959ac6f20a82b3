//! What a single lease may do: the sequential specification.
//!
//! ```text
//! state = holder: none, or a session with a token; the greatest token so far; ended sessions
//!
//! grant(s, τ)      no session holds it, τ is greater than every token so far, s has not ended
//! release(s, τ)    s holds it with τ; afterwards none does
//! revoke(τ)        a session holds it with τ; afterwards none does. Repeating the lease's newest
//!                  revoke changes nothing
//! transfer(s, τ → s', τ')   s holds it with τ; afterwards s' does, and τ' is the greatest token
//! kill(s)          s has ended; if it held the lease none does
//! refusals, reads  say something true of the state
//! ```
//!
//! The queue is not part of it: an acquire that waits is one operation whose grant lies somewhere
//! between its beginning and its end, and the order of waiters is another file's subject.

/// What holds a lease: a session, if it is known, and a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) session: Option<u64>,
    pub(super) token: u64,
}

impl Holder {
    fn is(&self, session: u64, token: u64) -> bool {
        self.token == token && self.may_be(session)
    }

    /// Whether this session may be the holder.
    pub(super) fn may_be(&self, session: u64) -> bool {
        self.session.is_none_or(|holder| holder == session)
    }
}

/// A lease, as the specification sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct State {
    pub(super) holder: Option<Holder>,
    /// 0 before the first grant.
    pub(super) max: u64,
    /// The token of the newest revoke.
    pub(super) revoked: Option<u64>,
    /// Ended sessions that still matter, in rising order.
    pub(super) dead: Vec<u64>,
}

/// What an answered operation did, or says of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Grant {
        session: u64,
        token: u64,
    },
    Release {
        session: u64,
        token: u64,
    },
    Revoke {
        token: u64,
    },
    /// A revoke that found the grant ended, perhaps by its own earlier try.
    RevokeStale {
        token: u64,
    },
    Transfer {
        session: u64,
        token: u64,
        to: u64,
        new: u64,
    },
    /// The session has ended by its client's or an operator's wish.
    Kill {
        session: u64,
    },
    /// The session has ended, by time or otherwise.
    Dead {
        session: u64,
    },
    /// This is who holds it.
    Held {
        session: Option<u64>,
        token: u64,
    },
    /// This token's holder is another session.
    HeldByOther {
        session: u64,
        token: u64,
    },
    Free,
    /// This token was granted, and is not in force any more.
    Over {
        token: u64,
    },
    /// This token is not in force, whether it ever was or not.
    NotCurrent {
        token: u64,
    },
    Superseded {
        token: u64,
        newest: u64,
    },
    /// This token is greater than any so far.
    Above {
        token: u64,
    },
}

impl State {
    pub(super) fn is_dead(&self, session: u64) -> bool {
        self.dead.binary_search(&session).is_ok()
    }

    pub(super) fn kill(&mut self, session: u64) {
        if let Err(at) = self.dead.binary_search(&session) {
            self.dead.insert(at, session);
        }
        if self
            .holder
            .is_some_and(|holder| holder.session == Some(session))
        {
            self.holder = None;
        }
    }

    fn current(&self, token: u64) -> bool {
        self.holder.is_some_and(|holder| holder.token == token)
    }

    /// Whether the step is true here and changes nothing; such a step is best taken at once.
    pub(super) fn says(&self, step: Step) -> bool {
        match step {
            Step::Held { session, token } => self.holder.is_some_and(|holder| {
                holder.token == token && session.is_none_or(|session| holder.may_be(session))
            }),
            Step::HeldByOther { session, token } => self
                .holder
                .is_some_and(|holder| holder.token == token && holder.session != Some(session)),
            Step::Free => self.holder.is_none(),
            Step::Over { token } => self.max >= token && !self.current(token),
            Step::NotCurrent { token } | Step::RevokeStale { token } => !self.current(token),
            Step::Revoke { token } => self.revoked == Some(token),
            Step::Superseded { token, newest } => self.max == newest && newest > token,
            Step::Above { token } => self.max < token,
            Step::Dead { session } => self.is_dead(session),
            Step::Grant { .. }
            | Step::Release { .. }
            | Step::Transfer { .. }
            | Step::Kill { .. } => false,
        }
    }

    /// Whether it is too late for the step, whatever happens from here on: tokens only grow.
    pub(super) fn has_passed(&self, step: Step) -> bool {
        match step {
            Step::Revoke { token } => {
                self.max >= token && !self.current(token) && self.revoked != Some(token)
            }
            Step::Release { token, .. }
            | Step::Transfer { token, .. }
            | Step::Held { token, .. }
            | Step::HeldByOther { token, .. } => self.max >= token && !self.current(token),
            Step::Grant { token, .. } | Step::Above { token } => self.max >= token,
            Step::Superseded { newest, .. } => self.max > newest,
            Step::RevokeStale { .. }
            | Step::Kill { .. }
            | Step::Dead { .. }
            | Step::Free
            | Step::Over { .. }
            | Step::NotCurrent { .. } => false,
        }
    }

    /// The state after a step that changes it, if it can be taken here.
    pub(super) fn after(&self, step: Step) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Grant { session, token } => {
                if self.holder.is_some() || self.max >= token || self.is_dead(session) {
                    return None;
                }
                next.hold(Some(session), token);
            }
            Step::Release { session, token } => {
                if !self.holder?.is(session, token) {
                    return None;
                }
                next.holder = None;
            }
            Step::Revoke { token } | Step::RevokeStale { token } => {
                if !self.current(token) {
                    return None;
                }
                next.holder = None;
                next.revoked = Some(token);
            }
            Step::Transfer {
                session,
                token,
                to,
                new,
            } => {
                let given = self.holder?.is(session, token);
                if !given || self.max >= new || self.is_dead(to) {
                    return None;
                }
                next.hold(Some(to), new);
            }
            Step::Kill { session } => next.kill(session),
            _ => return None,
        }
        Some(next)
    }

    pub(super) fn hold(&mut self, session: Option<u64>, token: u64) {
        self.holder = Some(Holder { session, token });
        self.max = token;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(session: u64, token: u64) -> State {
        let mut state = State::default();
        state.hold(Some(session), token);
        state
    }

    #[test]
    fn a_lease_is_granted_when_it_is_free_with_a_greater_token() {
        let free = State::default();
        let state = free
            .after(Step::Grant {
                session: 1,
                token: 5,
            })
            .unwrap();
        assert_eq!(state, held(1, 5));
        assert_eq!(
            state.after(Step::Grant {
                session: 2,
                token: 6
            }),
            None
        );

        let released = state
            .after(Step::Release {
                session: 1,
                token: 5,
            })
            .unwrap();
        assert!(released.says(Step::Free));
        assert_eq!(
            released.after(Step::Grant {
                session: 2,
                token: 5
            }),
            None
        );
        assert!(
            released
                .after(Step::Grant {
                    session: 2,
                    token: 6
                })
                .is_some()
        );
    }

    #[test]
    fn only_the_holder_with_its_token_releases_and_hands_over() {
        let state = held(1, 5);
        assert_eq!(
            state.after(Step::Release {
                session: 2,
                token: 5
            }),
            None
        );
        assert_eq!(
            state.after(Step::Release {
                session: 1,
                token: 4
            }),
            None
        );
        let handed = state.after(Step::Transfer {
            session: 1,
            token: 5,
            to: 2,
            new: 6,
        });
        assert_eq!(handed, Some(held(2, 6)));
        assert_eq!(
            state.after(Step::Transfer {
                session: 2,
                token: 5,
                to: 1,
                new: 6
            }),
            None
        );
    }

    #[test]
    fn the_dead_hold_nothing_and_get_nothing() {
        let state = held(1, 5).after(Step::Kill { session: 1 }).unwrap();
        assert!(state.says(Step::Free) && state.says(Step::Dead { session: 1 }));
        assert_eq!(
            state.after(Step::Grant {
                session: 1,
                token: 6
            }),
            None
        );
    }

    #[test]
    fn what_was_passed_never_comes_true_again() {
        let state = held(1, 5);
        let (session, held) = (2, |token| Step::Held {
            session: None,
            token,
        });
        let grant = |token| Step::Grant { session, token };
        let superseded = |newest| Step::Superseded { token: 1, newest };
        assert!(state.has_passed(held(4)) && state.has_passed(grant(5)));
        assert!(state.has_passed(superseded(4)) && state.has_passed(Step::Above { token: 5 }));
        assert!(!state.has_passed(held(5)) && !state.has_passed(held(6)));
        assert!(!state.has_passed(grant(6)) && !state.has_passed(superseded(5)));
        assert!(!state.has_passed(Step::NotCurrent { token: 5 }));
        let over = state.after(Step::Revoke { token: 5 }).unwrap();
        assert!(over.has_passed(held(5)) && !over.has_passed(held(6)));
        // A repeat of the newest revoke is answered as the first one was.
        assert!(over.says(Step::Revoke { token: 5 }) && !over.says(Step::Revoke { token: 4 }));
        assert!(over.has_passed(Step::Revoke { token: 4 }));
    }

    #[test]
    fn reads_say_what_is_true_and_no_more() {
        let state = held(1, 5);
        let held = |session, token| Step::Held { session, token };
        assert!(state.says(held(Some(1), 5)) && state.says(held(None, 5)));
        assert!(!state.says(held(Some(2), 5)) && !state.says(held(Some(1), 4)));
        assert!(state.says(Step::HeldByOther {
            session: 2,
            token: 5
        }));
        assert!(!state.says(Step::HeldByOther {
            session: 1,
            token: 5
        }));
        assert!(state.says(Step::Over { token: 4 }) && !state.says(Step::Over { token: 6 }));
        assert!(state.says(Step::NotCurrent { token: 6 }));
        assert!(!state.says(Step::NotCurrent { token: 5 }));
        assert!(state.says(Step::Superseded {
            token: 4,
            newest: 5
        }));
        assert!(!state.says(Step::Superseded {
            token: 4,
            newest: 6
        }));
        assert!(state.says(Step::Above { token: 6 }) && !state.says(Step::Above { token: 5 }));
        assert!(!state.says(Step::Free) && !state.says(Step::Dead { session: 1 }));
    }
}
