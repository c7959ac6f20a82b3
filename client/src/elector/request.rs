//! What a campaign is asked.

use ringfence_core::SessionId;

/// Who gets the lease of a leader that gives it up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Successor {
    /// Who has waited the longest.
    #[default]
    Next,
    /// This session; if it does not wait for the lease, who has waited the longest.
    Session(SessionId),
    /// A session with this identity that waits for the lease; if there is none, who has waited the
    /// longest.
    Identity(String),
}

/// What the campaign was asked last.
#[derive(Clone, Debug, Default)]
pub(super) struct CampaignRequest {
    /// Give up the term, and go on.
    pub(super) step_down: bool,
    /// Give up the term, and end.
    pub(super) leave: bool,
    pub(super) successor: Successor,
}
