//! The fence in the headers of a request.

use http::{HeaderMap, HeaderValue};
use ringfence_core::LeaseName;

use super::TurnedAway;
use crate::Fence;

/// The header, or gRPC metadata, with the token in decimal digits.
pub const TOKEN_HEADER: &str = "ringfence-token";

/// The header, or gRPC metadata, with the lease name.
pub const LEASE_HEADER: &str = "ringfence-lease";

/// The header of a refusal with `STALE_TOKEN`: the fence that was refused, `name#token`.
pub const STALE_HEADER: &str = "ringfence-stale";

/// The fence that came in the headers; `None` if neither header did. `expected` is shown to the
/// caller that sent something else.
pub(crate) fn fence_in(
    headers: &HeaderMap,
    expected: Option<&LeaseName>,
) -> Result<Option<Fence>, TurnedAway> {
    let malformed = |what: String| TurnedAway::Malformed {
        expected: expected.cloned(),
        what,
    };
    let lease = text(headers, LEASE_HEADER).map_err(malformed)?;
    let token = text(headers, TOKEN_HEADER).map_err(malformed)?;
    let (lease, token) = match (lease, token) {
        (None, None) => return Ok(None),
        (Some(lease), Some(token)) => (lease, token),
        (None, Some(_)) => {
            return Err(malformed(format!(
                "`{TOKEN_HEADER}` came without `{LEASE_HEADER}`"
            )));
        }
        (Some(_), None) => {
            return Err(malformed(format!(
                "`{LEASE_HEADER}` came without `{TOKEN_HEADER}`"
            )));
        }
    };
    // A name cannot contain the separator: whatever is smuggled in ends up in the token, which is
    // digits only.
    Fence::parse(&format!("{lease}#{token}"))
        .map(Some)
        .map_err(|fault| malformed(with_source(&fault)))
}

/// The text of a header that may come once.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(format!("`{name}` came more than once"));
    }
    let visible = |value: &'a HeaderValue| {
        let text = value.to_str();
        text.map_err(|_| format!("`{name}` is not visible ASCII"))
    };
    first.map(visible).transpose()
}

fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn both_headers_make_a_fence_and_none_makes_none() {
        let both = headers(&[(LEASE_HEADER, "db/primary"), (TOKEN_HEADER, "42")]);
        let fence = fence_in(&both, None).unwrap().unwrap();
        assert_eq!(fence.to_string(), "db/primary#42");
        assert_eq!(fence_in(&HeaderMap::new(), None).unwrap(), None);
    }

    #[test]
    fn each_bad_pair_is_told_what_is_wrong_with_it() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[(LEASE_HEADER, "db")], "without `ringfence-token`"),
            (&[(TOKEN_HEADER, "4")], "without `ringfence-lease`"),
            (&[(LEASE_HEADER, "db"), (TOKEN_HEADER, "")], "not a number"),
            (&[(LEASE_HEADER, "db"), (TOKEN_HEADER, "0")], "is 0"),
            (
                &[(LEASE_HEADER, "db"), (TOKEN_HEADER, "04")],
                "not a number",
            ),
            (
                &[(LEASE_HEADER, "db"), (TOKEN_HEADER, "4 ")],
                "not a number",
            ),
            (&[(LEASE_HEADER, ""), (TOKEN_HEADER, "4")], "lease name"),
            (&[(LEASE_HEADER, "a//b"), (TOKEN_HEADER, "4")], "lease name"),
            (
                &[(LEASE_HEADER, "a#1"), (TOKEN_HEADER, "2")],
                "not a number",
            ),
            (
                &[(LEASE_HEADER, "dä"), (TOKEN_HEADER, "2")],
                "not visible ASCII",
            ),
            (
                &[(LEASE_HEADER, "db"), (TOKEN_HEADER, "9223372036854775808")],
                "too large",
            ),
            (
                &[
                    (LEASE_HEADER, "db"),
                    (TOKEN_HEADER, "1"),
                    (TOKEN_HEADER, "2"),
                ],
                "more than once",
            ),
        ];
        for (offered, expected) in cases {
            let error = fence_in(&headers(offered), None).unwrap_err();
            assert_eq!(error.reason(), "MALFORMED_FENCE");
            assert!(error.to_string().contains(expected), "{offered:?}: {error}");
        }
    }
}
