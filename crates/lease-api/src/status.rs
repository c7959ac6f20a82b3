//! Refusals as kube-apiserver says them: `metav1.Status` with the reasons, messages and details by
//! which client-go's `errors.IsConflict` and its siblings know them.

use serde::Serialize;

pub use crate::cause::{Cause, Details};

/// The API group.
pub const GROUP: &str = "coordination.k8s.io";
/// Group and version, as in `apiVersion`.
pub const API_VERSION: &str = "coordination.k8s.io/v1";
/// The kind of the one object here.
pub const KIND: &str = "Lease";
/// The resource, as in paths.
pub const RESOURCE: &str = "leases";

/// Why, in one word of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reason {
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 409: the object is there.
    AlreadyExists,
    /// 409: another version, or another holder.
    Conflict,
    /// 410: the version is no longer available.
    Expired,
    /// 410.
    Gone,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 422.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 503.
    ServiceUnavailable,
    /// 504: the outcome is unknown, or the version asked for is not there yet.
    Timeout,
}

impl Reason {
    /// The status of HTTP.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Expired | Self::Gone => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }
}

/// A refusal: the body of every answer that is not 2xx, and of an ERROR of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why, which is also the status of HTTP.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// For programs.
    pub details: Option<Details>,
}

impl Failure {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// About a lease of this name.
    fn about(reason: Reason, name: &str, message: String) -> Self {
        let details = Details {
            name: name.to_owned(),
            group: GROUP,
            kind: RESOURCE,
            ..Details::default()
        };
        Self {
            details: Some(details),
            ..Self::new(reason, message)
        }
    }

    /// 404: no such lease.
    #[must_use]
    pub fn not_found(name: &str) -> Self {
        let message = format!("{RESOURCE}.{GROUP} {name:?} not found");
        Self::about(Reason::NotFound, name, message)
    }

    /// 404: no such path.
    #[must_use]
    pub fn no_path() -> Self {
        let message = "the server could not find the requested resource";
        Self {
            details: Some(Details::default()),
            ..Self::new(Reason::NotFound, message)
        }
    }

    /// 409 for a create of what is there.
    #[must_use]
    pub fn already_exists(name: &str) -> Self {
        let message = format!("{RESOURCE}.{GROUP} {name:?} already exists");
        Self::about(Reason::AlreadyExists, name, message)
    }

    /// 409 with a reason: who holds the lease, and for how long.
    #[must_use]
    pub fn conflict(name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {RESOURCE}.{GROUP} {name:?}: {why}");
        Self::about(Reason::Conflict, name, message)
    }

    /// 409 for another version than the object's.
    #[must_use]
    pub fn modified(name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(name, why)
    }

    /// 409 for another `uid` than the object's, which is a newer one of the same name.
    #[must_use]
    pub fn other_uid(name: &str, given: &str, present: &str) -> Self {
        let why = format!(
            "Precondition failed: UID in precondition: {given}, UID in object meta: {present}"
        );
        Self::conflict(name, &why)
    }

    /// 422 with all faults, or the first of very many. `name` may be empty.
    #[must_use]
    pub fn invalid(name: &str, causes: Vec<Cause>) -> Self {
        Self::invalid_as(KIND, name, causes)
    }

    /// 422 of an object or of options of another kind.
    #[must_use]
    pub fn invalid_as(kind: &'static str, name: &str, mut causes: Vec<Cause>) -> Self {
        causes.truncate(CAUSES_MAX);
        let faults: Vec<String> = causes
            .iter()
            .map(|cause| match cause.field.as_str() {
                "" => cause.message.clone(),
                field => format!("{field}: {}", cause.message),
            })
            .collect();
        let faults = match faults.as_slice() {
            [only] => only.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let group = if kind == KIND { GROUP } else { "meta.k8s.io" };
        let details = Details {
            name: name.to_owned(),
            group,
            kind,
            causes,
            retry_after_seconds: 0,
        };
        let message = format!("{kind}.{group} {name:?} is invalid: {faults}");
        Self {
            details: Some(details),
            ..Self::new(Reason::Invalid, message)
        }
    }

    /// 422 for an update of a present lease without a version.
    #[must_use]
    pub fn version_required(name: &str) -> Self {
        let why = "must be specified for an update";
        Self::invalid(name, vec![Cause::invalid(RESOURCE_VERSION, 0, why)])
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 401: no credential, or one that proves nothing. `why` says what is wrong with it, and what to do.
    #[must_use]
    pub fn unauthorized(why: &str) -> Self {
        Self::new(Reason::Unauthorized, format!("Unauthorized: {why}"))
    }

    /// 403: `user` may not `verb` the lease of this name; `name` is empty for lists and watches.
    /// `why` is appended where there is more to say.
    #[must_use]
    pub fn forbidden(user: &str, verb: &str, namespace: &str, name: &str, why: &str) -> Self {
        let object = match name {
            "" => format!("{RESOURCE}.{GROUP} is forbidden"),
            name => format!("{RESOURCE}.{GROUP} {name:?} is forbidden"),
        };
        let scope = match namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let more = if why.is_empty() { "" } else { ": " };
        let message = format!(
            "{object}: User {user:?} cannot {verb} resource {RESOURCE:?} in API group {GROUP:?} \
             {scope}{more}{why}"
        );
        Self::about(Reason::Forbidden, name, message)
    }

    /// 403 with words of the caller's: a holder that may not release, for example.
    #[must_use]
    pub fn not_allowed(name: &str, why: &str) -> Self {
        let message = format!("{RESOURCE}.{GROUP} {name:?} is forbidden: {why}");
        Self::about(Reason::Forbidden, name, message)
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed(action: &str) -> Self {
        let message =
            format!("{action} is not supported on resources of kind \"{RESOURCE}.{GROUP}\"");
        Self::about(Reason::MethodNotAllowed, "", message)
    }

    /// 406 with what could be asked for.
    #[must_use]
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let offered = offered.join(", ");
        let message = format!("only the following media types are accepted: {offered}");
        Self::new(Reason::NotAcceptable, message)
    }

    /// 415 with what could be sent.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted}"
        );
        Self::new(Reason::UnsupportedMediaType, message)
    }

    /// 413 with the limit in bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(Reason::RequestEntityTooLarge, message)
    }

    /// 410: the history before a version, or a page of a list, is forgotten. Clients list again.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// 410 for a watch from a version whose history is forgotten.
    #[must_use]
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 410 of the older sort, which client-go treats alike.
    #[must_use]
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(Reason::Gone, message)
    }

    /// 429: not done; ask again after so many seconds.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(Reason::TooManyRequests, message).after(retry_after_seconds)
    }

    /// 503: not done; ask again after so many seconds.
    #[must_use]
    pub fn service_unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(Reason::ServiceUnavailable, message).after(retry_after_seconds)
    }

    /// 504: it is unknown whether it was done. No time to ask again: client-go would repeat a write
    /// of unknown outcome.
    #[must_use]
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(Reason::Timeout, format!("Timeout: {}", message.into())).after(0)
    }

    /// 504 for a read at a version that this node has not seen yet.
    #[must_use]
    pub fn too_large_version(asked: u64, current: u64, retry_after_seconds: u32) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut failure = Self::timeout(message).after(retry_after_seconds);
        if let Some(details) = &mut failure.details {
            details.causes = vec![Cause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                field: String::new(),
            }];
        }
        failure
    }

    /// 500: a fault of the server.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(Reason::InternalError, message)
    }

    fn after(mut self, seconds: u32) -> Self {
        self.details
            .get_or_insert_with(Details::default)
            .retry_after_seconds = seconds;
        self
    }

    /// The status of HTTP.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.reason.code()
    }

    /// What the header `Retry-After` says, in seconds, if the answer has one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// The body, as JSON.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The most faults of one refusal: a small request could have thousands.
const CAUSES_MAX: usize = 16;

/// The path of the version in an object.
pub(crate) const RESOURCE_VERSION: &str = "metadata.resourceVersion";

impl Serialize for Failure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Shown {
            kind: "Status",
            api_version: "v1",
            metadata: Nothing {},
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_ref(),
            code: self.code(),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Nothing,
    status: &'static str,
    message: &'a str,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

/// 200 for a delete: what client-go takes as done.
#[must_use]
pub fn deleted(name: &str, uid: &str) -> Vec<u8> {
    let shown = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": { "name": name, "group": GROUP, "kind": RESOURCE, "uid": uid },
    });
    shown.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(failure: &Failure) -> Value {
        serde_json::from_slice(&failure.body()).unwrap()
    }

    #[test]
    fn a_conflict_is_what_kube_apiserver_says() {
        let expected = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": the \
                        object has been modified; please apply your changes to the latest version \
                        and try again",
            "reason": "Conflict",
            "details": { "name": "a", "group": "coordination.k8s.io", "kind": "leases" },
            "code": 409,
        });
        assert_eq!(shown(&Failure::modified("a")), expected);
    }

    #[test]
    fn faults_of_fields_are_listed_and_said() {
        let short = Cause::invalid("spec.leaseDurationSeconds", 0, "must be greater than 0");
        let one = shown(&Failure::invalid("a", vec![short.clone()]));
        let message = "Lease.coordination.k8s.io \"a\" is invalid: spec.leaseDurationSeconds: \
                       Invalid value: 0: must be greater than 0";
        assert_eq!(one["message"], message);
        assert_eq!(one["details"]["kind"], "Lease");
        assert_eq!(
            one["details"]["causes"],
            json!([{
                "reason": "FieldValueInvalid",
                "message": "Invalid value: 0: must be greater than 0",
                "field": "spec.leaseDurationSeconds",
            }])
        );
        let many = Failure::invalid("a", vec![short.clone(); 1_000]);
        assert_eq!(many.details.unwrap().causes.len(), CAUSES_MAX);
        let two = Failure::invalid(
            "a",
            vec![short, Cause::required("metadata.name", "name it")],
        );
        assert!(two.message.contains("is invalid: [spec.lease"), "{two:?}");
    }

    #[test]
    fn a_version_to_come_is_a_timeout_with_its_cause() {
        let failure = Failure::too_large_version(9, 7, 1);
        let shown = shown(&failure);
        assert_eq!(shown["code"], 504);
        assert_eq!(shown["reason"], "Timeout");
        assert_eq!(
            shown["details"]["causes"][0]["reason"],
            "ResourceVersionTooLarge"
        );
        assert_eq!(shown["details"]["retryAfterSeconds"], 1);
        assert_eq!(failure.retry_after(), Some(1));
    }

    #[test]
    fn an_unknown_outcome_says_no_time_to_ask_again() {
        assert_eq!(Failure::timeout("no majority").retry_after(), None);
        assert_eq!(
            Failure::service_unavailable("no leader", 1).retry_after(),
            Some(1)
        );
    }

    #[test]
    fn who_may_not_is_named_with_what() {
        let failure = Failure::forbidden("system:serviceaccount:a:b", "update", "a", "x", "");
        let message = "leases.coordination.k8s.io \"x\" is forbidden: User \
                       \"system:serviceaccount:a:b\" cannot update resource \"leases\" in API group \
                       \"coordination.k8s.io\" in the namespace \"a\"";
        assert_eq!(failure.message, message);
    }
}
