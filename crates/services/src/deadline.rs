//! The caller's deadline (`grpc-timeout`) of a unary call.
//!
//! The transport would end the call with a bare `CANCELLED`; answering a little before says what
//! is known instead.

use std::future::Future;
use std::time::Duration;

use ringfence_proto::Refusal;
use tonic::metadata::MetadataMap;

use crate::limits::{DEADLINE_MARGIN_MAX, DEADLINE_MARGIN_MIN};

/// Runs `work` until shortly before the deadline in `metadata`, if there is one.
pub(super) async fn within<T>(
    metadata: &MetadataMap,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let Some(left) = deadline(metadata) else {
        return work.await;
    };
    let margin = (left / 10).clamp(DEADLINE_MARGIN_MIN, DEADLINE_MARGIN_MAX);
    let early = left.saturating_sub(margin).max(left / 2);
    match tokio::time::timeout(early, work).await {
        Ok(done) => done,
        Err(_) => Err(Refusal::outcome_unknown(format!(
            "the deadline of {left:?} has passed"
        ))),
    }
}

/// The time left to the caller: up to eight digits and a unit, as gRPC defines it.
fn deadline(metadata: &MetadataMap) -> Option<Duration> {
    let raw = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = raw.split_at_checked(raw.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_read_in_every_unit_and_nonsense_is_none() {
        let cases = [
            ("2H", Some(Duration::from_secs(7_200))),
            ("3M", Some(Duration::from_secs(180))),
            ("4S", Some(Duration::from_secs(4))),
            ("500m", Some(Duration::from_millis(500))),
            ("1000000u", Some(Duration::from_secs(1))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("123456789S", None),
            ("S", None),
            ("-1S", None),
            ("5", None),
            ("", None),
        ];
        for (raw, expected) in cases {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", raw.parse().expect("ASCII"));
            assert_eq!(deadline(&metadata), expected, "{raw}");
        }
    }
}
