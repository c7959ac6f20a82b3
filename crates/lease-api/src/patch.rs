//! Patches: what a client wants to change, applied to the lease that is there.

use json_patch::{Patch as Operations, PatchOperation, patch_unsafe};
use serde_json::{Map, Value};

use crate::body::{Target, check_size, media_type, place};
use crate::fields;
use crate::lease::{Lease, Spec};
use crate::options::{FieldValidation, WriteOptions};
use crate::status::{Cause, Failure, KIND};
use crate::strategic;
use crate::valid::settle;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What `Content-Type` may say of a patch.
const ACCEPTED: [&str; 4] = [JSON, MERGE, STRATEGIC, APPLY];

/// The most operations of one JSON patch.
const OPERATIONS_MAX: usize = 256;

/// The most values that a JSON patch may make of a lease, and the most that are inside of each other:
/// its copies could double a lease with each operation. And the most bytes of their names and texts,
/// some times what a lease may have: one operation at most doubles them.
const VALUES_MAX: usize = 2_048;
const BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 64;

/// A patch that was read, and not applied yet. It can be applied to one lease after the other, as
/// the present one moves on.
#[derive(Clone, Debug)]
pub struct Patch {
    does: Does,
    validation: FieldValidation,
    /// Whether it names the version that it is meant for.
    binds: bool,
}

#[derive(Clone, Debug)]
enum Does {
    Operations(Operations),
    Merge(Map<String, Value>),
    Strategic(Map<String, Value>),
    /// With warnings about its fields.
    Apply(Box<Lease>, Vec<String>),
}

/// The lease that a patch makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// Judged like an update: its version and its `uid` are those of the present lease, unless the
    /// patch has its own.
    pub lease: Lease,
    /// One each for the header `Warning`: see `shown::warning`.
    pub warnings: Vec<String>,
}

impl Patch {
    /// Reads a patch. `limit`: the most bytes of the body.
    ///
    /// 400: not what `Content-Type` says, or an applied object of another kind. 413: above the
    /// limit. 415: another sort of patch. 422: an apply without `fieldManager`, another patch with
    /// `force`.
    pub fn read(
        content_type: Option<&str>,
        body: &[u8],
        limit: usize,
        options: &WriteOptions,
    ) -> Result<Self, Failure> {
        check_size(body, limit)?;
        let media = media_type(content_type);
        if !ACCEPTED.contains(&media.as_str()) {
            return Err(Failure::unsupported_media_type(&ACCEPTED));
        }
        check_options(media == APPLY, options)?;
        let validation = options.field_validation;
        let (does, binds) = match media.as_str() {
            JSON => {
                let operations = operations(body)?;
                let binds = operations.iter().any(sets_version);
                (Does::Operations(operations), binds)
            }
            APPLY => {
                let (lease, warnings) = applied(body, validation)?;
                let binds = lease.metadata.resource_version.is_some();
                (Does::Apply(Box::new(lease), warnings), binds)
            }
            media => {
                let patch = fields::object(body)?;
                let version = patch
                    .get("metadata")
                    .and_then(|of| of.get("resourceVersion"));
                let binds = version.is_some_and(|version| !version.is_null() && version != "");
                if media == MERGE {
                    (Does::Merge(patch), binds)
                } else {
                    (Does::Strategic(patch), binds)
                }
            }
        };
        Ok(Self {
            does,
            validation,
            binds,
        })
    }

    /// Whether the patch names the version of the lease that it is meant for. If the lease moves on
    /// meanwhile, this one is a conflict; another is applied again.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.binds
    }

    /// Whether it creates a lease that is absent: [`Patch::create`]. Others are not found then.
    #[must_use]
    pub fn creates(&self) -> bool {
        matches!(self.does, Does::Apply(..))
    }

    /// The lease of a server-side apply where there is none. 404 for other patches; 400 if it has
    /// another name than the path's; 422 for a value that no lease may have.
    pub fn create(&self, target: Target<'_>) -> Result<Patched, Failure> {
        let name = target.name.unwrap_or_default();
        let Does::Apply(applied, warnings) = &self.does else {
            return Err(Failure::not_found(name));
        };
        let mut lease = Lease::clone(applied);
        named(&mut lease, target)?;
        let mut warnings = warnings.clone();
        warnings.extend(settle(&mut lease)?);
        Ok(Patched { lease, warnings })
    }

    /// The lease that it makes of the present one, which is given as it is shown. `holding`: the
    /// caller holds the lease, so the spec is its own, and an apply removes what it leaves out.
    ///
    /// 400: the result is no lease, or another one than the present. 422: a test of a JSON patch
    /// fails, or a value that no lease may have.
    pub fn apply(&self, present: &Lease, holding: bool) -> Result<Patched, Failure> {
        let (mut lease, mut warnings) = match &self.does {
            Does::Apply(applied, warnings) => {
                let lease = apply(present, applied, holding);
                (lease, warnings.clone())
            }
            Does::Operations(operations) => {
                let mut value = shown(present)?;
                operate(&mut value, operations, &present.metadata.name)?;
                self.result(value)?
            }
            Does::Merge(patch) => {
                let mut object = shown_object(present)?;
                strategic::merge_plain(&mut object, patch);
                self.result(Value::Object(object))?
            }
            Does::Strategic(patch) => {
                let mut object = shown_object(present)?;
                strategic::merge(&mut object, patch)?;
                self.result(Value::Object(object))?
            }
        };
        let (of, was) = (&mut lease.metadata, &present.metadata);
        of.creation_timestamp = was.creation_timestamp;
        keep(&mut of.uid, was.uid.as_ref());
        keep(&mut of.resource_version, was.resource_version.as_ref());
        let target = Target {
            namespace: &was.namespace,
            name: Some(&was.name),
        };
        named(&mut lease, target)?;
        warnings.extend(settle(&mut lease)?);
        Ok(Patched { lease, warnings })
    }

    /// Reads the lease that a patch has made.
    fn result(&self, value: Value) -> Result<(Lease, Vec<String>), Failure> {
        let Value::Object(object) = &value else {
            return Err(Failure::bad_request(
                "the patch makes no object of the lease",
            ));
        };
        let (version, kind) = ("apiVersion", "kind");
        fields::check_kind(fields::text(object, version)?, fields::text(object, kind)?)?;
        let warnings = fields::validate(object, self.validation)?;
        Ok((fields::lease(value)?, warnings))
    }
}

fn check_options(apply: bool, options: &WriteOptions) -> Result<(), Failure> {
    let cause = if apply && options.field_manager.is_empty() {
        Cause::required("fieldManager", "is required for apply patch")
    } else if !apply && options.force.is_some() {
        Cause::forbidden("force", "may not be specified for non-apply patch")
    } else {
        return Ok(());
    };
    Err(Failure::invalid_as("PatchOptions", "", vec![cause]))
}

/// What is absent in the result is what it was.
fn keep(of: &mut Option<String>, was: Option<&String>) {
    if of.as_deref().is_none_or(str::is_empty) {
        *of = was.cloned();
    }
}

/// A patch need not repeat the name.
fn named(lease: &mut Lease, target: Target<'_>) -> Result<(), Failure> {
    if lease.metadata.name.is_empty() {
        target
            .name
            .unwrap_or_default()
            .clone_into(&mut lease.metadata.name);
    }
    place(lease, target)
}

fn shown(lease: &Lease) -> Result<Value, Failure> {
    let value = serde_json::to_value(lease.shown());
    value.map_err(|_| Failure::internal("the lease is not JSON"))
}

fn shown_object(lease: &Lease) -> Result<Map<String, Value>, Failure> {
    match shown(lease)? {
        Value::Object(object) => Ok(object),
        _ => Err(Failure::internal("the lease is not an object")),
    }
}

/// kubectl, client-go and kube-rs send JSON, whatever the type says; people may write YAML.
fn applied(body: &[u8], validation: FieldValidation) -> Result<(Lease, Vec<String>), Failure> {
    let object = match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(Failure::bad_request("the body is not an object")),
        Err(_) => yaml(body)?,
    };
    fields::check_kind(
        fields::text(&object, "apiVersion")?,
        fields::text(&object, "kind")?,
    )?;
    let warnings = fields::validate(&object, validation)?;
    let managed = object
        .get("metadata")
        .and_then(|of| of.get("managedFields"));
    if managed.is_some_and(|managed| !managed.is_null() && managed != &Value::Array(Vec::new())) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let mut lease = fields::lease(Value::Object(object))?;
    lease.metadata.resource_version = lease
        .metadata
        .resource_version
        .filter(|version| !version.is_empty());
    Ok((lease, warnings))
}

/// One document without anchors: their aliases could make much of little.
fn yaml(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_anchors: 0,
            max_aliases: 0,
            max_documents: 1,
            max_depth: DEPTH_MAX,
        },
    };
    match serde_saphyr::from_slice_with_options(body, options) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => {
            let why = "the body is not one object as JSON or YAML without anchors";
            Err(Failure::bad_request(why))
        }
    }
}

/// A server-side apply. Which client owns which field is not kept: labels, annotations and owners are added
/// or changed, and of the spec only the holder's apply removes what it leaves out.
fn apply(present: &Lease, applied: &Lease, holding: bool) -> Lease {
    let mut lease = present.clone();
    let (of, from) = (&mut lease.metadata, &applied.metadata);
    for (of, from) in [
        (&mut of.labels, &from.labels),
        (&mut of.annotations, &from.annotations),
    ] {
        of.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    for owner in &from.owner_references {
        let mut present = of.owner_references.iter_mut();
        match present.find(|present| present.uid == owner.uid) {
            Some(present) => present.clone_from(owner),
            None => of.owner_references.push(owner.clone()),
        }
    }
    of.name.clone_from(&from.name);
    of.namespace.clone_from(&from.namespace);
    of.generate_name.clone_from(&from.generate_name);
    of.finalizers.clone_from(&from.finalizers);
    of.uid.clone_from(&from.uid);
    of.resource_version.clone_from(&from.resource_version);
    let wanted = applied.spec.clone();
    lease.spec = if holding {
        wanted
    } else {
        over(wanted, &present.spec)
    };
    lease
}

/// What one spec says, and of the other what it leaves out.
fn over(wanted: Spec, present: &Spec) -> Spec {
    let present = present.clone();
    Spec {
        holder_identity: wanted.holder_identity.or(present.holder_identity),
        lease_duration_seconds: wanted
            .lease_duration_seconds
            .or(present.lease_duration_seconds),
        acquire_time: wanted.acquire_time.or(present.acquire_time),
        renew_time: wanted.renew_time.or(present.renew_time),
        lease_transitions: wanted.lease_transitions.or(present.lease_transitions),
        strategy: wanted.strategy.or(present.strategy),
        preferred_holder: wanted.preferred_holder.or(present.preferred_holder),
    }
}

fn operations(body: &[u8]) -> Result<Operations, Failure> {
    let operations: Operations = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is not a JSON patch: {error}")))?;
    if operations.len() > OPERATIONS_MAX {
        let count = operations.len();
        let why = format!("{count} operations, at most {OPERATIONS_MAX} are allowed");
        return Err(Failure::bad_request(why));
    }
    Ok(operations)
}

/// Whether an operation writes the version, alone or with all that is around it.
fn sets_version(operation: &PatchOperation) -> bool {
    let value = match operation {
        PatchOperation::Add(add) => Some(&add.value),
        PatchOperation::Replace(replace) => Some(&replace.value),
        PatchOperation::Copy(_) | PatchOperation::Move(_) => None,
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return false,
    };
    let within = match operation.path().as_str() {
        "" => "/metadata/resourceVersion",
        "/metadata" => "/resourceVersion",
        "/metadata/resourceVersion" => "",
        _ => return false,
    };
    value.is_none_or(|value| value.pointer(within).is_some())
}

fn operate(value: &mut Value, operations: &Operations, name: &str) -> Result<(), Failure> {
    for (at, operation) in operations.iter().enumerate() {
        let one = std::slice::from_ref(operation);
        patch_unsafe(value, one).map_err(|error| {
            let why = format!("operation {at} of the patch: {}", error.kind);
            let cause = Cause::invalid("patch", operation.path().as_str(), &why);
            Failure::invalid_as(KIND, name, vec![cause])
        })?;
        if !Room::new().fits(value, DEPTH_MAX) {
            return Err(Failure::too_large(BYTES_MAX));
        }
    }
    Ok(())
}

/// What a patched lease may still have.
struct Room {
    values: usize,
    bytes: usize,
}

impl Room {
    fn new() -> Self {
        Self {
            values: VALUES_MAX,
            bytes: BYTES_MAX,
        }
    }

    /// Whether a value fits, at most so deep. One operation at most doubles the depth, so this never
    /// goes far.
    fn fits(&mut self, value: &Value, depth: usize) -> bool {
        let (Some(values), Some(depth)) = (self.values.checked_sub(1), depth.checked_sub(1)) else {
            return false;
        };
        self.values = values;
        match value {
            Value::Array(values) => values.iter().all(|value| self.fits(value, depth)),
            Value::Object(object) => object
                .iter()
                .all(|(name, value)| self.takes(name) && self.fits(value, depth)),
            Value::String(text) => self.takes(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
        }
    }

    fn takes(&mut self, text: &str) -> bool {
        let left = self.bytes.checked_sub(text.len());
        self.bytes = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests;
