//! The digest of a backup: what an operator keeps elsewhere, since a file cannot prove itself.

use core::fmt;
use core::str::FromStr;

/// SHA-256 over all bytes of a backup's file; in text 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupDigest([u8; 32]);

/// A text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InvalidDigest {
    /// How many bytes it has.
    bytes: usize,
}

impl BackupDigest {
    /// The digest with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for BackupDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = InvalidDigest { bytes: text.len() };
        // `sha256sum` writes the digits alone; other tools put the algorithm in front.
        let digits = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let (pairs, rest) = digits.as_chunks::<2>();
        let mut bytes = [0; 32];
        if !rest.is_empty() || pairs.len() != bytes.len() {
            return Err(invalid);
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            let value = high.zip(low).map(|(high, low)| high << 4 | low);
            *byte = value
                .and_then(|value| u8::try_from(value).ok())
                .ok_or(invalid)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for BackupDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BackupDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "digest {self}")
    }
}

impl fmt::Display for InvalidDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a text of {} bytes is no digest: expected the 64 hexadecimal digits that `ringfence \
             backup` prints",
            self.bytes
        )
    }
}

impl core::error::Error for InvalidDigest {}
