//! Requests that only read.

use std::time::Duration;

use ringfence_core::{FencingToken, LEASE_NAME_BYTES_MAX, LeaseName};

use crate::wire::{check, max_staleness_from_wire};
use crate::{Refusal, v1};

/// How many leases a page of a list has unless the request says so.
pub const LEASES_PAGE_STANDARD: u32 = 1_000;
/// The most leases that a page of a list has.
pub const LEASES_PAGE_MAX: u32 = 10_000;
/// How many records a history has unless the request says so.
pub const HISTORY_LIMIT_STANDARD: u32 = 100;
/// The most records that a history has.
pub const HISTORY_LIMIT_MAX: u32 = 1_000;

/// What a list asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAsk {
    /// Names that begin with it; empty means all.
    pub prefix: String,
    /// At most so many leases.
    pub page_size: u32,
    /// What the page before ended with; empty for the first one.
    pub page_token: String,
    /// How old the answer may be; `None` asks for a linearizable read.
    pub max_staleness: Option<Duration>,
}

/// By what a history is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryAsk {
    /// All grants of a lease.
    Name(LeaseName),
    /// The grant with a token.
    Token(FencingToken),
}

/// Which lease to read, and how old the answer may be.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn get_from_wire(get: v1::GetRequest) -> Result<(LeaseName, Option<Duration>), Refusal> {
    Ok((
        check::lease_name(&get.name, "name")?,
        max_staleness_from_wire(get.read)?,
    ))
}

/// Which token of which lease to check, and how old the answer may be.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn check_from_wire(
    request: v1::CheckRequest,
) -> Result<(LeaseName, FencingToken, Option<Duration>), Refusal> {
    Ok((
        check::lease_name(&request.name, "name")?,
        check::token(request.token, "token")?,
        max_staleness_from_wire(request.read)?,
    ))
}

/// Which leases to list.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn list_from_wire(list: v1::ListRequest) -> Result<ListAsk, Refusal> {
    Ok(ListAsk {
        prefix: prefix_from_wire(list.prefix)?,
        page_size: check::page_size(
            list.page_size,
            LEASES_PAGE_STANDARD,
            LEASES_PAGE_MAX,
            "page_size",
        )?,
        page_token: list.page_token,
        max_staleness: max_staleness_from_wire(list.read)?,
    })
}

/// A prefix of names, as lists and watches take it. It need not be a name itself.
///
/// # Errors
/// A refusal if it is longer than any name.
pub fn prefix_from_wire(prefix: String) -> Result<String, Refusal> {
    if prefix.len() > LEASE_NAME_BYTES_MAX {
        let allowed = format!("at most {LEASE_NAME_BYTES_MAX} bytes");
        return Err(Refusal::invalid("prefix", check::shown(&prefix), allowed));
    }
    Ok(prefix)
}

/// What a history is asked for, and how many records at most.
///
/// # Errors
/// A refusal names the field that is not as it has to be.
pub fn history_from_wire(history: v1::HistoryRequest) -> Result<(HistoryAsk, u32), Refusal> {
    let limit = check::page_size(
        history.limit,
        HISTORY_LIMIT_STANDARD,
        HISTORY_LIMIT_MAX,
        "limit",
    )?;
    let ask = match (history.name.as_str(), history.token) {
        ("", 0) => return Err(Refusal::missing("name", "a name or a token")),
        (name, 0) => HistoryAsk::Name(check::lease_name(name, "name")?),
        ("", token) => HistoryAsk::Token(check::token(token, "token")?),
        _ => {
            return Err(Refusal::invalid(
                "token",
                "a name and a token",
                "one of the two",
            ));
        }
    };
    Ok((ask, limit))
}
