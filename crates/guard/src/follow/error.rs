//! Why a follower lets a fence not pass.

use ringfence_core::{ClusterId, FencingToken, LeaseName};

use crate::{EndsBelief, Refused};

/// Why a fence did not pass a [`FloorFollower`](super::FloorFollower).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// Refused for good: see [`Refused`].
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The cluster has reported no grant with this token, nor has it while the request waited. A
    /// forged token, or floors that are later than the patience.
    #[error(
        "UNKNOWN_TOKEN: token {offered} of lease `{name}` is greater than any that the cluster has \
         reported ({}); if it was granted, try again in a second", newest(*.floor)
    )]
    UnknownToken {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
        /// The newest floor of the lease; `None` if no client is known to have held it.
        floor: Option<FencingToken>,
    },
    /// Floors cannot be followed at the moment, and without them this token is not let pass.
    #[error(
        "NO_FLOORS: whether token {offered} of lease `{name}` was granted cannot be seen, since no \
         stream of floors is live; try again in a second"
    )]
    NoFloors {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
    },
    /// The floor of this name was reported and forgotten, to make room for names that were granted
    /// later; and without it this token is not let pass. The next grant of the name is known again.
    #[error(
        "FORGOTTEN_FLOOR: whether token {offered} of lease `{name}` is its newest cannot be seen, \
         since its floor was forgotten for names granted later: at most {names_max} names and \
         {bytes_max} bytes are remembered; follow a narrower prefix, or raise Options::names_max \
         and Options::bytes_max"
    )]
    Forgotten {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
        /// The limit of names.
        names_max: usize,
        /// The limit of bytes.
        bytes_max: usize,
    },
    /// The caller's grant is of a cluster that this follower is not bound to. It says nothing of that
    /// grant at its own cluster.
    #[error(
        "OTHER_CLUSTER: token {offered} of lease `{name}` was granted by cluster {cluster}, and only \
         tokens of {} pass here; acquire the lease at one of these, or add the cluster to \
         Options::clusters", listed(.expected)
    )]
    OtherCluster {
        /// The lease.
        name: LeaseName,
        /// The token that was shown.
        offered: FencingToken,
        /// Who granted it, as the caller says.
        cluster: ClusterId,
        /// Whose tokens pass.
        expected: Vec<ClusterId>,
    },
    /// As many requests as may wait for floors wait already.
    #[error("CROWDED: {max} requests wait for floors, which is the limit; try again in a second")]
    Crowded {
        /// The limit.
        max: usize,
    },
}

impl FollowError {
    /// The reason as one word for machines.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.reason(),
            Self::UnknownToken { .. } => "UNKNOWN_TOKEN",
            Self::NoFloors { .. } => "NO_FLOORS",
            Self::Forgotten { .. } => "FORGOTTEN_FLOOR",
            Self::OtherCluster { .. } => "OTHER_CLUSTER",
            Self::Crowded { .. } => "CROWDED",
        }
    }

    /// Whether the same fence may pass later: true for all but [`FollowError::Refused`] and
    /// [`FollowError::OtherCluster`].
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(self, Self::Refused(_) | Self::OtherCluster { .. })
    }

    /// The refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::UnknownToken { .. }
            | Self::NoFloors { .. }
            | Self::Forgotten { .. }
            | Self::OtherCluster { .. }
            | Self::Crowded { .. } => None,
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for FollowError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

fn listed(clusters: &[ClusterId]) -> String {
    let clusters: Vec<String> = clusters.iter().map(ToString::to_string).collect();
    clusters.join(" and ")
}

fn newest(floor: Option<FencingToken>) -> String {
    floor.map_or_else(|| "none".to_owned(), |floor| format!("newest: {floor}"))
}
