//! Several leases of one kind, and how many of them one process takes.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::Arc;

use super::campaign::{Campaign, CampaignError};
use super::leading::Leading;
use super::limit::LeaseLimit;
use super::outcome::Outcome;

/// A campaign for each of a number of shards; [`Elector::candidates`](super::Elector::candidates)
/// makes them. Change what they have in common here, or take them apart with
/// [`into_iter`](IntoIterator::into_iter).
#[derive(Debug)]
#[must_use = "candidates do nothing until they are run"]
pub struct Candidates {
    pub(super) campaigns: Vec<Campaign>,
}

impl Candidates {
    /// Holds at most so many shards at a time, so that others find some left. While it holds them
    /// it does not wait for more: the limits of those that survive a failure should add up to all
    /// shards.
    pub fn at_most(self, most: usize) -> Self {
        let limit = LeaseLimit::new(most);
        self.each(|campaign| campaign.within(Arc::clone(&limit)))
    }

    /// Changes every campaign in the same way.
    pub fn each(self, change: impl FnMut(Campaign) -> Campaign) -> Self {
        Self {
            campaigns: self.campaigns.into_iter().map(change).collect(),
        }
    }

    /// Runs all campaigns, each with work of its own; which shard it is for tells
    /// [`Leading::shard`]. See [`Campaign::run`].
    ///
    /// # Errors
    /// The first [`CampaignError`]; the other campaigns end with it.
    pub async fn run<W, F>(self, work: W) -> Result<(), CampaignError>
    where
        W: FnMut(Leading) -> F + Clone,
        F: Future,
        F::Output: Outcome,
    {
        let campaigns = self.campaigns.into_iter();
        let mut running: FuturesUnordered<_> = campaigns
            .map(|campaign| campaign.run(work.clone()))
            .collect();
        while let Some(over) = running.next().await {
            over?;
        }
        Ok(())
    }
}

impl IntoIterator for Candidates {
    type Item = Campaign;
    type IntoIter = std::vec::IntoIter<Campaign>;

    fn into_iter(self) -> Self::IntoIter {
        self.campaigns.into_iter()
    }
}
