//! What a caller wants of the members, and how it hears what became of it.

use std::time::Duration;

use ringfence_core::OPERATE_BYTES_MAX;
use ringfence_proto::raft as pb;
use tokio::sync::{mpsc, oneshot};

use super::error::MembershipError;
use crate::platform::clock;
use crate::types::codec;
use crate::types::type_config::Peer;

/// The most wishes that wait for one leader; further ones are refused as not done.
pub(crate) const WISHES_MAX: usize = 64;
/// The most bytes of a node's name.
pub const NAME_BYTES_MAX: usize = 255;
/// The most bytes of an address: a host name of 255 bytes, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 261;

/// A change that an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Take this node in as a learner.
    Add(Peer),
    /// Give a learner a vote.
    Promote {
        node_id: u64,
        /// The member that goes in the same change; `None`: the voter of the same name, if any.
        replaces: Option<u64>,
        /// Without regard to who is heard and what a quorum needs.
        force: bool,
    },
    /// Remove a member.
    Remove { node_id: u64, force: bool },
}

/// What a leader is asked about its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Change(Ask),
    /// 0: the voter that is furthest ahead.
    HandOver(u64),
    List,
}

impl Request {
    pub(crate) fn from_pb(message: pb::ChangeMembers) -> Result<Self, MembershipError> {
        use pb::change_members::Change;
        let force = message.force;
        Ok(match message.change {
            Some(Change::Add(member)) => {
                let (_, peer) = codec::peer_from_pb(member)
                    .map_err(|error| MembershipError::refused(error.to_string()))?;
                check(&peer)?;
                Self::Change(Ask::Add(peer))
            }
            Some(Change::Promote(promote)) => Self::Change(Ask::Promote {
                node_id: promote.node_id,
                replaces: (promote.replaces != 0).then_some(promote.replaces),
                force,
            }),
            Some(Change::Remove(node_id)) => Self::Change(Ask::Remove { node_id, force }),
            Some(Change::TransferLeader(to)) => Self::HandOver(to),
            Some(Change::List(pb::Nothing {})) => Self::List,
            None => {
                return Err(MembershipError::refused(
                    "the leader's release does not know this change: upgrade it first",
                ));
            }
        })
    }
}

impl Request {
    /// What is asked, for people: at most [`OPERATE_BYTES_MAX`]. `called` names a member.
    pub(crate) fn described(&self, called: impl Fn(u64) -> String) -> String {
        let by_force = |force: &bool| if *force { " by force" } else { "" };
        let mut text = match self {
            Self::Change(Ask::Add(peer)) => format!("add {} at {}", peer.name, peer.peer_address),
            Self::Change(Ask::Promote {
                node_id,
                replaces,
                force,
            }) => {
                let replaces = replaces.map(|id| format!(" in place of {}", called(id)));
                let (who, force) = (called(*node_id), by_force(force));
                format!("promote {who}{}{force}", replaces.unwrap_or_default())
            }
            Self::Change(Ask::Remove { node_id, force }) => {
                format!("remove {}{}", called(*node_id), by_force(force))
            }
            Self::HandOver(0) => "hand leadership to the voter that is furthest ahead".to_owned(),
            Self::HandOver(to) => format!("hand leadership to {}", called(*to)),
            Self::List => "list the members".to_owned(),
        };
        text.truncate(text.floor_char_boundary(OPERATE_BYTES_MAX));
        text
    }

    /// Whether a node may ask it for itself, without a client: to join, to get a vote, to leave. Its
    /// peer credential, by which it is heard at all, is its right to that.
    pub(crate) fn can_be_own(&self) -> bool {
        match self {
            Self::Change(Ask::Add(_)) => true,
            Self::Change(Ask::Promote { force, .. } | Ask::Remove { force, .. }) => !force,
            Self::HandOver(_) | Self::List => false,
        }
    }
}

fn check(peer: &Peer) -> Result<(), MembershipError> {
    let limits = [
        ("name", &peer.name, 1, NAME_BYTES_MAX),
        ("peer address", &peer.peer_address, 1, ADDRESS_BYTES_MAX),
        ("client address", &peer.client_address, 0, ADDRESS_BYTES_MAX),
    ];
    for (what, text, min, max) in limits {
        if !(min..=max).contains(&text.len()) {
            let got = text.len();
            return Err(MembershipError::refused(format!(
                "invalid {what} of the new member: got {got} bytes, expected {min} to {max}"
            )));
        }
        // It stands in tables and logs, where a line break would make a member that is not there.
        if !text.chars().all(|one| one.is_ascii_graphic()) {
            return Err(MembershipError::refused(format!(
                "invalid {what} of the new member: got {text:?}, expected letters, digits and \
                 punctuation of ASCII, without blanks"
            )));
        }
    }
    Ok(())
}

/// An [`Ask`] whose caller waits, or has gone away.
pub(crate) struct Wish {
    pub(crate) ask: Ask,
    /// On [`clock::since_boot`].
    pub(crate) made: Duration,
    /// When its caller is answered at the latest, on the same clock.
    pub(crate) deadline: Duration,
    /// Whether an entry of it may be in the log: from then on it is not "not done" any more.
    pub(crate) begun: bool,
    reply: Option<oneshot::Sender<Outcome>>,
}

/// The id of the member that the change was about.
pub(crate) type Outcome = Result<u64, MembershipError>;

impl Wish {
    pub(crate) fn new(ask: Ask, lasts: Duration) -> (Self, oneshot::Receiver<Outcome>) {
        let (reply, outcome) = oneshot::channel();
        let made = clock::since_boot();
        let wish = Self {
            ask,
            made,
            deadline: made + lasts,
            begun: false,
            reply: Some(reply),
        };
        (wish, outcome)
    }

    /// Whether its caller has gone away.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    pub(crate) fn answer(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    /// Says that nothing was done so far, or that it is not known.
    pub(crate) fn answer_unfinished(self, why: &str) {
        let outcome = Err(self.unfinished(why));
        self.answer(outcome);
    }

    fn unfinished(&self, why: &str) -> MembershipError {
        if self.begun {
            MembershipError::unknown(format!(
                "the change has begun, and the leader finishes it: {why}"
            ))
        } else {
            MembershipError::not_done(why)
        }
    }

    fn tell(&mut self, outcome: Outcome) {
        // An abandoned wish has no reader, and that is fine.
        if let Some(reply) = self.reply.take() {
            reply.send(outcome).ok();
        }
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        let lost = self.unfinished("the leader's term ended");
        self.tell(Err(lost));
    }
}

/// Where wishes wait for the leader of one term.
pub(crate) type Wishes = mpsc::Sender<Wish>;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wish_that_was_begun_is_never_called_not_done() {
        let ask = Ask::Remove {
            node_id: 3,
            force: false,
        };
        let (wish, outcome) = Wish::new(ask.clone(), Duration::ZERO);
        drop(wish);
        assert!(matches!(
            outcome.await.unwrap(),
            Err(MembershipError::NotDone { .. })
        ));
        let (mut wish, outcome) = Wish::new(ask, Duration::ZERO);
        wish.begun = true;
        drop(wish);
        assert!(matches!(
            outcome.await.unwrap(),
            Err(MembershipError::Unknown { .. })
        ));
    }

    #[test]
    fn a_change_is_told_in_a_line_that_an_entry_can_hold() {
        let called = |id: u64| format!("n{id} (node {id})");
        let remove = Request::Change(Ask::Remove {
            node_id: 17,
            force: true,
        });
        assert_eq!(remove.described(called), "remove n17 (node 17) by force");
        let promote = Request::Change(Ask::Promote {
            node_id: 5,
            replaces: Some(4),
            force: false,
        });
        let told = "promote n5 (node 5) in place of n4 (node 4)";
        assert_eq!(promote.described(called), told);
        let add = Request::Change(Ask::Add(Peer {
            name: "n".repeat(NAME_BYTES_MAX),
            peer_address: "h".repeat(ADDRESS_BYTES_MAX),
            ..Peer::default()
        }));
        assert_eq!(add.described(called).len(), OPERATE_BYTES_MAX);
    }

    #[test]
    fn a_member_with_an_endless_name_is_refused_by_its_length() {
        let peer = Peer {
            name: "n".repeat(9_000),
            peer_address: "h:1".to_owned(),
            ..Peer::default()
        };
        let why = check(&peer).unwrap_err().to_string();
        assert!(why.contains("9000 bytes") && why.len() < 200, "{why}");
    }

    #[test]
    fn a_member_whose_name_breaks_a_line_is_refused() {
        let peer = Peer {
            name: "x\n99  n9".to_owned(),
            peer_address: "h:1".to_owned(),
            ..Peer::default()
        };
        let why = check(&peer).unwrap_err().to_string();
        assert!(why.contains(r"x\n99") && !why.contains('\n'), "{why}");
    }
}
