//! What a request may say beside its object: the options of each sort of request.

use crate::lease::version;
use crate::status::{Cause, Failure};

/// What is done with fields that a lease does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A warning for each.
    #[default]
    Warn,
    /// 400.
    Strict,
}

/// Which version a list or the start of a watch is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// This version or a newer one.
    NotOlderThan,
    /// This version and no other.
    Exact,
}

/// What stands in a row of a Table beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// The options of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// `None`: the newest state of the cluster. 0: whatever this node has. N: N or newer.
    pub resource_version: Option<u64>,
    /// How long the answer may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Of a Table.
    pub include: Include,
}

/// The options of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// As of a read.
    pub read: ReadOptions,
    /// What the version means. Set only together with one.
    pub version_match: Option<Match>,
    /// The most objects of one answer; `None`: all.
    pub limit: Option<u64>,
    /// Where the page before ended, as its answer said it.
    pub continue_from: Option<String>,
    /// As it was sent.
    pub label_selector: String,
    /// As it was sent.
    pub field_selector: String,
}

/// The options of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// From here. `None` and 0: the present state as ADDED first.
    pub resource_version: Option<u64>,
    /// Whether bookmarks are welcome.
    pub bookmarks: bool,
    /// `Some(true)`: the present state first, as ADDED, then an annotated bookmark. `Some(false)`:
    /// no state first, even without a version.
    pub send_initial_events: Option<bool>,
    /// The most seconds that it lasts.
    pub timeout_seconds: Option<u64>,
    /// Of a Table.
    pub include: Include,
    /// As it was sent.
    pub label_selector: String,
    /// As it was sent.
    pub field_selector: String,
}

/// The options of a create, an update or a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Judge and answer, and write nothing.
    pub dry_run: bool,
    /// Who manages the fields, in the client's own words.
    pub field_manager: String,
    /// Of server-side apply; it changes nothing here.
    pub force: Option<bool>,
    /// What is done with unknown fields.
    pub field_validation: FieldValidation,
    /// How long the answer may take, in milliseconds.
    pub timeout_ms: Option<u64>,
}

/// The options of a delete, as they were sent: in the path or in the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `kubectl delete --force` sends 0, and `--now` sends 1.
    pub grace_period_seconds: Option<i64>,
    /// A precondition.
    pub uid: Option<String>,
    /// A precondition: a decimal number.
    pub resource_version: Option<String>,
    /// What happens to what the lease owns: nothing, whatever is asked for.
    pub propagation_policy: Option<String>,
    /// Empty, or `All`.
    pub dry_run: Vec<String>,
}

impl DeleteOptions {
    /// 422 for values that are none.
    pub fn check(&self) -> Result<(), Failure> {
        let mut causes = Vec::new();
        if self.dry_run.iter().any(|value| value != "All") {
            causes.push(Cause::not_supported(
                "dryRun",
                &self.dry_run.join(","),
                &["All"],
            ));
        }
        let allowed = ["Background", "Foreground", "Orphan"];
        if let Some(policy) = self.propagation_policy.as_deref()
            && !policy.is_empty()
            && !allowed.contains(&policy)
        {
            causes.push(Cause::not_supported("propagationPolicy", policy, &allowed));
        }
        if let Some(text) = self.resource_version.as_deref()
            && !text.is_empty()
            && version(text).is_none()
        {
            let why = "must be the version that was read";
            causes.push(Cause::invalid("preconditions.resourceVersion", text, why));
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid_as("DeleteOptions", "", causes))
    }

    /// Whether it is a rehearsal.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The version that the lease must have; `None` if none is said. [`DeleteOptions::check`] passed.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        self.resource_version.as_deref().and_then(version)
    }
}
