//! Durations as people write them: `500ms`, `30s`, `5m`, `1h`.

use std::time::Duration;

pub(crate) use ringfence_proto::text::parse_duration as parse;

/// `duration` in milliseconds, as the wire has it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A number of milliseconds for people: `850ms`, `14.2s`, `3m 20s`, `2h 5m`.
pub(crate) fn show(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 if millis.is_multiple_of(1_000) => format!("{seconds}s"),
        1..60 => format!("{seconds}.{}s", millis % 1_000 / 100),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        let read = ["500ms", "30s", "5m", "1h"].map(|raw| parse(raw).map(millis));
        assert_eq!(read, [Ok(500), Ok(30_000), Ok(300_000), Ok(3_600_000)]);
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for raw in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "5d",
            "99999999999999999999s",
        ] {
            assert!(parse(raw).is_err(), "{raw:?} was read as a duration");
        }
        assert!(parse("18446744073709551615h").is_err());
    }

    #[test]
    fn people_see_two_digits_that_matter() {
        let shown = [850, 2_000, 14_210, 200_000, 7_500_000].map(show);
        assert_eq!(shown, ["850ms", "2s", "14.2s", "3m 20s", "2h 5m"]);
    }
}
