//! The parts of a URL: percent-encoded names, and parameters behind `?`.

use ringfence_proto::Refusal;
use ringfence_proto::text::parse_duration;

/// The parameters of a request. Each is taken once; one that is left is refused, since a misspelt
/// one would be ignored otherwise.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// The parameters behind `?`.
    pub(crate) fn parse(raw: Option<&str>) -> Result<Self, Refusal> {
        let raw = raw.unwrap_or_default();
        let parts = raw.split('&').filter(|part| !part.is_empty());
        let read = parts.map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decoded(name, "query")?, decoded(value, "query")?))
        });
        Ok(Self(read.collect::<Result<_, Refusal>>()?))
    }

    /// A parameter, if it is there.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        let found = self.0.iter().position(|(offered, _)| offered == name);
        let Some(at) = found else { return Ok(None) };
        let (_, value) = self.0.swap_remove(at);
        match self.0.iter().any(|(offered, _)| offered == name) {
            true => Err(Refusal::invalid(name, "it twice", "it once")),
            false => Ok(Some(value)),
        }
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        whole(&text, name).map(Some)
    }

    /// A duration, in milliseconds.
    pub(crate) fn millis(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        millis(&text, name).map(Some)
    }

    /// How much is wanted at most; 0, which calls take for their standard, if it is not there.
    pub(crate) fn limit(&mut self, max: u32) -> Result<u32, Refusal> {
        let Some(text) = self.text("limit")? else {
            return Ok(0);
        };
        let number = whole(&text, "limit").ok();
        let number = number.and_then(|number| u32::try_from(number).ok());
        number
            .filter(|number| (1..=max).contains(number))
            .ok_or_else(|| Refusal::invalid("limit", format!("{text:?}"), format!("1 to {max}")))
    }

    /// That nothing is left.
    pub(crate) fn end(self) -> Result<(), Refusal> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(unknown(&name, "parameter")),
        }
    }
}

/// A field or parameter that the call does not have.
pub(crate) fn unknown(name: &str, what: &str) -> Refusal {
    let allowed = "what /v1/openapi.json lists for this call";
    if name.is_empty() {
        return Refusal::invalid(what, format!("a {what} without a name"), allowed);
    }
    let offered = format!("a {what} with this name");
    Refusal::invalid(&cut(name), offered, allowed)
}

/// A name as a refusal shows it.
fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}

/// What a duration is.
pub(crate) const DURATION: &str =
    "a whole number and its unit ms, s, m or h, as in 500ms or 30s, below 2^64 ms in all";

/// A duration, in milliseconds.
pub(crate) fn millis(text: &str, field: &str) -> Result<u64, Refusal> {
    let read = parse_duration(text).ok();
    let millis = read.and_then(|read| u64::try_from(read.as_millis()).ok());
    millis.ok_or_else(|| Refusal::invalid(field, format!("{text:?}"), DURATION))
}

/// A whole number in decimal digits, without a sign.
pub(crate) fn whole(text: &str, field: &str) -> Result<u64, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| {
        let allowed = "a whole number in decimal digits, below 2^64";
        Refusal::invalid(field, format!("{text:?}"), allowed)
    })
}

/// A text without its percent signs. A plus stays one: no name has a space.
pub(crate) fn decoded(raw: &str, field: &str) -> Result<String, Refusal> {
    let refuse = || {
        let allowed = "UTF-8, other bytes as % and two hexadecimal digits";
        Refusal::invalid(field, format!("{raw:?}"), allowed)
    };
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(refuse());
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(u8::MAX));
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_taken_once_and_none_is_ignored() {
        let mut query = Query::parse(Some("prefix=bank%2Fx&limit=5&max_staleness=2s")).unwrap();
        assert_eq!(query.text("prefix").unwrap().as_deref(), Some("bank/x"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.millis("max_staleness").unwrap(), Some(2_000));
        query.end().unwrap();

        let refused = Query::parse(Some("prefx=a")).unwrap().end().unwrap_err();
        assert_eq!(refused.metadata["field"], "prefx");
        let twice = Query::parse(Some("a=1&a=2")).unwrap().text("a");
        twice.unwrap_err();
    }

    #[test]
    fn a_duration_beyond_any_clock_is_refused_with_what_is_one() {
        for text in [
            "18446744073709551615h",
            "99999999999999999999s",
            "5",
            "1x",
            "",
        ] {
            let refused = millis(text, "ttl").unwrap_err();
            assert_eq!(refused.metadata["allowed"], DURATION, "{text}");
        }
        assert_eq!(millis("18446744073709551615ms", "ttl").unwrap(), u64::MAX);
    }

    #[test]
    fn a_limit_is_at_least_one() {
        let limit = |raw| Query::parse(Some(raw)).unwrap().limit(1_000);
        assert_eq!(limit("limit=1000").unwrap(), 1_000);
        assert_eq!(limit("").unwrap(), 0);
        for raw in [
            "limit=0",
            "limit=",
            "limit=1001",
            "limit=-1",
            "limit=4294967295",
            "limit=4294967297",
            "limit=18446744073709551615",
            "limit=18446744073709551616",
        ] {
            let refused = limit(raw).unwrap_err();
            assert_eq!(refused.metadata["allowed"], "1 to 1000", "{raw}");
        }
    }

    #[test]
    fn what_is_no_percent_encoding_is_refused() {
        for raw in ["%", "%1", "%zz", "a%2", "%ff"] {
            assert!(decoded(raw, "name").is_err(), "{raw}");
        }
        assert_eq!(decoded("a%2Fb%3a", "name").unwrap(), "a/b:");
    }

    #[test]
    fn numbers_have_digits_and_nothing_else() {
        for raw in ["", "+1", "-1", "1.0", "1e3", " 1", "18446744073709551616"] {
            assert!(whole(raw, "token").is_err(), "{raw}");
        }
        assert_eq!(whole("18446744073709551615", "token").unwrap(), u64::MAX);
    }
}
