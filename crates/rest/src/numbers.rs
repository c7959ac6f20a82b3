//! Request numbers: the caller's own, from the header `Idempotency-Key`, or one of this node.
//!
//! A session's numbers only have to rise. Of a request without the header the caller knows no number,
//! so it cannot repeat it; this node numbers it by its wall clock, which makes numbers of all nodes
//! rise in about the order of their requests. A clock that is wrong costs a try: the session refuses a
//! number below its lowest, names that, and the next try is above it.

use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_services::since_epoch;

use crate::handle::sixteen;
use crate::query::whole;
use bytes::Bytes;

/// The header with a caller's own number.
const HEADER: &str = "idempotency-key";
/// The greatest number of a caller's own: answers show it as an `int64`.
const KEY_MAX: u64 = u64::MAX >> 1;
/// How often a request without a number of its caller gets another one.
pub(crate) const TRIES_MAX: usize = 8;
/// Random bits below the milliseconds: two nodes hardly ever choose one number. The whole stays below
/// 2^53, which every reader of JSON keeps, until the year 2109.
const CHANCE_BITS: u32 = 11;

/// What a numbered request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    /// The lowest that the session still waits for.
    pub(crate) lowest: u64,
}

/// The value of the header, without the quotes that its draft standard has.
fn header(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let refuse = |offered: &str| Refusal::invalid("Idempotency-Key", offered, "one key");
    if values.next().is_some() {
        return Err(refuse("several"));
    }
    let text = value
        .to_str()
        .map_err(|_| refuse("bytes that are no text"))?;
    let text = text.trim();
    let bare = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    Ok(Some(bare.unwrap_or(text)))
}

/// The number that a caller gives to a request of a session.
pub(crate) fn of_request(
    headers: &HeaderMap,
    lowest: Option<u64>,
) -> Result<Option<Numbered>, Refusal> {
    let Some(text) = header(headers)? else {
        return match lowest {
            None => Ok(None),
            Some(lowest) => {
                let allowed = "nothing without an Idempotency-Key";
                Err(Refusal::invalid("lowest", lowest, allowed))
            }
        };
    };
    let number = whole(text, "Idempotency-Key")
        .ok()
        .filter(|number| (1..=KEY_MAX).contains(number));
    let number = number.ok_or_else(|| {
        let allowed =
            format!("the request's number in its session, 1, 2, 3 and so on up to {KEY_MAX},");
        Refusal::invalid("Idempotency-Key", format!("{text:?}"), allowed)
    })?;
    let lowest = lowest.unwrap_or(number);
    Ok(Some(Numbered { number, lowest }))
}

/// The id that a caller gives to the opening of a session.
pub(crate) fn of_open(headers: &HeaderMap) -> Result<Option<Bytes>, Refusal> {
    let Some(text) = header(headers)? else {
        return Ok(None);
    };
    let id = sixteen(&text.replace('-', ""));
    let allowed = "16 random bytes for the opening of a session: a UUID, or 32 hexadecimal digits";
    let refuse = || Refusal::invalid("Idempotency-Key", format!("{text:?}"), allowed);
    id.map(Some).ok_or_else(refuse)
}

/// That a call without a number has none: revokes name a token, and repeating them is harmless.
pub(crate) fn of_nothing(headers: &HeaderMap) -> Result<(), Refusal> {
    header(headers).map(drop)
}

/// A number of this node, above all that it chose before.
pub(crate) fn chosen() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let millis = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX >> CHANCE_BITS);
    let by_clock = (millis << CHANCE_BITS) | chance();
    let next = |last: u64| by_clock.max(last.saturating_add(1));
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(next(last))
    });
    next(before.unwrap_or_default())
}

/// The number of the next try, if this refusal says that the one before was too low, or was used by
/// another request. Nothing was done under it.
pub(crate) fn after(refused: &Refusal, number: u64) -> Option<u64> {
    let above = match refused.reason {
        Reason::StaleRequest => refused.metadata.get("lowest")?.parse().ok()?,
        Reason::RequestMismatch => number,
        _ => return None,
    };
    Some(chosen().max(above.checked_add(chance() + 1)?))
}

/// A random number of [`CHANCE_BITS`] bits.
fn chance() -> u64 {
    u64::from(rand::random::<u16>() >> (u16::BITS - CHANCE_BITS))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn with(value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).unwrap();
        HeaderMap::from_iter([(http::HeaderName::from_static(HEADER), value)])
    }

    #[test]
    fn a_key_is_a_number_bare_or_quoted_and_nothing_else() {
        for text in ["7", "\"7\"", " 7 "] {
            let read = of_request(&with(text), Some(5)).unwrap();
            assert_eq!(
                read,
                Some(Numbered {
                    number: 7,
                    lowest: 5
                }),
                "{text}"
            );
        }
        for text in [
            "0",
            "",
            "seven",
            "9223372036854775808",
            "18446744073709551615",
            "18446744073709551616",
            "\"7",
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
        ] {
            of_request(&with(text), None).unwrap_err();
        }
        assert_eq!(of_request(&HeaderMap::new(), None).unwrap(), None);
        of_request(&HeaderMap::new(), Some(1)).unwrap_err();
        let greatest = of_request(&with("9223372036854775807"), None).unwrap();
        assert_eq!(greatest.unwrap().number, KEY_MAX);
    }

    #[test]
    fn the_key_of_an_open_is_a_uuid() {
        for text in [
            "8e03978e-40d5-43e8-bc93-6894a57f9324",
            "8E03978E40D543E8BC936894A57F9324",
        ] {
            assert_eq!(of_open(&with(text)).unwrap().unwrap()[0], 0x8e);
        }
        of_open(&with("7")).unwrap_err();
    }

    #[test]
    fn chosen_numbers_rise_and_a_refused_one_is_followed_by_one_above_its_lowest() {
        let numbers: Vec<u64> = (0..10_000).map(|_| chosen()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        assert!(*numbers.last().unwrap() < 1 << 53);
        let far = (1 << 63) + 5;
        let stale = Refusal::new(Reason::StaleRequest, "stale").with("lowest", far);
        assert!(after(&stale, 1).unwrap() > far);
        assert_eq!(after(&Refusal::outcome_unknown("x"), 1), None);
    }
}
