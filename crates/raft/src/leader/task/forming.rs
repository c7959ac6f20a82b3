//! The first entries of a cluster: its forming and, if it is restored, the parts of its state.

use std::time::Duration;

use ringfence_core::{BackupDigest, Command, Form, Outcome, Rejection, Seed, WallTime};

use super::{LeadershipTask, OPEN_RETRY};
use crate::config::Restore;
use crate::leader::term::LeaderTerm;
use crate::types::reply::{Applied, ProposeError};

/// How often it says that it cannot form the cluster yet, in tries: every 5 s, if they fail at once.
const FORM_SAY_EVERY: u32 = 250;
/// How often a leader that cannot form the cluster says so, and asks another first member to lead.
const LACKS_SAY_EVERY: Duration = Duration::from_secs(5);

/// What the cluster is formed with, should this node lead it first.
pub(crate) enum Forming {
    /// Without a past.
    Anew(Form),
    /// From a backup.
    Restoring {
        restore: Restore,
        form: Form,
        /// Proposed behind it, in this order.
        seeds: Vec<Seed>,
    },
    /// This node took its seat in a cluster that begins with this, and was not started with it.
    Lacks(BackupDigest),
}

impl Forming {
    /// Whether a token floor takes the place of the wall clock, for the cluster's whole life.
    pub(super) fn replaces_clock(&self) -> bool {
        let form = match self {
            Self::Anew(form) | Self::Restoring { form, .. } => form,
            Self::Lacks(_) => return false,
        };
        let restored = form.restored.as_ref();
        form.token_floor.is_some() && restored.is_none_or(|restored| restored.drill)
    }

    /// Whether the tokens of the cluster can begin at this wall clock, as far as a backup says.
    ///
    /// # Errors
    /// What this node waits for, and the way out.
    pub(super) fn check_clock(&self, wall: WallTime) -> Result<(), String> {
        match self {
            Self::Restoring { restore, form, .. } => restore.check_clock(wall, form.token_floor),
            Self::Anew(_) | Self::Lacks(_) => Ok(()),
        }
    }
}

impl LeadershipTask {
    /// Forms the cluster, or goes on where an earlier leader stopped. Returns whether it is formed.
    pub(super) async fn form_cluster(&self, leading: &LeaderTerm) -> bool {
        match &self.forming {
            Forming::Anew(form) => {
                if !self.write_form(leading, form).await {
                    return false;
                }
                let seeding = self.state.machine().seeding().map(|seeding| seeding.digest);
                match seeding {
                    Some(digest) => self.wait_for_backup(digest).await,
                    None => true,
                }
            }
            Forming::Restoring { form, seeds, .. } => {
                self.write_form(leading, form).await && self.write_seeds(leading, seeds).await
            }
            Forming::Lacks(digest) => self.wait_for_backup(*digest).await,
        }
    }

    async fn write_form(&self, leading: &LeaderTerm, form: &Form) -> bool {
        let mut turn = 0;
        for tries in 1_u32.. {
            match leading.write(&Command::Form(form.clone())).await {
                Ok(Applied {
                    outcome: Outcome::Done,
                    ..
                }) => {
                    tracing::info!(cluster = %form.cluster, "the cluster is formed");
                    return true;
                }
                Ok(Applied {
                    outcome: Outcome::Rejected(Rejection::AlreadyFormed { .. }),
                    ..
                }) => {
                    return true;
                }
                Ok(Applied { outcome, .. }) => {
                    // Another first member may have other flags or another clock.
                    tracing::error!(
                        ?outcome,
                        "the cluster cannot be formed with the flags and the clock of this node; it \
                         offers leadership to the others"
                    );
                    self.hand_over(turn).await;
                    turn += 1;
                    tokio::time::sleep(LACKS_SAY_EVERY).await;
                }
                Err(ProposeError::Fault { .. }) => return false,
                Err(error) if tries.is_multiple_of(FORM_SAY_EVERY) => {
                    tracing::warn!(%error, "the cluster is not formed yet");
                }
                Err(error) => tracing::debug!(%error, "the cluster is not formed yet"),
            }
            tokio::time::sleep(OPEN_RETRY).await;
        }
        false
    }

    /// The state says which part comes next, so what an earlier leader has written is not repeated.
    async fn write_seeds(&self, leading: &LeaderTerm, seeds: &[Seed]) -> bool {
        let mut tries = 1_u32;
        loop {
            let Some(lacks) = self.state.machine().seeding().cloned() else {
                tracing::info!(
                    parts = seeds.len(),
                    "the cluster has all of its restored state"
                );
                return true;
            };
            let next = usize::try_from(lacks.done).ok();
            let next = next.and_then(|next| seeds.get(next));
            let Some(seed) = next.filter(|seed| seed.digest == lacks.digest) else {
                return self.wait_for_backup(lacks.digest).await;
            };
            match leading.write(&Command::Seed(seed.clone())).await {
                Ok(Applied {
                    outcome: Outcome::Done,
                    ..
                }) => continue,
                Ok(Applied { outcome, .. }) => {
                    tracing::error!(?outcome, part = seed.part, "the cluster cannot be restored");
                    return false;
                }
                Err(ProposeError::Fault { .. }) => return false,
                Err(error) if tries.is_multiple_of(FORM_SAY_EVERY) => {
                    tracing::warn!(%error, part = seed.part, "a part is not restored yet");
                }
                Err(error) => tracing::debug!(%error, "a part is not restored yet"),
            }
            tries += 1;
            tokio::time::sleep(OPEN_RETRY).await;
        }
    }

    /// Only a first member with the backup can go on. Another one that leads offers leadership, until
    /// it is taken or this node is started again.
    async fn wait_for_backup(&self, digest: BackupDigest) -> bool {
        for turn in 0.. {
            tracing::error!(
                %digest,
                "the first members have agreed on what the cluster begins with, and this node, which \
                 leads, was not started with it: start each first member with the same --restore, \
                 --digest, --rules, --access, --drill, --quiet-time and --token-floor as before"
            );
            self.hand_over(turn).await;
            tokio::time::sleep(LACKS_SAY_EVERY).await;
        }
        false
    }
}
