//! Keep-alives: the renewal of many sessions by one entry.

use ringfence_planted::{Bug, planted};

use crate::command::Renew;
use crate::machine::StateMachine;
use crate::outcome::{Outcome, Renewed};
use crate::session::Session;

impl StateMachine {
    /// Moves the sessions' last sign of life to now. A session that is due is not renewed, even if
    /// the entry's budget did not reach its end: it ends with one of the next entries, unless the
    /// first of those opens a term and gives it a fresh TTL; the same holds for one of a banned
    /// principal. So of a session that is listed as ended and still there, no client may be
    /// answered that it has ended.
    pub(crate) fn renew(&mut self, renew: &Renew) -> Outcome {
        // Before the renewals, so that the answer lists no loss that the batch itself acknowledges.
        for (id, token) in &renew.acknowledged {
            let known = self.change_session(*id, |session| session.remove_lost(*token));
            if let Some(known) = known.flatten() {
                self.stop_waiting_for(&known.name, known.token);
                self.count_loss_no_more(&known.name, known.token);
            }
        }
        let mut renewed = Renewed {
            time: self.time(),
            ..Renewed::default()
        };
        let (header, access) = (&self.state.header, &self.state.access);
        let sessions = &mut self.state.sessions;
        // The leader batches none of a banned principal. One that was under way when the ban came is
        // not renewed either: its TTL counts from the last sign of life before the ban.
        let may_live = |session: &Session| {
            session.is_alive(header)
                && (!access.bans_owner(session.owner.as_ref()) || planted(Bug::BannedRenewed))
        };
        sessions.visit(&renew.sessions, |id, session| match session {
            Some(session) if may_live(session) => {
                session.keep_alive(header.time);
                if !session.lost().is_empty() && !planted(Bug::LossNotTold) {
                    renewed.lost.push((*id, session.lost().to_vec()));
                }
            }
            _ => renewed.ended.push(*id),
        });
        self.show_renewals(&renew.sessions);
        Outcome::Renewed(renewed)
    }
}
