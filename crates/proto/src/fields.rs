//! Single fields of messages to the core's types; each names the field it complains about.

use bytes::Bytes;
use ringfence_core::{
    FencingToken, HolderData, Identity, LeaseName, Principal, RequestNumber, SessionId,
};

use crate::DecodeError;

type Result<T> = core::result::Result<T, DecodeError>;

pub(crate) fn there<T>(value: Option<T>, field: &'static str) -> Result<T> {
    value.ok_or(DecodeError::Missing { field })
}

pub(crate) fn lease_name(raw: &str, field: &'static str) -> Result<LeaseName> {
    LeaseName::parse(raw).map_err(|why| DecodeError::invalid(field, why))
}

/// An empty text is no name.
pub(crate) fn lease_name_or_none(raw: &str, field: &'static str) -> Result<Option<LeaseName>> {
    if raw.is_empty() {
        Ok(None)
    } else {
        lease_name(raw, field).map(Some)
    }
}

pub(crate) fn identity(raw: &str, field: &'static str) -> Result<Identity> {
    Identity::parse(raw).map_err(|why| DecodeError::invalid(field, why))
}

pub(crate) fn principal(raw: &str, field: &'static str) -> Result<Principal> {
    Principal::parse(raw).map_err(|why| DecodeError::invalid(field, why))
}

pub(crate) fn holder_data(raw: &[u8], field: &'static str) -> Result<HolderData> {
    HolderData::new(raw).map_err(|why| DecodeError::invalid(field, why))
}

pub(crate) fn data_bytes(data: &HolderData) -> Bytes {
    Bytes::copy_from_slice(data.as_bytes())
}

pub(crate) fn token(raw: u64, field: &'static str) -> Result<FencingToken> {
    FencingToken::new(raw).ok_or_else(|| {
        DecodeError::invalid(
            field,
            format!("{raw} is no token; tokens are 1 to 2^63 - 1"),
        )
    })
}

/// 0 is no token.
pub(crate) fn token_or_none(raw: u64, field: &'static str) -> Result<Option<FencingToken>> {
    if raw == 0 {
        Ok(None)
    } else {
        token(raw, field).map(Some)
    }
}

/// How an optional token is written: 0 if there is none.
pub(crate) fn token_or_zero(token: Option<FencingToken>) -> u64 {
    token.map_or(0, FencingToken::get)
}

pub(crate) fn session(raw: u64, field: &'static str) -> Result<SessionId> {
    SessionId::new(raw)
        .ok_or_else(|| DecodeError::invalid(field, "0 is no session; their numbers begin at 1"))
}

pub(crate) fn number(raw: u64, field: &'static str) -> Result<RequestNumber> {
    RequestNumber::new(raw)
        .ok_or_else(|| DecodeError::invalid(field, "0 is no request number; they begin at 1"))
}
