//! How far the wall clocks of the nodes are apart.
//!
//! No grant depends on them. Tokens of a new term, the end of credentials and a restore do.

use std::time::Duration;

use super::cluster::{Answer, Clock};
use super::{Finding, Verdict};

/// The difference from which on it is a problem: a restore refuses more.
const APART_MAX: Duration = Duration::from_secs(1);

/// By how much a node's clock is ahead of this machine's, in seconds: between these two.
type Ahead = (f64, f64);

/// What the answers show of the clocks.
pub(super) fn findings(answers: &[Answer]) -> Vec<Finding> {
    let said = answers.iter().filter_map(|answer| {
        let said = answer.said.as_ref().ok()?;
        Some((said.status.name.clone(), ahead(&said.clock)?))
    });
    let clocks: Vec<(String, Ahead)> = said.collect();
    let Some((slow, fast, apart)) = farthest(&clocks) else {
        let finding = Finding::good("clocks", "cluster", "fewer than two nodes show theirs");
        return vec![finding.but(Verdict::Unknown, "")];
    };
    let found = format!("{slow} and {fast} are at least {apart:.1} s apart");
    let finding = Finding::good("clocks", "cluster", found);
    if apart <= APART_MAX.as_secs_f64() {
        let found = format!("at most {} s apart, as far as is seen", APART_MAX.as_secs());
        return vec![Finding::good("clocks", "cluster", found)];
    }
    vec![finding.but(
        Verdict::Problem,
        "synchronise the clocks (chrony, systemd-timesyncd): no lease depends on them, but credentials \
         end by them, and a restore is refused; see deploy/RECOVERY.md#a-clock-is-wrong-by-a-day",
    )]
}

/// A date has whole seconds, so the clock showed something from it up to a second later.
fn ahead(clock: &Clock) -> Option<Ahead> {
    let (from, to) = match clock.wall_ms {
        Some(millis) => (millis as f64 / 1e3, (millis as f64 + 1.0) / 1e3),
        None => {
            let date = unix(&clock.date)? as f64;
            (date, date + 1.0)
        }
    };
    let least = from - clock.answered.as_secs_f64();
    let most = to - clock.asked.as_secs_f64();
    Some((least, most))
}

/// The two that are the farthest apart, and by how much they are at least.
fn farthest(clocks: &[(String, Ahead)]) -> Option<(&str, &str, f64)> {
    if clocks.len() < 2 {
        return None;
    }
    let slow = clocks.iter().min_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let fast = clocks.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let apart = (fast.1.0 - slow.1.1).max(0.0);
    Some((&slow.0, &fast.0, apart))
}

/// Seconds since 1970 of a date of HTTP, as in `Sun, 06 Nov 1994 08:49:37 GMT`; `None` for any other
/// text, and for a day that no calendar has.
fn unix(date: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let number = |text: &str, digits: usize, most: i64| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<i64>().ok().filter(|_| is_number)?;
        (number <= most).then_some(number)
    };
    let parts: Vec<&str> = date.split_once(", ")?.1.split(' ').collect();
    let [day, name, year, clock, "GMT"] = parts[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|month| *month == name)?;
    let (day, year) = (number(day, 2, 31)?, number(year, 4, 9_999)?);
    let [hour, minute, second] = clock.split(':').collect::<Vec<_>>()[..] else {
        return None;
    };
    // A leap second is the last one of its minute.
    let (hour, minute) = (number(hour, 2, 23)?, number(minute, 2, 59)?);
    let second = number(second, 2, 60)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 => 28 + i64::from(is_leap),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    if year < 1970 || !(1..=length).contains(&day) {
        return None;
    }
    // Days by the civil calendar, whose year begins in March here.
    let month = month as i64 + 1;
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        for (date, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
        ] {
            assert_eq!(unix(date), Some(seconds), "{date}");
        }
        for date in [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov x 08:49:37 GMT",
            "a, 1 Jan",
            "Sun, 06 Nov 1994 9223372036854775807:49:37 GMT",
            "Sun, 06 Nov 1994 08:-9223372036854775808:37 GMT",
            "Sun, 06 Nov 9223372036854775807 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Thu, 30 Feb 2024 00:00:00 GMT",
            "Sun, 00 Nov 1994 00:00:00 GMT",
            "Sun, +6 Nov 1994 00:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
        ] {
            assert_eq!(unix(date), None, "{date}");
        }
    }

    #[test]
    fn clocks_that_may_be_equal_are_not_called_different() {
        let clock = |date: &str, asked: u64| Clock {
            wall_ms: None,
            date: date.to_owned(),
            asked: Duration::from_millis(asked),
            answered: Duration::from_millis(asked + 100),
        };
        let zero = "Thu, 01 Jan 1970 00:00:10 GMT";
        let of = |name: &str, clock: Clock| (name.to_owned(), ahead(&clock).unwrap());
        let same = [of("n1", clock(zero, 10_000)), of("n2", clock(zero, 10_850))];
        assert_eq!(farthest(&same).unwrap().2, 0.0);
        let behind = "Thu, 01 Jan 1970 00:00:05 GMT";
        let other = [
            of("n1", clock(zero, 10_000)),
            of("n2", clock(behind, 10_000)),
        ];
        let (slow, fast, apart) = farthest(&other).unwrap();
        assert_eq!((slow, fast), ("n2", "n1"));
        assert!((3.8..=5.0).contains(&apart), "{apart}");
        assert!(farthest(&other[..1]).is_none());
        // A clock that was set back shows its old date for as long; what it shows beside counts.
        let mut set = clock("Fri, 02 Jan 1970 00:00:10 GMT", 10_000);
        set.wall_ms = Some(10_050);
        let right = [of("n1", clock(zero, 10_000)), of("n2", set)];
        assert_eq!(farthest(&right).unwrap().2, 0.0);
    }
}
