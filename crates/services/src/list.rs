//! Lists of leases, page by page, all pages at one index.
//!
//! The first page freezes the state, and the node keeps the frozen state for a while: later pages
//! are read out of it. A page asked for too late, or at another node, is `COMPACTED`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message;
use ringfence_core::{Access, Frozen, Mode, Principal, Scope};
use ringfence_planted::{Bug, planted};
use ringfence_proto::{Refusal, v1, wire};

use super::Context;
use super::paging::{Page, page_room};
use crate::caller::Who;
use crate::clients::{Account, Reserved};
use crate::displaced::displaced;
use crate::limits::{LISTING_AGE_MAX, LISTINGS_MAX, PAGE_BYTES_MAX};
use crate::rights::judged;

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

/// The state at one index.
struct Listing {
    id: u64,
    /// The node that has it.
    node: u64,
    principal: Option<Principal>,
    prefix: String,
    at: v1::ReadPoint,
    state: Frozen,
}

/// What a page token says.
#[derive(Debug, PartialEq, Eq)]
struct Token<'a> {
    node: u64,
    index: u64,
    listing: u64,
    /// The last name of the page before.
    last: &'a str,
}

impl Listings {
    /// The page that is asked for.
    pub(super) async fn page(
        self: &Arc<Self>,
        context: &Context,
        account: &Arc<Account>,
        who: &Who,
        request: v1::ListRequest,
    ) -> Result<Page<v1::ListResponse>, Refusal> {
        let wire::ListAsk {
            prefix,
            page_size,
            page_token,
            max_staleness,
        } = wire::list_from_wire(request)?;
        let size = usize::try_from(page_size).unwrap_or(usize::MAX);
        let caller = context.caller(who);
        let may = |access: &Access| access.judge_read(who.principal(), Scope::Prefix(&prefix));
        let judge = |access: &Access| judged(access, caller.as_ref(), may);
        let node = || context.node.status().node_id.unwrap_or_default();
        if !page_token.is_empty() {
            let token = Token::parse(&page_token)?;
            let listing = self.find(&token).ok_or_else(|| token.compacted(node()))?;
            if listing.prefix != prefix {
                let allowed = "the prefix of the page before, for the same list";
                return Err(Refusal::invalid("prefix", format!("{prefix:?}"), allowed));
            }
            // A right that is gone since the first page is gone for the rest, also if rights did not
            // bind when the list was begun.
            let began_off = listing.state.access().mode() == Mode::Off;
            if !(began_off && planted(Bug::OldListUnjudged)) {
                context.heed(judge(&context.node.access()))?;
            }
            if let Err(rejection) = judge(listing.state.access()) {
                return Err(Refusal::from_rejection(&rejection));
            }
            let room = page_room(account, size).await?;
            let page = read_page(context, || listing.page_behind(Some(token.last), size));
            return Ok(Page::new(room, page));
        }
        let ask = Ask {
            prefix,
            size,
            max_staleness,
        };
        let (room, listing) = begin(context, account, who, ask).await?;
        let page = read_page(context, || listing.page_behind(None, size));
        let Some(last) = more_behind(&page) else {
            return Ok(Page::new(room, page));
        };
        let page = v1::ListResponse {
            next_page_token: self.keep(listing).token(&last),
            ..page
        };
        Ok(Page::new(room, page))
    }

    fn find(&self, token: &Token<'_>) -> Option<Arc<Listing>> {
        let mut kept = self.lock();
        let listings = &mut kept.listings;
        let is_meant =
            |listing: &Arc<Listing>| listing.id == token.listing && listing.node == token.node;
        let found = listings.iter().position(is_meant)?;
        // One that is read on goes last.
        let listing = listings.remove(found)?;
        listings.push_back(Arc::clone(&listing));
        Some(listing)
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
        let oldest = match kept.listings.len() > LISTINGS_MAX {
            true => {
                let principals = kept.listings.iter().map(|it| it.principal.as_ref());
                displaced(principals).and_then(|at| kept.listings.remove(at))
            }
            false => None,
        };
        drop(kept);
        drop(oldest);

        let (listings, id) = (Arc::downgrade(self), listing.id);
        ringfence_raft::spawn(async move {
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

/// What a list is asked for.
struct Ask {
    prefix: String,
    size: usize,
    max_staleness: Option<Duration>,
}

/// Freezes the state for a list that the caller may have, with room for its first page.
async fn begin(
    context: &Context,
    account: &Arc<Account>,
    who: &Who,
    ask: Ask,
) -> Result<(Reserved, Listing), Refusal> {
    context.admit(who)?;
    let ready = context.ready_for_page(account, ask.size, ask.max_staleness);
    let (room, age) = ready.await?;
    let state = context.node.frozen();
    let caller = context.caller(who);
    let may = |access: &Access| access.judge_read(who.principal(), Scope::Prefix(&ask.prefix));
    context.heed(judged(state.access(), caller.as_ref(), may))?;
    let at = wire::read_point_to_wire(state.index(), state.summary().time, age);
    let listing = Listing {
        id: 0,
        node: context.node.status().node_id.unwrap_or_default(),
        principal: who.principal().cloned(),
        prefix: ask.prefix,
        at,
        state,
    };
    Ok((room, listing))
}

/// The leases behind the name `after`, out of the present state. The node keeps nothing for a next
/// page: that one stands at another index, and its `page_token` is the last name of this page.
pub(super) async fn present_page(
    context: &Context,
    account: &Arc<Account>,
    who: &Who,
    request: v1::ListRequest,
) -> Result<Page<v1::ListResponse>, Refusal> {
    let asked = wire::list_from_wire(request)?;
    let size = usize::try_from(asked.page_size).unwrap_or(usize::MAX);
    let ask = Ask {
        prefix: asked.prefix,
        size,
        max_staleness: asked.max_staleness,
    };
    let (room, listing) = begin(context, account, who, ask).await?;
    let after = Some(asked.page_token.as_str()).filter(|after| !after.is_empty());
    let mut page = read_page(context, || listing.page_behind(after, size));
    page.next_page_token = more_behind(&page).unwrap_or_default();
    Ok(Page::new(room, page))
}

/// Reads a page without the lock that entries are applied under.
fn read_page(context: &Context, page: impl FnOnce() -> v1::ListResponse) -> v1::ListResponse {
    if planted(Bug::ListsUnderTheLock) {
        return context.node.read(|_| page());
    }
    page()
}

impl Listing {
    /// The leases behind the name `last`; the token of the next page is there if there is one. All
    /// pages say the same of the state that they are read out of, its age when it was frozen
    /// included.
    fn page_behind(&self, last: Option<&str>, size: usize) -> v1::ListResponse {
        let mut leases: Vec<v1::Lease> = Vec::new();
        let mut bytes = 0;
        let mut more = false;
        for view in self.state.list(&self.prefix, last) {
            if leases.len() >= size {
                more = true;
                break;
            }
            let lease = wire::lease_to_wire(&view);
            bytes += lease.encoded_len();
            if bytes > PAGE_BYTES_MAX && !leases.is_empty() {
                more = true;
                break;
            }
            leases.push(lease);
        }
        let next_page_token = match leases.last() {
            Some(last) if more => self.token(&last.name),
            _ => String::new(),
        };
        v1::ListResponse {
            leases,
            next_page_token,
            at: Some(self.at),
        }
    }

    fn token(&self, last: &str) -> String {
        format!("{}.{}.{}.{last}", self.node, self.at.index, self.id)
    }
}

/// The last name of a page that is not the last one.
fn more_behind(page: &v1::ListResponse) -> Option<String> {
    let last = page
        .leases
        .last()
        .filter(|_| !page.next_page_token.is_empty());
    last.map(|last| last.name.clone())
}

impl<'a> Token<'a> {
    fn parse(token: &'a str) -> Result<Self, Refusal> {
        let mut parts = token.splitn(4, '.');
        let mut number = || parts.next()?.parse().ok();
        let parsed = (|| Some((number()?, number()?, number()?)))();
        let last = parts.next();
        match (parsed, last) {
            (Some((node, index, listing)), Some(last)) => Ok(Self {
                node,
                index,
                listing,
                last,
            }),
            _ => {
                let allowed = "next_page_token of the page before";
                Err(Refusal::invalid(
                    "page_token",
                    format!("{token:?}"),
                    allowed,
                ))
            }
        }
    }

    /// The list cannot be read on here.
    fn compacted(&self, here: u64) -> Refusal {
        let Self { node, index, .. } = self;
        let why = if *node == here {
            format!(
                "the list of index {index} is no longer kept: a node keeps {LISTINGS_MAX} lists, \
                 each for {LISTING_AGE_MAX:?}; begin with the first page"
            )
        } else {
            format!(
                "the list of index {index} was begun at node {node}, and this is node {here}: ask \
                 node {node} for the next page, or begin with the first page here"
            )
        };
        Refusal::new(v1::Reason::Compacted, why)
            .with("node", node)
            .with("index", index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use ringfence_core::{Entry, Event, Outcome, StateMachine};
    use ringfence_raft::{Hooks, Observer};

    use super::*;
    use crate::alone::{PATIENCE, alone_with};
    use crate::clients::Pool;

    fn listing() -> Listing {
        Listing {
            id: 5,
            node: 2,
            principal: None,
            prefix: String::new(),
            at: v1::ReadPoint {
                index: 7,
                cluster_time_ms: 100,
                age_ms: 1,
            },
            state: StateMachine::new().freeze(),
        }
    }

    #[test]
    fn a_page_token_names_its_node_its_index_and_the_last_name() {
        let token = listing().token("a.b");
        let parsed = Token::parse(&token).unwrap();
        assert_eq!(
            parsed,
            Token {
                node: 2,
                index: 7,
                listing: 5,
                last: "a.b"
            }
        );
    }

    #[test]
    fn the_pages_of_a_list_agree_on_the_state_they_show() {
        let listing = listing();
        let first = listing.page_behind(None, 2);
        let later = listing.page_behind(Some("a"), 2);
        assert_eq!(
            (later.leases.len(), later.next_page_token.as_str()),
            (0, "")
        );
        assert_eq!(first.at, Some(listing.at));
        assert_eq!(later.at, first.at);
    }

    /// Stops within the next entry that is applied, under the lock that it is applied under.
    #[derive(Default)]
    struct Stopping(Mutex<Option<Stop>>);

    struct Stop {
        stopped: mpsc::Sender<()>,
        go_on: mpsc::Receiver<()>,
        /// Whether it was ordered to go on, and did not have to on its own.
        told: mpsc::Sender<bool>,
    }

    impl Observer for Stopping {
        fn applied(&self, _: &StateMachine, _: &Entry, _: &Outcome, _: &[Event]) {
            let stop = self.0.lock().unwrap().take();
            if let Some(stop) = stop {
                stop.stopped.send(()).unwrap();
                let told = stop.go_on.recv_timeout(PATIENCE / 4).is_ok();
                stop.told.send(told).unwrap();
            }
        }

        fn skipped(&self, _: &StateMachine, _: u64, _: u64) {}

        fn installed(&self, _: &StateMachine, _: u64, _: u64) {}

        fn leads(&self, _: u64) {}

        fn leads_no_more(&self, _: u64) {}
    }

    /// Whatever takes long to be read holds up no entry: a page is read in the middle of one.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_page_is_read_without_the_lock_that_entries_are_applied_under() {
        let stopping = Arc::<Stopping>::default();
        let observer: Arc<dyn Observer> = stopping.clone();
        let hooks = Hooks {
            observer: Some(observer),
            ..Hooks::default()
        };
        let alone = Arc::new(alone_with(hooks).await);
        alone.fill().await;
        let listings = Arc::<Listings>::default();
        let ask = |page_token: String| v1::ListRequest {
            page_size: 10,
            page_token,
            ..v1::ListRequest::default()
        };
        let (account, nobody) = (Account::new(Pool::new()), Who::default());
        let first = listings.page(&alone.context, &account, &nobody, ask(String::new()));
        let token = first.await.unwrap().response().into_inner().next_page_token;

        let (stopped, is_stopped) = mpsc::channel();
        let (go_on, told_to) = mpsc::channel();
        let (told, was_told) = mpsc::channel();
        *stopping.0.lock().unwrap() = Some(Stop {
            stopped,
            go_on: told_to,
            told,
        });
        let other = alone.clone();
        let opened = tokio::spawn(async move { other.open(2).await });
        is_stopped.recv().unwrap();
        // Threads of the node's runtime may all be waiting for the lock.
        let context = alone.context.clone();
        let reading = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            let nobody = Who::default();
            let page = listings.page(&context, &account, &nobody, ask(token));
            let page = runtime.unwrap().block_on(page);
            // An error means that the entry went on before.
            go_on.send(()).ok();
            page
        });
        let page = reading.join().unwrap().unwrap();
        assert!(was_told.recv().unwrap(), "the page waits for the entry");
        assert_eq!(page.response().into_inner().leases.len(), 10);
        opened.await.unwrap();
    }

    #[tokio::test]
    async fn a_list_that_was_begun_before_rights_bind_is_read_on_by_nobody() {
        let alone = alone_with(Hooks::default()).await;
        alone.fill().await;
        let listings = Arc::<Listings>::default();
        let (account, nobody) = (Account::new(Pool::new()), Who::default());
        let ask = |page_token: String| v1::ListRequest {
            page_size: 10,
            page_token,
            ..v1::ListRequest::default()
        };
        let page = |token| listings.page(&alone.context, &account, &nobody, ask(token));
        let first = page(String::new()).await.unwrap().response().into_inner();
        alone.enforce().await;
        let refused = page(first.next_page_token).await.map(drop).unwrap_err();
        assert_eq!(refused.reason, v1::Reason::PermissionDenied, "{refused}");
    }

    #[test]
    fn a_page_of_another_node_is_compacted_and_names_it() {
        let token = Token::parse("2.7.5.a").unwrap();
        let refused = token.compacted(3);
        assert_eq!(refused.reason, v1::Reason::Compacted);
        assert_eq!(refused.metadata["node"], "2");
        assert!(refused.message.contains("node 2"), "{refused}");
        assert!(token.compacted(2).message.contains("no longer kept"));
    }

    #[test]
    fn a_page_token_of_somebody_elses_make_is_refused() {
        for token in ["", "x", "x.y", "-1.y", "1.a", "1.2.3"] {
            assert_eq!(
                Token::parse(token).unwrap_err().reason,
                v1::Reason::InvalidArgument
            );
        }
    }
}
