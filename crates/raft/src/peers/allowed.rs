//! What another node may hand on to the leader: only what its clients may ask for.
//!
//! The rest of the commands a leader makes itself, from what it has checked or seen: a `Renew` is
//! trusted to name sessions whose secrets were shown, a `PodEnded` to report a Pod that is gone.

use parking_lot::Mutex;
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::{CommandKind, decode_command, kind_of};
use ringfence_tls::Rarely;

use crate::types::reply::ProposeError;

/// Why a command of another node is not logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Only a leader proposes these, and only in its own name.
    #[error(
        "a {0:?} is proposed by a leader alone, and was handed on by another node; nodes hand on \
         what clients ask for"
    )]
    LeadersOwn(CommandKind),
    /// It cannot be read: it is damaged, or of a kind that this release does not have.
    #[error(
        "this node leads and its release does not know this kind of command: upgrade it first, \
         unless the caller is damaged"
    )]
    Unknown,
}

impl From<Refused> for ProposeError {
    fn from(refused: Refused) -> Self {
        match refused {
            // Asking again would not help.
            Refused::LeadersOwn(_) => Self::NotDone {
                why: refused.to_string(),
                leader: None,
                retry_after: None,
            },
            // The next leader may know it.
            Refused::Unknown => Self::not_done(refused.to_string()),
        }
    }
}

/// Lets an encoded command of another node pass if clients may ask for it.
pub(crate) fn allowed(command: &[u8]) -> Result<(), Refused> {
    if planted(Bug::PeersAskAnything) {
        return Ok(());
    }
    let kind = kind_of(command).ok_or(Refused::Unknown)?;
    match kind {
        // What it wraps is one of the others here, or it cannot be read.
        CommandKind::Called
        | CommandKind::ChangeAccess
        | CommandKind::Adopt
        | CommandKind::Operate
        | CommandKind::WriteObject => readable(command),
        CommandKind::Configure
        | CommandKind::Open
        | CommandKind::OpenForPod
        | CommandKind::Request
        | CommandKind::Close
        | CommandKind::Revoke
        | CommandKind::Evict => readable(command),
        CommandKind::Form
        | CommandKind::TermStart
        | CommandKind::Tick
        | CommandKind::Renew
        | CommandKind::DrawNodeId
        | CommandKind::PodEnded
        | CommandKind::RaiseLevel
        | CommandKind::Seed => Err(Refused::LeadersOwn(kind)),
    }
}

/// Lets a command pass that every member can read. Each node stops before an entry that it cannot
/// read, so one that is damaged must not get into the log by another node's mistake or malice.
fn readable(command: &[u8]) -> Result<(), Refused> {
    match decode_command(command) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refused::Unknown),
    }
}

/// Tells the operator what was refused, once in a while.
pub(crate) struct Refusals(Mutex<Rarely>);

impl Refusals {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rarely::new()))
    }

    /// `caller` is the node id that the caller names.
    pub(crate) fn tell(&self, caller: u64, why: &Refused) {
        if let Some(unsaid) = self.0.lock().say() {
            tracing::warn!(caller, %why, unsaid, "a command of another node is refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_core::{Called, Caller, Command, Principal, Renew, Secret, SessionId};
    use ringfence_proto::record::encode_command;

    use super::*;

    #[test]
    fn what_is_not_exactly_one_command_is_unknown() {
        // A tick; the same with a session to open before it, with more bytes, with fewer, and as a
        // number.
        assert_eq!(
            allowed(&[0x1a, 0x00]),
            Err(Refused::LeadersOwn(CommandKind::Tick))
        );
        for damaged in [
            &[0x2a, 0x00, 0x1a, 0x00][..],
            &[0x2a, 0x00, 0x00],
            &[0x2a, 0x01],
            &[0x28, 0x00],
            &[0x9a, 0x06, 0x00],
            &[],
        ] {
            assert_eq!(allowed(damaged), Err(Refused::Unknown), "{damaged:?}");
        }
        // Of a kind that clients may ask for, and without what it needs.
        assert_eq!(allowed(&[0x2a, 0x00]), Err(Refused::Unknown));
        let (session, secret) = (SessionId::new(7).unwrap(), Secret::new([7; 16]));
        let close = encode_command(&Command::Close { session, secret });
        assert_eq!(allowed(&close), Ok(()));
        assert_eq!(allowed(&close[..close.len() - 1]), Err(Refused::Unknown));
    }

    #[test]
    fn a_callers_name_makes_no_clients_command_of_a_leaders() {
        let called = |command| {
            let caller = Caller {
                principal: Principal::local(),
                token: None,
                node: 1,
            };
            encode_command(&Command::Called(Box::new(Called { caller, command })))
        };
        let (session, secret) = (SessionId::new(7).unwrap(), Secret::new([7; 16]));
        assert_eq!(allowed(&called(Command::Close { session, secret })), Ok(()));
        for command in [
            Command::Tick,
            Command::Renew(Renew::default()),
            Command::RaiseLevel { level: 4 },
        ] {
            assert_eq!(allowed(&called(command)), Err(Refused::Unknown));
        }
    }

    #[test]
    fn flooding_refusals_are_told_once() {
        let refusals = Refusals::new();
        for caller in 0..1_000 {
            refusals.tell(caller, &Refused::Unknown);
        }
        assert_eq!(refusals.0.lock().say(), None);
    }
}
