//! What is wrong with a configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::unshown::shown;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A value is malformed or out of range.
    #[error("--{flag} is {}; allowed: {allowed}", shown(offered))]
    Value {
        /// The flag; the variable and the key of the file have the same name in their own spelling.
        flag: &'static str,
        /// What was offered.
        offered: String,
        /// What is allowed.
        allowed: String,
    },
    /// Clients of other machines would be served without any rights.
    #[error(
        "--{flag} is `{address}`, which other machines can reach, and without rights every client may \
         do anything; say --access enforced (or permissive) to give rights, --allow-anonymous if the \
         network keeps others out, or --{flag} 127.0.0.1:{} to try it on this machine", address.port()
    )]
    Open {
        /// The flag.
        flag: &'static str,
        /// Where clients would be served.
        address: SocketAddr,
    },
    /// A file that is named cannot be used.
    #[error("--{flag} is {}: {why}", shown(offered))]
    Unusable {
        /// The flag.
        flag: &'static str,
        /// The file.
        offered: String,
        /// What is wrong with it, and what is expected.
        why: String,
    },
    /// A variable of another project cannot be used. Its value is not repeated: it may be a secret.
    #[error("{name} {why}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// What is wrong with it, and what is expected.
        why: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}; check --config", shown(&path.to_string_lossy()))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The file system's error.
        source: std::io::Error,
    },
    /// The file is no configuration: not TOML, an unknown key, a value of the wrong type.
    #[error("configuration file {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
}

impl ConfigError {
    /// A value of `flag` that cannot be used.
    pub(crate) fn value(
        flag: &'static str,
        offered: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Value {
            flag,
            offered: offered.into(),
            allowed: allowed.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_file_in_the_place_of_its_path_is_not_repeated() {
        for content in [
            "-----BEGIN PRIVATE KEY-----hunter2",
            "hunter2\nhunter2\n",
            "Hunter2000112233445566778899aabbccddeeff",
            "n1.secret,HuNtEr+/hunter2hunter2hunter2hunter2hunter2=",
            "HuNtEr-_hunter2hunter2hunter2hunter2hunter2",
            "rft_5_hunter2",
            "eyJhbGci.hunter2.hunter2",
            "/iaWc53hunter2hunter2hunter2hunter2hunterD8=",
        ] {
            let allowed = "a path".to_owned();
            let said = ConfigError::value("key-file", content, allowed).to_string();
            let size = format!("--key-file is a text of {} bytes", content.len());
            assert!(said.starts_with(&size), "{said}");
            assert!(!said.to_lowercase().contains("hunter2"), "{said}");
        }
        let source = std::io::Error::other("none");
        let secret = "00112233445566778899aabbccddeeff";
        let path = PathBuf::from(secret);
        let said = ConfigError::Unreadable { path, source }.to_string();
        assert!(!said.contains(secret), "{said}");
        let path = "/etc/ringfence/0123456789abcdef0123456789abcdef";
        let said = ConfigError::value("key-file", path, "a key".to_owned()).to_string();
        assert!(said.contains(path), "{said}");
        let said = ConfigError::value("key-file", "n1.key", "a path".to_owned()).to_string();
        assert_eq!(said, "--key-file is `n1.key`; allowed: a path");
    }
}
