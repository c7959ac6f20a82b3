//! The configuration file.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::given::Given;

/// The longest configuration file, in bytes: an operator who names another file by mistake, a disk
/// image say, learns so before it is in memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a configuration file.
pub(super) fn read_file(path: PathBuf) -> Result<Given, ConfigError> {
    let text = match read_text(&path) {
        Ok(text) if text.len() as u64 > FILE_BYTES_MAX => {
            let why = format!("it is longer than {FILE_BYTES_MAX} bytes, so it is no such file");
            return Err(ConfigError::File { path, why });
        }
        Ok(text) => text,
        Err(source) => return Err(ConfigError::Unreadable { path, source }),
    };
    parse_file(&text).map_err(|why| ConfigError::File { path, why })
}

/// The text of a file, up to one byte more than is allowed.
fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Parses the text of a configuration file; an error names the line and the key.
pub(super) fn parse_file(text: &str) -> Result<Given, String> {
    toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
}
