//! Single fields of requests; each refusal names the field, what was offered and what is allowed.

use ringfence_core::{
    FencingToken, HOLDER_DATA_BYTES_MAX, HolderData, IDENTITY_BYTES_MAX, Identity,
    LEASE_NAME_BYTES_MAX, LeaseName, REASON_BYTES_MAX, RequestNumber, SessionId,
};

use crate::Refusal;

type Result<T> = core::result::Result<T, Refusal>;

/// The most of an offered text that a refusal repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 64;

/// `text` as a refusal shows it: quoted, and cut if it is long.
pub(super) fn shown(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return format!("{text:?}");
    }
    let cut = text.floor_char_boundary(SHOWN_BYTES_MAX);
    format!("{:?}... ({} bytes)", &text[..cut], text.len())
}

/// A refusal of a field, with the reason in words besides what is allowed.
pub(super) fn refuse(
    field: &str,
    offered: &str,
    allowed: &str,
    why: impl core::fmt::Display,
) -> Refusal {
    let mut refusal = Refusal::invalid(field, offered, allowed);
    refusal.message = format!("{field}: {offered} was offered: {why}");
    refusal
}

pub(super) fn lease_name(raw: &str, field: &str) -> Result<LeaseName> {
    LeaseName::parse(raw).map_err(|why| {
        let allowed = format!(
            "1 to {LEASE_NAME_BYTES_MAX} bytes, segments of letters, digits and ._~:@- joined by \
             single slashes"
        );
        refuse(field, &shown(raw), &allowed, why)
    })
}

pub(super) fn identity(raw: &str, field: &str) -> Result<Identity> {
    Identity::parse(raw).map_err(|why| {
        let allowed = format!("at most {IDENTITY_BYTES_MAX} bytes without control characters");
        refuse(
            field,
            &shown(raw),
            &allowed,
            format_args!("{why}; {allowed}"),
        )
    })
}

pub(super) fn holder_data(raw: &[u8], field: &str) -> Result<HolderData> {
    HolderData::new(raw).map_err(|_| {
        let offered = format!("{} bytes", raw.len());
        Refusal::invalid(
            field,
            offered,
            format!("at most {HOLDER_DATA_BYTES_MAX} bytes"),
        )
    })
}

/// An operator's name or reason: kept in the history, so it is short and printable.
pub(super) fn operator_text(raw: String, field: &str) -> Result<String> {
    if raw.len() > REASON_BYTES_MAX || raw.chars().any(char::is_control) {
        let allowed = format!("at most {REASON_BYTES_MAX} bytes without control characters");
        return Err(Refusal::invalid(field, shown(&raw), allowed));
    }
    Ok(raw)
}

pub(super) fn token(raw: u64, field: &str) -> Result<FencingToken> {
    FencingToken::new(raw)
        .ok_or_else(|| Refusal::invalid(field, raw, format!("1 to {}", FencingToken::MAX)))
}

pub(super) fn session(raw: u64, field: &str) -> Result<SessionId> {
    SessionId::new(raw).ok_or_else(|| Refusal::invalid(field, raw, "1 or more"))
}

pub(super) fn number(raw: u64, field: &str) -> Result<RequestNumber> {
    RequestNumber::new(raw).ok_or_else(|| Refusal::invalid(field, raw, "1 or more"))
}

/// 16 bytes that say something. What was offered is not shown but for its length: it can be a
/// secret.
pub(super) fn sixteen(raw: &[u8], field: &str) -> Result<[u8; 16]> {
    raw.try_into()
        .map_err(|_| Refusal::invalid(field, format!("a value of {} bytes", raw.len()), "16 bytes"))
}

/// A count of records in an answer, where 0 stands for `standard`.
pub(super) fn page_size(raw: u32, standard: u32, max: u32, field: &str) -> Result<u32> {
    match raw {
        0 => Ok(standard),
        size if size <= max => Ok(size),
        size => Err(Refusal::invalid(
            field,
            size,
            format!("1 to {max}, or 0 for {standard}"),
        )),
    }
}
