//! Lists of leases, page by page, all pages at one index.
//!
//! A node keeps no old states. So the first page reads the whole listing at once, up to a limit,
//! and the node keeps the rest of it for a while; a page asked for too late is `COMPACTED`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use ringfence_core::{ClusterTime, LeaseView};
use ringfence_proto::{Refusal, v1, wire};

use super::Context;
use super::reads::point;
use crate::limits::{LISTING_AGE_MAX, LISTING_LEASES_MAX, LISTINGS_MAX, PAGE_BYTES_MAX};

/// The listings that a node keeps for later pages; the oldest comes first.
#[derive(Default)]
pub(super) struct Listings {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    next_id: u64,
    listings: VecDeque<Arc<Listing>>,
}

/// What was found at one index.
struct Listing {
    id: u64,
    prefix: String,
    at: v1::ReadPoint,
    /// In the order of their names.
    leases: Vec<LeaseView>,
    /// Whether there were no more than these.
    whole: bool,
}

impl Listings {
    /// The page that is asked for.
    pub(super) async fn page(
        self: &Arc<Self>,
        context: &Context,
        request: v1::ListRequest,
    ) -> Result<v1::ListResponse, Refusal> {
        let wire::ListAsk {
            prefix,
            page_size,
            page_token,
            max_staleness,
        } = wire::list_from_wire(request)?;
        let size = usize::try_from(page_size).unwrap_or(usize::MAX);
        if !page_token.is_empty() {
            let (id, last) = parse_token(&page_token)?;
            let listing = self.find(id).ok_or_else(compacted)?;
            if listing.prefix != prefix {
                let allowed = "the prefix of the page before, for the same list";
                return Err(Refusal::invalid("prefix", format!("{prefix:?}"), allowed));
            }
            let now = context.node.read(ringfence_core::StateMachine::time);
            return listing.page_behind(Some(last), size, now);
        }
        let age = context.ready_to_read(max_staleness).await?;
        let listing = context.node.read(|machine| {
            let mut found = machine.list(&prefix, None);
            let leases = found.by_ref().take(LISTING_LEASES_MAX).collect();
            let whole = found.next().is_none();
            drop(found);
            Listing {
                id: 0,
                prefix: prefix.clone(),
                at: point(machine, age),
                leases,
                whole,
            }
        });
        let now = ClusterTime(listing.at.cluster_time_ms);
        if listing.whole && listing.leases.len() <= size {
            let page = listing.page_behind(None, size, now)?;
            if page.next_page_token.is_empty() {
                return Ok(page);
            }
        }
        self.keep(listing).page_behind(None, size, now)
    }

    fn find(&self, id: u64) -> Option<Arc<Listing>> {
        self.lock()
            .listings
            .iter()
            .find(|listing| listing.id == id)
            .cloned()
    }

    fn keep(self: &Arc<Self>, mut listing: Listing) -> Arc<Listing> {
        let mut kept = self.lock();
        if kept.next_id == 0 {
            // Another node, or this one before a restart, must not know our listings by number.
            kept.next_id = rand::random::<u64>() >> 1;
        }
        kept.next_id += 1;
        listing.id = kept.next_id;
        let listing = Arc::new(listing);
        kept.listings.push_back(listing.clone());
        let oldest = if kept.listings.len() > LISTINGS_MAX {
            kept.listings.pop_front()
        } else {
            None
        };
        drop(kept);
        drop(oldest);

        let (listings, id) = (Arc::downgrade(self), listing.id);
        tokio::spawn(async move {
            tokio::time::sleep(LISTING_AGE_MAX).await;
            if let Some(listings) = listings.upgrade() {
                listings.lock().listings.retain(|listing| listing.id != id);
            }
        });
        listing
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it holds the lock, so that the listings are whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listing {
    /// The leases behind the name `last`.
    fn page_behind(
        &self,
        last: Option<&str>,
        size: usize,
        now: ClusterTime,
    ) -> Result<v1::ListResponse, Refusal> {
        let start = last.map_or(0, |last| {
            self.leases
                .partition_point(|lease| lease.name.as_str() <= last)
        });
        if start == self.leases.len() && !self.whole {
            return Err(too_long());
        }
        let mut leases = Vec::new();
        let mut bytes = 0;
        for view in self.leases[start..].iter().take(size) {
            let lease = wire::lease_to_wire(view);
            bytes += lease.encoded_len();
            if bytes > PAGE_BYTES_MAX && !leases.is_empty() {
                break;
            }
            leases.push(lease);
        }
        let more = start + leases.len() < self.leases.len() || !self.whole;
        let next_page_token = match leases.last() {
            Some(last) if more => format!("{}.{}", self.id, last.name),
            _ => String::new(),
        };
        let passed = now.since(ClusterTime(self.at.cluster_time_ms)).0;
        let at = v1::ReadPoint {
            age_ms: self.at.age_ms + passed,
            ..self.at
        };
        Ok(v1::ListResponse {
            leases,
            next_page_token,
            at: Some(at),
        })
    }
}

/// A page token: the listing's id and the last name told.
fn parse_token(token: &str) -> Result<(u64, &str), Refusal> {
    token
        .split_once('.')
        .and_then(|(id, last)| Some((id.parse().ok()?, last)))
        .ok_or_else(|| {
            let allowed = "next_page_token of the page before";
            Refusal::invalid("page_token", format!("{token:?}"), allowed)
        })
}

fn compacted() -> Refusal {
    let why = "this node does not keep that list any more, or another one began it; begin with the \
               first page, and ask one node for all pages";
    Refusal::new(v1::Reason::Compacted, why)
}

fn too_long() -> Refusal {
    let why = format!(
        "a list has at most {LISTING_LEASES_MAX} leases at one index; go on with longer prefixes"
    );
    Refusal::new(v1::Reason::Compacted, why)
}

#[cfg(test)]
mod tests {
    use ringfence_core::{LeaseName, Millis};

    use super::*;

    fn listing(names: &[&str], whole: bool) -> Listing {
        let leases = names.iter().map(|name| LeaseView {
            name: LeaseName::parse(name).unwrap(),
            holder: None,
            ttl: Millis(0),
            remaining: Millis(0),
            waiters: 0,
            floor: None,
            blocked: Millis(0),
        });
        let at = v1::ReadPoint {
            index: 7,
            cluster_time_ms: 100,
            age_ms: 1,
        };
        Listing {
            id: 5,
            prefix: String::new(),
            at,
            leases: leases.collect(),
            whole,
        }
    }

    fn names(page: &v1::ListResponse) -> Vec<&str> {
        page.leases
            .iter()
            .map(|lease| lease.name.as_str())
            .collect()
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        let listing = listing(&["a", "a.b", "c"], true);

        let first = listing.page_behind(None, 2, ClusterTime(100)).unwrap();
        let (id, last) = parse_token(&first.next_page_token).unwrap();
        let second = listing
            .page_behind(Some(last), 2, ClusterTime(160))
            .unwrap();

        assert_eq!((id, names(&first)), (5, vec!["a", "a.b"]));
        assert_eq!(names(&second), ["c"]);
        assert_eq!(second.next_page_token, "");
        assert_eq!(
            second.at.unwrap(),
            v1::ReadPoint {
                index: 7,
                cluster_time_ms: 100,
                age_ms: 61
            }
        );
    }

    #[test]
    fn the_end_of_a_cut_list_is_no_end() {
        let listing = listing(&["a"], false);

        let first = listing.page_behind(None, 2, ClusterTime(100)).unwrap();
        let behind = listing.page_behind(Some("a"), 2, ClusterTime(100));

        assert_eq!(first.next_page_token, "5.a");
        assert_eq!(behind.unwrap_err().reason, v1::Reason::Compacted);
    }

    #[test]
    fn a_page_token_of_somebody_elses_make_is_refused() {
        for token in ["", "x", "x.y", "-1.y"] {
            assert_eq!(
                parse_token(token).unwrap_err().reason,
                v1::Reason::InvalidArgument
            );
        }
    }
}
