//! Watches: each object's newest state behind a version, in the order of the versions.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use ringfence_core::{Frozen, GoneObject, LeaseName, ObjectView};
use ringfence_lease_api::accept::{self, Form, form};
use ringfence_lease_api::options::WatchOptions;
use ringfence_lease_api::selector::Selector;
use ringfence_lease_api::shown::{self as encoded, Change};
use ringfence_lease_api::table::Rows;
use ringfence_lease_api::{Failure, Lease};
use ringfence_raft::since_boot;
use ringfence_services::{Fresh, ObjectListing, ObjectRefused, Place};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::body::Body;

use super::failures::{self, What};
use super::lists::{candidates, may_match};
use super::reads::{fresh, now};
use super::shown::{gone, lease, parts, prefix_of};
use super::{Asked, LeaseApi};

/// How often a watch looks whether anything has changed.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often the caller is judged again, also while it leaves lines unread.
const JUDGED_EVERY: Duration = Duration::from_secs(1);
/// After how many looks without news a bookmark says where the watch stands: about 30 s.
const BOOKMARK_LOOKS: u32 = 600;
/// The longest a watch lasts; its client begins another one.
const WATCH_MAX: Duration = Duration::from_secs(1_800);
/// How long a client may leave a line unread.
const READ_STALL_MAX: Duration = Duration::from_secs(30);
/// How long it may take for all that has changed since it was last up to date: its watch keeps the state
/// of then.
const NEWS_READ_MAX: Duration = Duration::from_secs(120);
/// How long the last line of a watch waits for its reader.
const LAST_LINE_MAX: Duration = Duration::from_secs(1);
/// How many lines may wait for a slow reader.
const LINES_MAX: usize = 16;

/// A watch under way.
struct Watch {
    api: LeaseApi,
    asked: Asked,
    prefix: String,
    selector: Selector,
    rows: Option<Rows>,
    /// Everything up to this version was sent.
    sent: u64,
    /// The names that its client knows of.
    known: HashSet<LeaseName>,
    /// The state that it has received last, for what was deleted since.
    received: Option<Frozen>,
    lines: mpsc::Sender<Vec<u8>>,
    first: bool,
    /// When the caller was judged last.
    /// Since the machine was started.
    judged_at: Duration,
    _place: Place,
}

/// The watch is over.
struct Over;

impl LeaseApi {
    pub(super) async fn watch(
        &self,
        asked: Asked,
        namespace: Option<String>,
        options: WatchOptions,
    ) -> Result<Response<Body>, Failure> {
        let form = form(asked.accept().as_deref(), true)?;
        let selector = Selector::parse(&options.label_selector, &options.field_selector)?;
        let what = What {
            verb: "watch",
            namespace: namespace.as_deref().unwrap_or_default(),
            name: "",
        };
        let failed = |refused| failures::of(what, &refused);
        let prefix = prefix_of(namespace.as_deref());
        let place = self.objects.watch_place(&asked.caller).map_err(failed)?;
        let from = options.resource_version.filter(|version| *version > 0);
        let candidates = candidates(namespace.as_deref(), &selector);
        let fresh = fresh(options.resource_version);
        let listing = self.objects.list(&asked.caller, candidates, fresh).await;
        let listing = listing.map_err(failed)?;
        let forgotten = listing.state().objects_forgotten();
        let present = match (options.send_initial_events, from) {
            (Some(true), _) | (None, None) => true,
            (Some(false), None) => false,
            (_, Some(from)) => {
                if from < forgotten {
                    return Err(Failure::too_old(from, forgotten));
                }
                false
            }
        };
        let (lines, waiting) = mpsc::channel(LINES_MAX);
        let rows = matches!(form, Form::Table).then(|| Rows {
            now: now(),
            include: options.include,
        });
        let mut watch = Watch {
            api: self.clone(),
            asked,
            prefix,
            selector,
            rows,
            sent: from.unwrap_or_else(|| listing.version()),
            known: HashSet::new(),
            received: None,
            lines,
            first: true,
            judged_at: since_boot(),
            _place: place,
        };
        let until = options.timeout_seconds.filter(|seconds| *seconds > 0);
        let until = until.map_or(WATCH_MAX, |seconds| {
            Duration::from_secs(seconds).min(WATCH_MAX)
        });
        let ends = options.send_initial_events == Some(true);
        let bookmarks = options.bookmarks;
        tokio::spawn(timeout(until, async move {
            match present {
                true => watch.present(listing, ends).await?,
                false => watch.know(listing).await?,
            }
            watch.run(bookmarks).await
        }));
        let body = stream::unfold(waiting, |mut waiting| async {
            let line = waiting.recv().await?;
            let frame = Frame::data(Bytes::from(line));
            Some((Ok::<_, Infallible>(frame), waiting))
        });
        let mut response = Response::new(Body::new(StreamBody::new(body)));
        let json = HeaderValue::from_static(accept::CONTENT_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, json);
        Ok(response)
    }
}

impl Watch {
    async fn send(&mut self, line: Vec<u8>) -> Result<(), Over> {
        self.first = false;
        let stalled = since_boot() + READ_STALL_MAX;
        let lines = self.lines.clone();
        loop {
            if since_boot() >= self.judged_at + JUDGED_EVERY {
                self.judge().await?;
            }
            match timeout(JUDGED_EVERY, lines.reserve()).await {
                Ok(Ok(room)) => {
                    room.send(line);
                    return Ok(());
                }
                Err(_) if since_boot() < stalled => {}
                Ok(Err(_)) | Err(_) => return Err(Over),
            }
        }
    }

    async fn change(&mut self, change: Change, lease: &Lease) -> Result<(), Over> {
        let line = match &self.rows {
            None => encoded::change(change, lease),
            Some(rows) => {
                let rows = Rows {
                    now: now(),
                    ..*rows
                };
                rows.change(change, lease, self.first)
            }
        };
        self.send(line).await
    }

    async fn bookmark(&mut self, initial: bool) -> Result<(), Over> {
        let line = match &self.rows {
            None => encoded::bookmark(self.sent, initial),
            Some(rows) => rows.bookmark(self.sent, initial, self.first),
        };
        self.send(line).await
    }

    /// Sends the present state.
    async fn present(&mut self, mut listing: ObjectListing, ends: bool) -> Result<(), Over> {
        let cluster = self.api.cluster();
        while let Some(objects) = self.step(&mut listing).await? {
            for object in objects {
                let shown = lease(&object, cluster);
                if self.selector.matches(&shown) {
                    self.known.insert(object.name);
                    self.change(Change::Added, &shown).await?;
                }
            }
        }
        self.sent = listing.version();
        self.received = Some(listing.into_state());
        match ends {
            true => self.bookmark(true).await,
            false => Ok(()),
        }
    }

    /// What a client that goes on behind a version knows of: all that was there then, as far as that
    /// can be said.
    async fn know(&mut self, mut listing: ObjectListing) -> Result<(), Over> {
        let sent = self.sent;
        while let Some(objects) = self.step(&mut listing).await? {
            let known = objects.into_iter().filter(|object| {
                object.created <= sent && self.selector.matches(&lease(object, None))
            });
            self.known.extend(known.map(|object| object.name));
        }
        let state = listing.into_state();
        for (_, name, gone) in state.objects_gone_after(sent) {
            // Its labels are not known any more.
            let only = self.selector.name();
            let selected = only.is_none_or(|only| parts(name).1 == only);
            let here = name.as_str().starts_with(&self.prefix);
            if selected && here && gone.created <= sent {
                self.known.insert(name.clone());
            }
        }
        self.received = Some(state);
        Ok(())
    }

    /// The next objects of the state that the watch begins with.
    async fn step(&mut self, listing: &mut ObjectListing) -> Result<Option<Vec<ObjectView>>, Over> {
        if self.lines.is_closed() {
            return Err(Over);
        }
        let selector = &self.selector;
        let wanted = |name: &LeaseName| may_match(selector, name);
        let next = listing.next(wanted).await;
        match next {
            Ok(objects) => Ok(objects),
            Err(refused) => self.refuse(&refused).await,
        }
    }

    async fn run(&mut self, bookmarks: bool) -> Result<(), Over> {
        let mut quiet_looks = 0;
        loop {
            tokio::select! {
                () = sleep(LOOK_INTERVAL) => {}
                () = self.api.objects.stopped() => return Err(Over),
                () = self.lines.closed() => return Err(Over),
            }
            if since_boot() >= self.judged_at + JUDGED_EVERY {
                self.judge().await?;
            }
            if self.api.objects.version() > self.sent {
                let looked = timeout(NEWS_READ_MAX, self.look()).await;
                if looked.unwrap_or(Err(Over))? {
                    quiet_looks = 0;
                }
            }
            quiet_looks += 1;
            if bookmarks && quiet_looks >= BOOKMARK_LOOKS {
                self.bookmark(false).await?;
                quiet_looks = 0;
            }
        }
    }

    /// Ends with the right and the credential of the caller.
    async fn judge(&mut self) -> Result<(), Over> {
        self.judged_at = since_boot();
        let judged = (self.api.objects).judge_reader(&self.asked.caller, &self.prefix);
        match judged {
            Ok(()) => Ok(()),
            Err(refused) => self.refuse(&refused).await,
        }
    }

    /// Sends what has changed; whether anything was sent.
    async fn look(&mut self) -> Result<bool, Over> {
        let caller = &self.asked.caller;
        let looked = self
            .api
            .objects
            .look(caller, &self.prefix, Fresh::Any)
            .await;
        let state = match looked {
            Ok(state) => state,
            Err(refused) => return self.refuse(&refused).await,
        };
        let forgotten = state.objects_forgotten();
        if self.sent < forgotten {
            return self.fail(&Failure::too_old(self.sent, forgotten)).await;
        }
        let cluster = self.api.cluster();
        let here = |name: &LeaseName| name.as_str().starts_with(&self.prefix);
        let changed = state.objects_changed_after(self.sent);
        let changed = changed.filter(|(_, name)| here(name));
        let changed = changed.map(|(version, name)| (version, name.clone(), None));
        let ended = state.objects_gone_after(self.sent);
        let ended = ended.filter(|(_, name, _)| here(name));
        let ended = ended.map(|(version, name, gone)| (version, name.clone(), Some(*gone)));
        let mut news: Vec<_> = changed.chain(ended).collect();
        news.sort_by_key(|(version, ..)| *version);
        let any = !news.is_empty();
        for (version, name, ended) in news {
            if let Some(ended) = ended {
                // One that was made and deleted since is nothing to a client that never saw it.
                if self.known.remove(&name) {
                    let shown = self.last_of(&name, version, &ended);
                    self.change(Change::Deleted, &shown).await?;
                }
                continue;
            }
            let Some(object) = state.object(&name) else {
                continue;
            };
            let shown = lease(&object, cluster);
            match (self.selector.matches(&shown), self.known.contains(&name)) {
                (true, true) => self.change(Change::Modified, &shown).await?,
                (true, false) => {
                    self.known.insert(name);
                    self.change(Change::Added, &shown).await?;
                }
                (false, true) => {
                    self.known.remove(&name);
                    self.change(Change::Deleted, &shown).await?;
                }
                (false, false) => {}
            }
        }
        self.sent = state.objects_version();
        self.received = Some(state);
        Ok(any)
    }

    /// A deleted object as it was last seen; without a holder and metadata if that was before this
    /// watch.
    fn last_of(&self, name: &LeaseName, version: u64, ended: &GoneObject) -> Lease {
        let cluster = self.api.cluster();
        let last = self
            .received
            .as_ref()
            .and_then(|received| received.object(name));
        match last.filter(|last| last.created == ended.created) {
            Some(last) => lease(&ObjectView { version, ..last }, cluster),
            None => gone(name, version, ended, cluster),
        }
    }

    async fn refuse<T>(&mut self, refused: &ObjectRefused) -> Result<T, Over> {
        let what = What {
            verb: "watch",
            namespace: "",
            name: "",
        };
        self.fail(&failures::of(what, refused)).await
    }

    async fn fail<T>(&mut self, failure: &Failure) -> Result<T, Over> {
        // A slow reader goes without it.
        let last = encoded::error(failure);
        self.lines.send_timeout(last, LAST_LINE_MAX).await.ok();
        Err(Over)
    }
}
