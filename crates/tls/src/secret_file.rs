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
/// The fewest different bytes of a secret. Of 32 random bytes some 30 are different; 15 or fewer
/// are not once in 10^15 such secrets.
const DIFFERENT_BYTES_MIN: usize = 16;
/// Permissions that a file with a secret may not have: all of other users, and to write of the
/// group. A group may read, since Kubernetes mounts a secret so for a Pod's own group.
#[cfg(unix)]
const MODE_OPEN: u32 = 0o027;

const HOW: &str = "make one with: (umask 077; openssl rand -hex 32 > cluster.secret), and give the \
                   same file to every node";

impl ClusterSecret {
    /// Reads a secret: at least 32 random bytes, as they are, or as text in hexadecimal digits or
    /// base64 (either alphabet, with padding or without), in which white space does not count.
    ///
    /// # Errors
    /// [`TlsError`] with [`Part::ClusterSecret`]: the file cannot be read, is longer than 4,096
    /// bytes, is open to other users, has fewer bytes, or is no random bytes.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let wrong = |why: String| TlsError::new(Part::ClusterSecret, path.display(), why);
        let (text, metadata) =
            contents(path).map_err(|error| wrong(format!("it cannot be read: {error}; {HOW}")))?;
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
    let different = seen.iter().filter(|seen| **seen).count();
    if different < DIFFERENT_BYTES_MIN {
        return Err(format!(
            "its {} bytes{form} have {different} different values; expected random bytes",
            bytes.len()
        ));
    }
    Ok(bytes)
}

/// The bytes, and how they stand in the file.
fn decoded(file: &[u8]) -> Result<(Vec<u8>, &'static str), String> {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if !file.iter().all(is_text) {
        return Ok((file.to_vec(), ""));
    }
    let digits: Vec<u8> = file
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
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
        .ok_or_else(|| {
            "it is text, and neither hexadecimal digits nor base64; a password can be guessed"
                .to_owned()
        })
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
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
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
        let cases: [(&[u8], &str); 8] = [
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
            (&[7; 64], "its 64 bytes have 1 different values"),
            (
                b"correct horse battery staple, and so on and on",
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
