//! Lists, which are made while they are written: a list without a limit is complete, however many leases
//! there are, and neither its node nor other callers wait for it.

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use ringfence_core::{ClusterId, LeaseName};
use ringfence_lease_api::accept::{Form, form};
use ringfence_lease_api::list::ListWriter;
use ringfence_lease_api::options::{ListOptions, Match};
use ringfence_lease_api::selector::Selector;
use ringfence_lease_api::shown::Page;
use ringfence_lease_api::table::Rows;
use ringfence_lease_api::{Failure, Lease};
use ringfence_services::{ObjectListing, ObjectsAsked};
use tonic::Status;
use tonic::body::Body;

use super::failures::{self, What};
use super::reads::{fresh, now};
use super::shown::{lease, name_of, parts, prefix_of};
use super::{Answer, Asked, LeaseApi};

/// The objects of which some may match a selector: where it names one, no other is looked at.
pub(super) fn candidates(namespace: Option<&str>, selector: &Selector) -> ObjectsAsked {
    let all = ObjectsAsked {
        prefix: prefix_of(namespace),
        ..ObjectsAsked::default()
    };
    let Some((namespace, name)) = namespace.zip(selector.name()) else {
        return all;
    };
    match name_of(namespace, name) {
        Ok(only) => ObjectsAsked {
            only: Some(only),
            ..all
        },
        // No lease can be called so.
        Err(_) => ObjectsAsked {
            size: Some(0),
            ..all
        },
    }
}

/// Whether a lease of this name may match.
pub(super) fn may_match(selector: &Selector, name: &LeaseName) -> bool {
    let (namespace, name) = parts(name);
    selector.matches_name(namespace, name)
}

impl LeaseApi {
    pub(super) async fn list(
        &self,
        asked: &Asked,
        namespace: Option<String>,
        options: ListOptions,
    ) -> Result<Answer, Failure> {
        let form = form(asked.accept().as_deref(), true)?;
        let what = What {
            verb: "list",
            namespace: namespace.as_deref().unwrap_or_default(),
            name: "",
        };
        if options.version_match == Some(Match::Exact) {
            let why = "only the present state is kept; ask without resourceVersionMatch=Exact";
            return Err(Failure::expired(why));
        }
        let selector = Selector::parse(&options.label_selector, &options.field_selector)?;
        let from = options.continue_from.as_deref().map(Place::read);
        let from = from.transpose()?;
        let limit = options.limit.filter(|limit| *limit > 0);
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let version = from.as_ref().map(|from| from.version);
        let fresh = match version {
            Some(version) => fresh(Some(version)),
            None => fresh(options.read.resource_version),
        };
        let candidates = candidates(namespace.as_deref(), &selector);
        let candidates = ObjectsAsked {
            size: candidates.size.or(limit),
            after: from.map(|from| from.after),
            ..candidates
        };
        let listing = self.objects.list(&asked.caller, candidates, fresh).await;
        let listing = listing.map_err(|refused| failures::of(what, &refused))?;
        let rows = matches!(form, Form::Table).then(|| Rows {
            now: now(),
            include: options.read.include,
        });
        let pieces = Pieces {
            version: version.unwrap_or_else(|| listing.version()),
            listing,
            selector,
            writer: ListWriter::new(rows),
            cluster: self.cluster(),
        };
        let body = stream::try_unfold(Some(pieces), |pieces| async {
            let Some(pieces) = pieces else {
                return Ok(None);
            };
            let (piece, rest) = pieces.next().await?;
            Ok::<_, Status>(Some((Frame::data(Bytes::from(piece)), rest)))
        });
        Ok(Answer::streamed(Body::new(StreamBody::new(body))))
    }
}

/// A list under way.
struct Pieces {
    listing: ObjectListing,
    selector: Selector,
    writer: ListWriter,
    /// As of which the list is complete.
    version: u64,
    cluster: Option<ClusterId>,
}

impl Pieces {
    /// The next piece of the answer, and what follows; an error breaks the connection, so that no client
    /// takes a part for the whole.
    async fn next(mut self) -> Result<(Vec<u8>, Option<Self>), Status> {
        let mut piece = Vec::new();
        loop {
            let selector = &self.selector;
            let wanted = |name: &LeaseName| may_match(selector, name);
            let objects = self.listing.next(wanted).await;
            let objects = objects.map_err(|_| {
                Status::permission_denied("the caller of a list may not go on to read it")
            })?;
            let Some(objects) = objects else {
                let end = self.page();
                piece.extend(self.writer.end(&end));
                return Ok((piece, None));
            };
            let leases = objects.iter().map(|object| lease(object, self.cluster));
            let leases: Vec<Lease> = leases.filter(|it| self.selector.matches(it)).collect();
            piece.extend(self.writer.items(&leases));
            // A list of one step is one piece.
            if !piece.is_empty() && !self.listing.is_over() {
                return Ok((piece, Some(self)));
            }
        }
    }

    /// What the list says of itself when it is over.
    fn page(&self) -> Page {
        let version = self.version;
        let more = self.listing.more_behind();
        Page {
            resource_version: version,
            continue_at: more.map(|after| Place::behind(version, after).text()),
            remaining: None,
        }
    }
}

/// Where a page ended, and the version of the first page: later pages show later states, and a watch
/// from that version shows what changed between.
struct Place {
    version: u64,
    after: String,
}

impl Place {
    fn behind(version: u64, last: &str) -> Self {
        let after = last.to_owned();
        Self { version, after }
    }

    fn text(&self) -> String {
        format!("{}:{}", self.version, self.after)
    }

    fn read(text: &str) -> Result<Self, Failure> {
        let read = text.split_once(':').and_then(|(version, after)| {
            let version = version.parse().ok()?;
            Some(Self {
                version,
                after: after.to_owned(),
            })
        });
        read.ok_or_else(|| {
            Failure::bad_request("continue key is not valid: begin again without it")
        })
    }
}
