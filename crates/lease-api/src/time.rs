//! Points in time as Kubernetes writes them: RFC 3339, in UTC.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400;

/// The first and the last second that four digits of a year can say, since 1970.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A point in time in microseconds since 1970, in UTC, of the years 1 to 9999. It is shown with six
/// decimals, as a `MicroTime` of Kubernetes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroTime(i64);

impl MicroTime {
    /// From microseconds since 1970; those outside of the years 1 to 9999 become the nearest inside.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        let (first, last) = (
            SECONDS.start() * SECOND,
            SECONDS.end() * SECOND + SECOND - 1,
        );
        Self(micros.clamp(first, last))
    }

    /// From seconds and nanoseconds since 1970; `None` outside of the years 1 to 9999.
    #[must_use]
    pub fn from_parts(seconds: i64, nanos: i32) -> Option<Self> {
        let fine = SECONDS.contains(&seconds) && (0..1_000_000_000).contains(&nanos);
        fine.then(|| Self(seconds * SECOND + i64::from(nanos) / 1_000))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970, rounded down.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// The start of its second.
    #[must_use]
    pub fn whole(self) -> Self {
        Self(self.seconds() * SECOND)
    }

    /// Reads RFC 3339 with any number of decimals up to nine and any offset; decimals after the sixth
    /// are cut. `None` if the text is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (day, rest) = (text.get(..10)?, text.get(10..)?);
        let (year, month, date) = triple(day, '-', [4, 2, 2])?;
        let (clock, rest) = (rest.get(1..9)?, rest.strip_prefix(['T', 't'])?.get(8..)?);
        let (hour, minute, second) = triple(clock, ':', [2, 2, 2])?;
        if year < 1 || !(1..=12).contains(&month) || date < 1 || date > days_in(year, month) {
            return None;
        }
        // A leap second is shown as the last of its minute.
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let second = second.min(59);
        let (micros, zone) = fraction(rest)?;
        let local = days(year, month, date) * DAY + hour * 3_600 + minute * 60 + second;
        let seconds = local - offset(zone)?;
        let fine = SECONDS.contains(&seconds);
        fine.then(|| Self(seconds * SECOND + micros))
    }

    /// As a `Time` of Kubernetes is shown: without decimals.
    #[must_use]
    pub fn to_seconds_text(self) -> String {
        let (day, clock) = (
            self.seconds().div_euclid(DAY),
            self.seconds().rem_euclid(DAY),
        );
        let (year, month, date) = civil(day);
        let (hour, minute, second) = (clock / 3_600, clock / 60 % 60, clock % 60);
        format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_seconds_text();
        let micros = self.0.rem_euclid(SECOND);
        write!(f, "{}.{micros:06}Z", text.trim_end_matches('Z'))
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MicroTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom("a time is not RFC 3339, like 2006-01-02T15:04:05.000000Z")
        })
    }
}

/// A time that is shown in whole seconds: for `serde(with)`.
pub(crate) mod whole_seconds {
    use super::{Deserialize, Deserializer, MicroTime, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<MicroTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            None => serializer.serialize_none(),
            Some(time) => serializer.serialize_str(&time.to_seconds_text()),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<MicroTime>, D::Error> {
        let time = Option::<MicroTime>::deserialize(deserializer)?;
        Ok(time.map(MicroTime::whole))
    }
}

/// Digits and nothing else.
fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn triple(text: &str, between: char, lengths: [usize; 3]) -> Option<(i64, i64, i64)> {
    let mut parts = text.split(between);
    let mut part = |length: usize| {
        let part = parts.next()?;
        (part.len() == length).then(|| number(part)).flatten()
    };
    let all = (part(lengths[0])?, part(lengths[1])?, part(lengths[2])?);
    parts.next().is_none().then_some(all)
}

/// The decimals in microseconds, and what is behind them.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=9).contains(&length) {
        return None;
    }
    let (digits, zone) = rest.split_at(length);
    let nanos = number(digits)? * 10_i64.pow(9 - u32::try_from(length).ok()?);
    Some((nanos / 1_000, zone))
}

/// The seconds by which local time is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 23 && minutes <= 59).then(|| sign * (hours * 3_600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 of a date of the Gregorian calendar. Years begin in March here, so that the leap
/// day is the last of its year, and 400 of them have always 146,097 days.
fn days(year: i64, month: i64, date: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + date - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The other way round.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, date)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_shown_as_kubernetes_shows_them() {
        let time = MicroTime::from_parts(1_709_164_800, 1_999).unwrap();
        assert_eq!(time.to_string(), "2024-02-29T00:00:00.000001Z");
        assert_eq!(time.to_seconds_text(), "2024-02-29T00:00:00Z");
        let first = MicroTime::from_micros(i64::MIN);
        assert_eq!(first.to_string(), "0001-01-01T00:00:00.000000Z");
        let last = MicroTime::from_micros(i64::MAX);
        assert_eq!(last.to_string(), "9999-12-31T23:59:59.999999Z");
    }

    #[test]
    fn offsets_and_decimals_are_read() {
        let seconds = |text| MicroTime::parse(text).map(MicroTime::micros);
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds("1970-01-01T01:00:00.5+01:00"), Some(500_000));
        assert_eq!(seconds("1969-12-31T23:30:00.0000019-00:30"), Some(1));
        assert_eq!(seconds("2024-02-29T00:00:00Z"), Some(1_709_164_800_000_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2024",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00.0000000001Z",
            "2024-01-01T00:00:00+1:00",
            "+024-01-01T00:00:00Z",
            "0001-01-01T00:00:00+00:01",
            "äääää-01-01T00:00:00Z",
        ] {
            assert_eq!(MicroTime::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(micros in any::<i64>()) {
            let time = MicroTime::from_micros(micros);
            prop_assert_eq!(MicroTime::parse(&time.to_string()), Some(time));
            prop_assert_eq!(MicroTime::parse(&time.to_seconds_text()), Some(time.whole()));
        }

        #[test]
        fn no_text_is_a_panic(text in ".{0,40}", near in "[0-9TZ:.+-]{0,36}") {
            for time in [text, near].iter().filter_map(|text| MicroTime::parse(text)) {
                prop_assert_eq!(MicroTime::parse(&time.to_string()), Some(time));
            }
        }
    }
}
