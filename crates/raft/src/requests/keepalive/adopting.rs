//! Sessions that were opened while nothing was proven become their first proven caller's: an entry
//! says so, once for each, while their keep-alives go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use ringfence_core::{Called, Command, SessionId};

use super::Checked;
use crate::leader::term::LeaderTerm;

/// The most adoptions that are being logged at a time. Other sessions have their turn with one of
/// their next keep-alives: those of a whole cluster come at once when rights are switched on.
const ADOPTIONS_MAX: usize = 1_000;

/// The sessions whose adoption is being logged.
#[derive(Debug, Default)]
pub(super) struct Adoptions {
    under_way: Mutex<BTreeSet<SessionId>>,
}

/// One adoption under way; it ends with this.
struct Turn {
    adoptions: Arc<Adoptions>,
    session: SessionId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.adoptions.under_way.lock().remove(&self.session);
    }
}

impl Adoptions {
    /// `None` if this session's is under way, or as many as may be.
    fn begin(self: &Arc<Self>, session: SessionId) -> Option<Turn> {
        let mut under_way = self.under_way.lock();
        if under_way.len() >= ADOPTIONS_MAX || !under_way.insert(session) {
            return None;
        }
        Some(Turn {
            adoptions: self.clone(),
            session,
        })
    }

    /// Logs the adoptions of a batch. Nothing waits for them: what fails is tried again with the next
    /// keep-alive.
    pub(super) fn log(self: &Arc<Self>, leading: &Arc<LeaderTerm>, checked: &[Checked]) {
        let mut commands = Vec::new();
        for one in checked {
            let Some(caller) = &one.asked.request.caller else {
                continue;
            };
            for (session, secret) in &one.unowned {
                let Some(turn) = self.begin(*session) else {
                    continue;
                };
                let command = Command::Adopt {
                    session: *session,
                    secret: *secret,
                };
                let caller = caller.clone();
                commands.push((turn, Command::Called(Box::new(Called { caller, command }))));
            }
        }
        if commands.is_empty() {
            return;
        }
        let leading = leading.clone();
        let _detached = crate::platform::runtime::spawn(async move {
            let writes = commands.into_iter().map(|(turn, command)| {
                let leading = &leading;
                async move {
                    if let Err(error) = leading.write(&command).await {
                        tracing::debug!(%error, session = %turn.session, "not adopted yet");
                    }
                }
            });
            join_all(writes).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(n: u64) -> SessionId {
        SessionId::new(n).unwrap()
    }

    #[test]
    fn a_session_is_adopted_once_at_a_time_and_not_too_many_are() {
        let adoptions = Arc::<Adoptions>::default();
        let turn = adoptions.begin(session(1));
        assert!(turn.is_some());
        assert!(adoptions.begin(session(1)).is_none(), "under way");
        let others: Vec<Turn> = (2..).map_while(|n| adoptions.begin(session(n))).collect();
        assert_eq!(others.len(), ADOPTIONS_MAX - 1);
        drop(turn);
        assert!(adoptions.begin(session(1)).is_some(), "it may fail");
    }
}
