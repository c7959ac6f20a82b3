//! Gets and lists.

use std::time::Duration;

use ringfence_core::{ClusterId, ObjectView};
use ringfence_lease_api::accept::{Form, form};
use ringfence_lease_api::options::{Include, ListOptions, Match, ReadOptions};
use ringfence_lease_api::route::Key;
use ringfence_lease_api::selector::Selector;
use ringfence_lease_api::shown::{Page, list, object};
use ringfence_lease_api::table::Rows;
use ringfence_lease_api::time::MicroTime;
use ringfence_lease_api::{Failure, Lease};
use ringfence_services::{Fresh, since_epoch};

use super::failures::{self, What};
use super::shown::{lease, name_of, prefix_of};
use super::{Answer, Asked, LeaseApi};

/// How long a version is awaited that this node does not have yet.
const VERSION_WAIT_MAX: Duration = Duration::from_secs(3);

/// How new the state has to be for a client that has seen this version.
pub(super) fn fresh(version: Option<u64>) -> Fresh {
    match version {
        None => Fresh::Newest,
        Some(0) => Fresh::Any,
        Some(version) => Fresh::Version(version, VERSION_WAIT_MAX),
    }
}

/// The present time, for ages.
pub(super) fn now() -> MicroTime {
    let micros = since_epoch().as_micros();
    MicroTime::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

impl LeaseApi {
    pub(super) fn cluster(&self) -> Option<ClusterId> {
        self.objects.cluster()
    }

    pub(super) async fn get(
        &self,
        asked: &Asked,
        key: Key,
        options: ReadOptions,
    ) -> Result<Answer, Failure> {
        let form = form(asked.accept().as_deref(), true)?;
        let what = What {
            verb: "get",
            namespace: &key.namespace,
            name: &key.name,
        };
        let name = name_of(&key)?;
        let fresh = fresh(options.resource_version);
        let found = self.objects.get(&asked.caller, &name, fresh).await;
        let found = found.map_err(|refused| failures::of(what, &refused))?;
        let found = found.ok_or_else(|| Failure::not_found(&key.name))?;
        let shown = lease(&found, self.cluster());
        Ok(Answer::ok(one(&shown, form, options.include)))
    }

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
        let prefix = prefix_of(namespace.as_deref());
        let after = from.as_ref().map(|from| from.after.as_str());
        let size = options.limit.filter(|limit| *limit > 0);
        let size = size.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let fresh = match &from {
            Some(from) => fresh(Some(from.version)),
            None => fresh(options.read.resource_version),
        };
        let found = self
            .objects
            .list(&asked.caller, &prefix, after, size, fresh)
            .await;
        let found = found.map_err(|refused| failures::of(what, &refused))?;
        let version = from.map_or(found.version, |from| from.version);
        let last = found.objects.last().filter(|_| found.more);
        let page = Page {
            resource_version: version,
            continue_at: last.map(|last| Place::behind(version, last).text()),
            remaining: None,
        };
        let cluster = self.cluster();
        let leases = found.objects.iter().map(|object| lease(object, cluster));
        let leases: Vec<Lease> = leases.filter(|lease| selector.matches(lease)).collect();
        Ok(Answer::ok(match form {
            Form::Json => list(&leases, &page),
            Form::Table => Rows {
                now: now(),
                include: options.read.include,
            }
            .list(&leases, &page),
        }))
    }
}

/// One lease, as an answer.
pub(super) fn one(shown: &Lease, form: Form, include: Include) -> Vec<u8> {
    match form {
        Form::Json => object(shown),
        Form::Table => Rows {
            now: now(),
            include,
        }
        .object(shown),
    }
}

/// Where a page ended, and the version of the first page: later pages show later states, and a watch
/// from that version shows what changed between.
struct Place {
    version: u64,
    after: String,
}

impl Place {
    fn behind(version: u64, last: &ObjectView) -> Self {
        let after = last.name.as_str().to_owned();
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
