//! The file with a cluster's secret.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{Part, TlsError};
use crate::secret::ClusterSecret;

/// The fewest random bytes of a cluster's secret: a guess is checked without asking any node, by
/// the certificate that a peer port shows.
pub const CLUSTER_SECRET_BYTES_MIN: usize = 32;
/// The longest file with a secret, in bytes.
pub const CLUSTER_SECRET_FILE_BYTES_MAX: u64 = 4096;
/// How many different values so many random bytes have at least, in percent of what they have on
/// average: 32 of them some 30. Less is found not once in a million random secrets, and in every text
/// of an alphabet, whatever its encoding.
const DIFFERENT_PERCENT: u64 = 75;
/// Permissions that a file with a secret may not have: all of other users, and to write of the
/// group. A group may read, since Kubernetes mounts a secret so for a Pod's own group.
#[cfg(unix)]
const MODE_OPEN: u32 = 0o027;

const HOW: &str = "make one with: (umask 077; openssl rand -hex 32 > cluster.secret), and give the \
                   same file to every node";

impl ClusterSecret {
    /// Reads a secret: at least 32 random bytes, as they are, or as text in hexadecimal digits or
    /// base64 (either alphabet, with padding or without), in one line or in lines of equal length, of
    /// which the last may be shorter. White space around lines does not count.
    ///
    /// # Errors
    /// [`TlsError`] with [`Part::ClusterSecret`]: the file cannot be read, is longer than 4,096
    /// bytes, is open to other users, has fewer bytes, or is a text or a pattern.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let wrong = |why: String| TlsError::new(Part::ClusterSecret, path.display(), why);
        let (text, metadata) = contents(path).map_err(|error| {
            wrong(format!(
                "it cannot be read: {error}; {}",
                crate::pem::next_step(&error, HOW)
            ))
        })?;
        if let Some(mode) = open_to_others(&metadata) {
            let why = format!(
                "its mode is {mode:04o}, so users other than its owner and group can read it, or \
                 others than its owner can write it; expected 0400 or 0440: chmod 0400 it, and make \
                 a new secret if others may have read it"
            );
            return Err(wrong(why));
        }
        random_bytes(&text)
            .map(|random| Self::of(&random))
            .map_err(|why| wrong(format!("{why}; {HOW}")))
    }
}

fn contents(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    // To open a pipe would wait for its writer. And a node is started again with the same command line,
    // when the pipe is empty.
    if !fs::metadata(path)?.is_file() {
        let why = "it is no regular file; expected one, not a pipe, a device or a folder";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = Vec::new();
    file.take(CLUSTER_SECRET_FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)?;
    Ok((text, metadata))
}

/// The permissions of the file, if they let others at it.
#[cfg(unix)]
fn open_to_others(metadata: &Metadata) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode() & 0o777;
    (mode & MODE_OPEN != 0).then_some(mode)
}

#[cfg(not(unix))]
fn open_to_others(_: &Metadata) -> Option<u32> {
    None
}

/// The random bytes that a file has, or in words what is wrong with it.
fn random_bytes(file: &[u8]) -> Result<Vec<u8>, String> {
    if file.len() as u64 > CLUSTER_SECRET_FILE_BYTES_MAX {
        let max = CLUSTER_SECRET_FILE_BYTES_MAX;
        return Err(format!("it is longer than {max} bytes, so it is no secret"));
    }
    let (bytes, form) = decoded(file)?;
    if bytes.len() < CLUSTER_SECRET_BYTES_MIN {
        return Err(format!(
            "it has {} bytes{form}; expected {CLUSTER_SECRET_BYTES_MIN} random bytes or more",
            bytes.len()
        ));
    }
    let mut seen = [false; 256];
    bytes
        .iter()
        .for_each(|byte| seen[usize::from(*byte)] = true);
    let different = seen.iter().filter(|seen| **seen).count() as u64;
    let expected = different_values(bytes.len());
    if different < expected * DIFFERENT_PERCENT / 100 {
        return Err(format!(
            "its {} bytes{form} have {different} different values, and so many random bytes have some \
             {expected}; a text or a pattern can be guessed",
            bytes.len()
        ));
    }
    Ok(bytes)
}

/// How many different values so many random bytes have on average.
fn different_values(bytes: usize) -> u64 {
    const MILLION: u64 = 1_000_000;
    // Of the values that are absent yet, each byte takes one in 256 away.
    let absent = (0..bytes).fold(256 * MILLION, |absent, _| absent - absent / 256);
    256 - absent / MILLION
}

/// The characters of a text, which is wrapped as programs wrap it. One with other white space is made of
/// words, and what it is in base64 is of no use: words can be guessed.
fn in_lines(text: &[u8]) -> Result<Vec<u8>, String> {
    const EXPECTED: &str = "expected hexadecimal digits or base64 in one line, or wrapped into lines of \
                            equal length; words can be guessed";
    let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
    let lines = lines.map(<[u8]>::trim_ascii);
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    let broken = |line: &&[u8]| line.iter().any(u8::is_ascii_whitespace);
    if lines.iter().any(broken) {
        return Err(format!(
            "it has white space within a line, as a passphrase has; {EXPECTED}"
        ));
    }
    if let [first, middle @ .., last] = &lines[..] {
        let is_even = middle.iter().all(|line| line.len() == first.len());
        if !is_even || last.len() > first.len() {
            let count = lines.len();
            return Err(format!(
                "it has {count} lines of different lengths; {EXPECTED}"
            ));
        }
    }
    Ok(lines.concat())
}

/// The bytes, and how they stand in the file.
fn decoded(file: &[u8]) -> Result<(Vec<u8>, &'static str), String> {
    const TEXT: &str =
        "it is text, and neither hexadecimal digits nor base64; a password can be guessed";
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if !file.iter().all(is_text) {
        // Of 32 random bytes one in a hundred million is text in UTF-8.
        let is_utf8 = !file.is_ascii() && std::str::from_utf8(file).is_ok();
        return match is_utf8 && file.len() >= CLUSTER_SECRET_BYTES_MIN {
            true => Err(TEXT.to_owned()),
            false => Ok((file.to_vec(), "")),
        };
    }
    let digits = in_lines(file)?;
    if digits.is_empty() {
        return Err("it is empty".to_owned());
    }
    if digits.iter().all(u8::is_ascii_hexdigit) {
        if digits.len() % 2 == 1 {
            let count = digits.len();
            return Err(format!("it has {count} hexadecimal digits, an odd number"));
        }
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0) as u8;
        let pairs = digits.chunks_exact(2);
        let bytes = pairs.map(|pair| (value(pair[0]) << 4) | value(pair[1]));
        return Ok((bytes.collect(), " in hexadecimal digits"));
    }
    let lax = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabets = [&alphabet::STANDARD, &alphabet::URL_SAFE];
    let mut found = alphabets
        .into_iter()
        .filter_map(|alphabet| GeneralPurpose::new(alphabet, lax).decode(&digits).ok());
    found
        .next()
        .map(|bytes| (bytes, " in base64"))
        .ok_or_else(|| TEXT.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn one_secret_may_be_written_in_several_ways() {
        let raw: Vec<u8> = (0..32).collect();
        let upper = HEX.to_uppercase();
        let wrapped = format!("{}\n{}\r\n", &HEX[..32], &HEX[32..]);
        let texts = [
            HEX,
            &upper,
            &wrapped,
            &format!("\n {} \n\n", wrapped.replace('\n', "\t\n\r\n ")),
            &format!("{}\n{}\n{}", &HEX[..30], &HEX[30..60], &HEX[60..]),
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX\nGBkaGxwdHh8=\n",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        ];
        for text in texts {
            assert_eq!(random_bytes(text.as_bytes()), Ok(raw.clone()), "{text}");
        }
        assert_eq!(random_bytes(&raw), Ok(raw.clone()));
        let high: Vec<u8> = (200..=255).collect();
        assert_eq!(random_bytes(&high), Ok(high.clone()));
        for text in [
            "yMnKy8zNzs_Q0dLT1NXW19jZ2tvc3d7f4OHi4-Tl5ufo6err7O3u7_Dx8vP09fb3-Pn6-_z9_v8",
            "yMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5ufo6err7O3u7/Dx8vP09fb3+Pn6+/z9/v8=",
        ] {
            assert_eq!(random_bytes(text.as_bytes()), Ok(high.clone()), "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_with_what_was_found() {
        // The same sentence as different systems write it.
        let german = "die katze tritt die treppe krumm, weil übermut sie dazu trieb";
        let latin1: Vec<u8> = german.chars().map(|letter| letter as u8).collect();
        let utf16: Vec<u8> = german.encode_utf16().flat_map(u16::to_le_bytes).collect();
        // In KOI8-R small letters stand at 0xC0 and above.
        let koi8: Vec<u8> = german
            .bytes()
            .filter(u8::is_ascii_lowercase)
            .map(|letter| letter - b'a' + 0xc0)
            .collect();
        let words = "correct horse battery staples and some more words to make it long enough";
        let [listed, tabbed] = ["\n", "\t"].map(|between| words.replace(' ', between));
        let parted = HEX.replace("0a", "0 a");
        let even = format!("{}\n{}", &HEX[..30], &HEX[30..]);
        let cases: [(&[u8], &str); 19] = [
            (
                words.as_bytes(),
                "it has white space within a line, as a passphrase has; expected hexadecimal",
            ),
            (tabbed.as_bytes(), "white space within a line"),
            (
                listed.as_bytes(),
                "it has 13 lines of different lengths; expected",
            ),
            (even.as_bytes(), "2 lines of different lengths"),
            (parted.as_bytes(), "white space within a line"),
            (
                german.as_bytes(),
                "neither hexadecimal digits nor base64; a password can be guessed",
            ),
            (
                "пароль, который никто не угадает".as_bytes(),
                "neither hexadecimal digits nor base64",
            ),
            (&latin1, "a text or a pattern can be guessed"),
            (&utf16, "a text or a pattern can be guessed"),
            (&koi8, "a text or a pattern can be guessed"),
            ("пароль".as_bytes(), "it has 12 bytes; expected 32"),
            (b"", "it is empty"),
            (b" \n", "it is empty"),
            (
                &HEX.as_bytes()[..62],
                "it has 31 bytes in hexadecimal digits",
            ),
            (
                &HEX.as_bytes()[..63],
                "63 hexadecimal digits, an odd number",
            ),
            (b"AAECAwQFBgcICQoLDA0ODw==", "it has 16 bytes in base64"),
            (&[200; 31], "it has 31 bytes; expected 32"),
            (
                &[7; 64],
                "its 64 bytes have 1 different values, and so many random bytes have some 57",
            ),
            (
                b"correct-horse-battery-staple,and-so-on-and-on",
                "neither hexadecimal digits nor base64",
            ),
        ];
        for (file, expected) in cases {
            let why = random_bytes(file).unwrap_err();
            assert!(why.contains(expected), "{expected}: {why}");
        }
        let long = vec![7; 5000];
        assert!(
            random_bytes(&long)
                .unwrap_err()
                .contains("longer than 4096")
        );
    }

    #[test]
    fn random_bytes_are_taken_whatever_they_are() {
        // A generator of fixed values: what is refused once in a million would fail at random.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut byte = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        for length in [32, 33, 48, 64, 256, 4_096] {
            for _ in 0..2_000 {
                let random: Vec<u8> = (0..length).map(|_| byte()).collect();
                assert_eq!(random_bytes(&random), Ok(random.clone()), "{random:?}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        for path in [path.as_path(), folder.path()] {
            let refused = ClusterSecret::read(path).unwrap_err();
            assert!(refused.why.contains("no regular file"), "{refused}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.secret");
        let missing = ClusterSecret::read(&path).unwrap_err();
        assert_eq!(missing.part, Part::ClusterSecret);
        assert!(missing.why.contains("it cannot be read"), "{missing}");

        std::fs::write(&path, HEX).unwrap();
        for (mode, allowed) in [
            (0o400, true),
            (0o600, true),
            (0o440, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o604, false),
            (0o602, false),
            (0o601, false),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = ClusterSecret::read(&path);
            match allowed {
                true => assert!(read.is_ok(), "{mode:o}: {read:?}"),
                false => {
                    let why = read.unwrap_err().to_string();
                    assert!(why.contains(&format!("its mode is {mode:04o}")), "{why}");
                    assert!(!why.contains(HEX), "{why}");
                }
            }
        }
    }
}
