//! What is wrong with which field, and with which object.

use serde::Serialize;

/// One fault of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Its kind, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// For people, without the field.
    pub message: String,
    /// The path of the field, such as `spec.leaseDurationSeconds`; empty if none is at fault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// A value that cannot be; `why` says what can.
    #[must_use]
    pub fn invalid(field: &str, value: impl Serialize, why: &str) -> Self {
        let value = serde_json::to_string(&value).unwrap_or_default();
        let message = format!("Invalid value: {value}: {why}");
        Self::of("FieldValueInvalid", field, message)
    }

    /// A value that has to be there.
    #[must_use]
    pub fn required(field: &str, why: &str) -> Self {
        Self::of(
            "FieldValueRequired",
            field,
            format!("Required value: {why}"),
        )
    }

    /// A field that must not be set.
    #[must_use]
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::of("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// A value that is too long; `why` has the limit.
    #[must_use]
    pub fn too_long(field: &str, why: &str) -> Self {
        Self::of("FieldValueTooLong", field, format!("Too long: {why}"))
    }

    /// A value that is none of `allowed`.
    #[must_use]
    pub fn not_supported(field: &str, value: &str, allowed: &[&str]) -> Self {
        let message = format!("Unsupported value: {value:?}: supported values: {allowed:?}");
        Self::of("FieldValueNotSupported", field, message)
    }

    fn of(reason: &'static str, field: &str, message: String) -> Self {
        Self {
            reason,
            message,
            field: field.to_owned(),
        }
    }
}

/// What is refused, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name; empty if none was meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub group: &'static str,
    /// The resource, or the kind where a field is at fault: as kube-apiserver does it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: &'static str,
    /// What is wrong with which field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to ask again, in seconds; 0 says nothing.
    #[serde(skip_serializing_if = "zero")]
    pub retry_after_seconds: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn zero(seconds: &u32) -> bool {
    *seconds == 0
}
