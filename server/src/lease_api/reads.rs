//! Gets.

use std::time::Duration;

use ringfence_core::ClusterId;
use ringfence_lease_api::accept::{Form, form};
use ringfence_lease_api::options::{Include, ReadOptions};
use ringfence_lease_api::route::Key;
use ringfence_lease_api::shown::object;
use ringfence_lease_api::table::Rows;
use ringfence_lease_api::time::MicroTime;
use ringfence_lease_api::{Failure, Lease};
use ringfence_services::{Fresh, since_epoch};

use super::failures::{self, What};
use super::shown::{lease, name_of};
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
        let name = name_of(&key.namespace, &key.name)?;
        let fresh = fresh(options.resource_version);
        let found = self.objects.get(&asked.caller, &name, fresh).await;
        let found = found.map_err(|refused| failures::of(what, &refused))?;
        let found = found.ok_or_else(|| Failure::not_found(&key.name))?;
        let shown = lease(&found, self.cluster());
        Ok(Answer::ok(one(&shown, form, options.include)))
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
