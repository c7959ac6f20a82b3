//! Until when a certificate is valid, read from its DER.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::error::{Part, TlsError};
use crate::pem::Pem;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version of a certificate, which one of version 1 does not name.
const VERSION: u8 = 0xa0;

/// The earliest end of validity of the certificates in a PEM text, to the second. An end before 1970 is
/// 1970. The validity of nothing else is looked at, and no signature.
///
/// # Errors
/// [`TlsError`] if the text cannot be read, has no certificate, or one that is no X.509 certificate.
pub fn not_after(certificates: &Pem) -> Result<SystemTime, TlsError> {
    let wrong = |why: String| TlsError::new(Part::Certificate, certificates, why);
    let text = certificates
        .read()
        .map_err(|error| wrong(error.to_string()))?;
    let mut earliest: Option<SystemTime> = None;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        let end = end_of(&certificate)
            .ok_or_else(|| wrong("its validity cannot be read; expected X.509 in PEM".into()))?;
        earliest = Some(earliest.map_or(end, |before| before.min(end)));
    }
    earliest.ok_or_else(|| wrong("it contains no certificate; expected one in PEM".into()))
}

/// The `notAfter` of one certificate.
fn end_of(certificate: &[u8]) -> Option<SystemTime> {
    let mut signed = Der(Der(certificate).of(SEQUENCE)?);
    let mut fields = Der(signed.of(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    // Serial number, algorithm, issuer.
    fields.of(INTEGER)?;
    fields.of(SEQUENCE)?;
    fields.of(SEQUENCE)?;
    let mut validity = Der(fields.of(SEQUENCE)?);
    validity.next()?;
    let (tag, text) = validity.next()?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// Elements of DER, one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // The length follows, in at most four bytes.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes
                    .iter()
                    .fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
                (usize::try_from(length).ok()?, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, if it has this tag.
    fn of(&mut self, expected: u8) -> Option<&'a [u8]> {
        let (tag, content) = self.next()?;
        (tag == expected).then_some(content)
    }
}

/// A time as RFC 5280 writes it: `YYMMDDHHMMSSZ` until 2049, `YYYYMMDDHHMMSSZ` after it.
fn time(tag: u8, text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z')?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits[..2].parse().ok()?;
            (
                if year < 50 { 2000 + year } else { 1900 + year },
                &digits[2..],
            )
        }
        (GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let field = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = field(4)? * 3_600 + field(6)? * 60 + field(8)?;
    let since_1970 = days_since_1970(year, month, day) * 86_400 + seconds;
    let since_1970 = u64::try_from(since_1970).unwrap_or(0);
    UNIX_EPOCH.checked_add(Duration::from_secs(since_1970))
}

/// Days of the Gregorian calendar. The year begins in March here, so the leap day is its last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_of_march = (month + 9) % 12;
    let day_of_year = (153 * month_of_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // March 1st of the year 0 is 719,468 days before 1970.
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use ringfence_testkit::certificates::Authority;

    use super::*;

    fn text(pem: &str) -> Pem {
        Pem::Text(Arc::from(pem.as_bytes()))
    }

    fn seconds(time: SystemTime) -> u64 {
        time.duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "500101000000Z", 0),
            (UTC_TIME, "000229235959Z", 951_868_799),
            (UTC_TIME, "261125211000Z", 1_795_641_000),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "40960101000000Z", 67_090_118_400),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(seconds(time(tag, text).unwrap()), expected, "{text}");
        }
        for (tag, text) in [
            (UTC_TIME, "20500101000000Z"),
            (GENERALIZED_TIME, "500101000000Z"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "70010100000+Z"),
            (UTC_TIME, "700101000000"),
            (INTEGER, "700101000000Z"),
        ] {
            assert_eq!(time(tag, text), None, "{text}");
        }
    }

    #[test]
    fn a_certificate_ends_when_it_says_and_a_chain_with_its_first_end() {
        let authority = Authority::new("ca");
        let signed = authority.sign(&["localhost"]).certificate;
        let long = not_after(&text(&signed)).unwrap();
        assert_eq!(seconds(long), 67_090_118_400);
        let expired = authority.sign_expired(&["localhost"]).certificate;
        let short = not_after(&text(&expired)).unwrap();
        assert!(short < SystemTime::now(), "{short:?}");
        let chain = format!("{signed}{expired}{}", authority.pem());
        assert_eq!(not_after(&text(&chain)).unwrap(), short);
    }

    #[test]
    fn what_is_no_certificate_is_an_error_and_no_panic() {
        let why = not_after(&text("")).unwrap_err().to_string();
        assert!(why.contains("no certificate"), "{why}");
        let broken = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
        let why = not_after(&text(broken)).unwrap_err().to_string();
        assert!(why.contains("its validity cannot be read"), "{why}");
        let pem = Authority::new("ca").sign(&["a"]).certificate;
        let whole = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        for end in 0..whole.len() {
            end_of(&whole[..end]);
        }
        let mut flipped = whole.to_vec();
        for at in 0..flipped.len() {
            flipped[at] ^= 0xff;
            end_of(&flipped);
            flipped[at] ^= 0xff;
        }
    }
}
