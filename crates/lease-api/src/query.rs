//! The parameters behind `?`, each read as kube-apiserver reads it. Unknown ones are ignored.

use crate::lease::version;
use crate::options::{
    DeleteOptions, FieldValidation, Include, ListOptions, Match, ReadOptions, WatchOptions,
    WriteOptions,
};
use crate::status::{Cause, Failure};

/// The decoded parameters.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands behind `?`. 400 for what is no percent-encoding of UTF-8.
    pub(crate) fn parse(raw: Option<&str>) -> Result<Self, Failure> {
        let pairs = raw.unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((unquoted(name, true)?, unquoted(value, true)?))
        });
        pairs.collect::<Result<_, Failure>>().map(Self)
    }

    /// The first of this name; empty as absent.
    fn text(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        let (_, value) = found.next()?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    fn owned(&self, name: &str) -> String {
        self.text(name).unwrap_or_default().to_owned()
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = version(text).ok_or_else(|| refused(name, text, "a whole number"))?;
        Ok(Some(number))
    }

    /// As Go reads them in queries: anything but `0` and `false` is true; there without a value, too.
    fn flag(&self, name: &str) -> Option<bool> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        let (_, value) = found.next()?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }

    /// `timeout`: a duration as Go writes it.
    fn timeout(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = self.text("timeout") else {
            return Ok(None);
        };
        let millis = millis(text).ok_or_else(|| refused("timeout", text, "a duration like 5s"))?;
        Ok(Some(millis).filter(|millis| *millis > 0))
    }

    pub(crate) fn read(&self) -> Result<ReadOptions, Failure> {
        Ok(ReadOptions {
            resource_version: self.number("resourceVersion")?,
            timeout_ms: self.timeout()?,
            include: self.include()?,
        })
    }

    fn include(&self) -> Result<Include, Failure> {
        match self.text("includeObject") {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::None),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(refused("includeObject", other, "None, Metadata or Object")),
        }
    }

    pub(crate) fn list(&self) -> Result<ListOptions, Failure> {
        let read = self.read()?;
        let continue_from = self.text("continue").map(str::to_owned);
        let version_match = match self.text("resourceVersionMatch") {
            None => None,
            Some("Exact") => Some(Match::Exact),
            Some("NotOlderThan") => Some(Match::NotOlderThan),
            Some(other) => {
                let allowed = ["Exact", "NotOlderThan"];
                let cause = Cause::not_supported("resourceVersionMatch", other, &allowed);
                return Err(Failure::invalid_as("ListOptions", "", vec![cause]));
            }
        };
        self.check_list(&read, version_match, continue_from.is_some())?;
        Ok(ListOptions {
            read,
            version_match,
            limit: self.number("limit")?.filter(|limit| *limit > 0),
            continue_from,
            label_selector: self.owned("labelSelector"),
            field_selector: self.owned("fieldSelector"),
        })
    }

    fn check_list(
        &self,
        read: &ReadOptions,
        version_match: Option<Match>,
        continues: bool,
    ) -> Result<(), Failure> {
        const FIELD: &str = "resourceVersionMatch";
        let why = match (version_match, read.resource_version) {
            (Some(_), _) if continues => "is forbidden when continue is provided",
            (Some(_), None) => "is forbidden unless resourceVersion is provided",
            (Some(Match::Exact), Some(0)) => "\"Exact\" is forbidden for resourceVersion \"0\"",
            _ if continues && read.resource_version.is_some_and(|version| version > 0) => {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            _ if self.flag("sendInitialEvents").is_some() => {
                let why = "sendInitialEvents is forbidden for list";
                let cause = Cause::forbidden("sendInitialEvents", why);
                return Err(Failure::invalid_as("ListOptions", "", vec![cause]));
            }
            _ => return Ok(()),
        };
        let cause = Cause::forbidden(FIELD, &format!("{FIELD} {why}"));
        Err(Failure::invalid_as("ListOptions", "", vec![cause]))
    }

    pub(crate) fn watch(&self) -> Result<WatchOptions, Failure> {
        let send_initial_events = self.flag("sendInitialEvents");
        let version_match = self.text("resourceVersionMatch");
        let fault = match (send_initial_events, version_match) {
            (Some(_), Some("NotOlderThan")) | (None, None) => None,
            (Some(_), _) => {
                Some("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
            }
            (None, Some(_)) => Some(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        };
        if let Some(why) = fault {
            let cause = Cause::forbidden("resourceVersionMatch", why);
            return Err(Failure::invalid_as("ListOptions", "", vec![cause]));
        }
        Ok(WatchOptions {
            resource_version: self.number("resourceVersion")?,
            bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events,
            timeout_seconds: self
                .number("timeoutSeconds")?
                .filter(|seconds| *seconds > 0),
            include: self.include()?,
            label_selector: self.owned("labelSelector"),
            field_selector: self.owned("fieldSelector"),
        })
    }

    pub(crate) fn write(&self) -> Result<WriteOptions, Failure> {
        Ok(WriteOptions {
            dry_run: !self.dry_run()?.is_empty(),
            field_manager: self.owned("fieldManager"),
            force: self.flag("force"),
            field_validation: match self.text("fieldValidation") {
                None | Some("Warn") => FieldValidation::Warn,
                Some("Ignore") => FieldValidation::Ignore,
                Some("Strict") => FieldValidation::Strict,
                Some(other) => {
                    let allowed = ["", "Ignore", "Strict", "Warn"];
                    let cause = Cause::not_supported("fieldValidation", other, &allowed);
                    return Err(Failure::invalid_as("WriteOptions", "", vec![cause]));
                }
            },
            timeout_ms: self.timeout()?,
        })
    }

    pub(crate) fn delete(&self) -> Result<DeleteOptions, Failure> {
        let text = |name| self.text(name).map(str::to_owned);
        let grace = self.text("gracePeriodSeconds").map(|text| {
            let number = text.parse::<i64>();
            number.map_err(|_| refused("gracePeriodSeconds", text, "a whole number"))
        });
        let options = DeleteOptions {
            grace_period_seconds: grace.transpose()?,
            uid: None,
            resource_version: None,
            propagation_policy: text("propagationPolicy"),
            dry_run: self.dry_run()?,
        };
        options.check()?;
        Ok(options)
    }

    fn dry_run(&self) -> Result<Vec<String>, Failure> {
        let values = self.0.iter().filter(|(key, _)| key == "dryRun");
        let values = values.map(|(_, value)| value.clone());
        let values: Vec<String> = values.filter(|value| !value.is_empty()).collect();
        match values.iter().find(|value| *value != "All") {
            None => Ok(values),
            Some(other) => {
                let cause = Cause::not_supported("dryRun", other, &["All"]);
                Err(Failure::invalid_as("WriteOptions", "", vec![cause]))
            }
        }
    }
}

fn refused(name: &str, text: &str, allowed: &str) -> Failure {
    Failure::bad_request(format!(
        "invalid query parameter {name}: {text:?} is not {allowed}"
    ))
}

/// A duration as Go writes it, without a sign, in milliseconds: `1m30s`, `1.5s`, `34s`.
fn millis(text: &str) -> Option<u64> {
    let mut sum: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(end);
        let length = behind
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(length);
        let micros = match unit {
            "ns" => 0,
            "us" | "µs" | "μs" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            _ => return None,
        };
        sum = sum.checked_add(scaled(number, micros)?)?;
        rest = behind;
    }
    (!text.is_empty()).then_some(sum / 1_000)
}

/// A decimal number times a whole one, rounded down. Decimals after the sixth are cut.
fn scaled(number: &str, by: u64) -> Option<u64> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let digits = |text: &str| match text {
        "" => Some(0),
        text => version(text),
    };
    // What is left of the decimals has a second point in it.
    digits(decimals.get(..decimals.len().min(6))?)?;
    if decimals.contains('.') {
        return None;
    }
    let kept: String = decimals.chars().take(6).collect();
    let millionths = digits(&format!("{kept:0<6}"))?;
    let fraction = u64::try_from(u128::from(millionths) * u128::from(by) / 1_000_000).ok()?;
    digits(whole)?.checked_mul(by)?.checked_add(fraction)
}

/// Percent-encoding undone; `+` is a space in queries. 400 for what is none, or no UTF-8.
pub(crate) fn unquoted(raw: &str, plus: bool) -> Result<String, Failure> {
    let refuse = || Failure::bad_request(format!("invalid URL escape in {raw:?}"));
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let pair = digit(rest.next()).zip(digit(rest.next()));
                let (high, low) = pair.ok_or_else(refuse)?;
                u8::try_from(high * 16 + low).map_err(|_| refuse())?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(raw: &str) -> Query {
        Query::parse(Some(raw)).unwrap()
    }

    #[test]
    fn durations_of_go_are_read() {
        for (text, expected) in [
            ("5s", 5_000),
            ("34s", 34_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("1h0m0s", 3_600_000),
            ("250ms", 250),
            (".5s", 500),
            ("1.0000009s", 1_000),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "1x",
            "-1s",
            "1.2.3s",
            ".s",
            "99999999999999999999s",
            "1.é5s",
        ] {
            assert_eq!(millis(text), None, "{text}");
        }
    }

    #[test]
    fn versions_and_their_match_are_read_together() {
        let list = query("resourceVersion=0&limit=500&labelSelector=a%3Db&pretty=true").list();
        let list = list.unwrap();
        assert_eq!(list.read.resource_version, Some(0));
        assert_eq!(
            (list.limit, list.label_selector.as_str()),
            (Some(500), "a=b")
        );
        let exact = query("resourceVersion=5&resourceVersionMatch=Exact")
            .list()
            .unwrap();
        assert_eq!(exact.version_match, Some(Match::Exact));
        for raw in [
            "resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=Newest",
            "resourceVersion=1&resourceVersionMatch=Exact&continue=a",
            "sendInitialEvents=true",
        ] {
            assert_eq!(query(raw).list().unwrap_err().code(), 422, "{raw}");
        }
        for raw in [
            "resourceVersion=a",
            "limit=-1",
            "resourceVersion=1&continue=a",
        ] {
            assert_eq!(query(raw).list().unwrap_err().code(), 400, "{raw}");
        }
    }

    #[test]
    fn initial_events_need_their_match() {
        let raw = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                   &allowWatchBookmarks=true&timeoutSeconds=321";
        let watch = query(raw).watch().unwrap();
        assert_eq!(watch.send_initial_events, Some(true));
        assert!(watch.bookmarks);
        assert_eq!(watch.timeout_seconds, Some(321));
        for raw in [
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
        ] {
            assert_eq!(query(raw).watch().unwrap_err().code(), 422, "{raw}");
        }
    }

    #[test]
    fn a_rehearsal_is_all_or_refused() {
        assert!(query("dryRun=All").write().unwrap().dry_run);
        assert!(!query("dryRun=").write().unwrap().dry_run);
        assert_eq!(query("dryRun=Some").write().unwrap_err().code(), 422);
        assert_eq!(query("dryRun=Some").delete().unwrap_err().code(), 422);
        let delete = query("gracePeriodSeconds=0&propagationPolicy=Orphan").delete();
        assert_eq!(delete.unwrap().grace_period_seconds, Some(0));
        assert_eq!(
            query("propagationPolicy=x").delete().unwrap_err().code(),
            422
        );
    }

    #[test]
    fn what_is_no_percent_encoding_is_refused() {
        for raw in ["%", "a=%1", "a=%zz", "a=%ff"] {
            assert_eq!(
                Query::parse(Some(raw)).err().map(|no| no.code()),
                Some(400),
                "{raw}"
            );
        }
        assert_eq!(unquoted("a+b%2F", false).unwrap(), "a+b/");
        assert_eq!(unquoted("a+b", true).unwrap(), "a b");
    }
}
