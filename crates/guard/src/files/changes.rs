//! What a guarded write changes.

use std::collections::BTreeMap;

use super::FilesError;

/// The most bytes of a guarded file: 64 MiB.
pub const FILE_MAX: u64 = 64 << 20;

/// The most files that one write changes.
pub const CHANGES_MAX: usize = 1_000;

/// The most bytes of a name, which is the limit of the file systems.
const NAME_MAX: usize = 255;

/// The most characters of an invalid name that an error repeats.
const ECHO_MAX: usize = 64;

/// The changes of one guarded write, made together. Of several to one file the last counts.
#[derive(Clone, Debug, Default)]
#[must_use = "changes do nothing until a guard admits them"]
pub struct Changes {
    /// `None`: the file is deleted.
    pub(super) files: BTreeMap<String, Option<Vec<u8>>>,
}

impl Changes {
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the content of a file, or makes it. The permissions of a file that is there stay.
    pub fn put(mut self, name: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(name.into(), Some(content.into()));
        self
    }

    /// Deletes a file, if there is one. The mark stays.
    pub fn delete(mut self, name: impl Into<String>) -> Self {
        self.files.insert(name.into(), None);
        self
    }

    pub(super) fn check(&self) -> Result<(), FilesError> {
        if self.files.len() > CHANGES_MAX {
            return Err(FilesError::TooMany {
                offered: self.files.len(),
                max: CHANGES_MAX,
            });
        }
        for (name, content) in &self.files {
            check_name(name)?;
            let offered = content.as_ref().map_or(0, |content| content.len() as u64);
            check_size(name, offered)?;
        }
        Ok(())
    }
}

pub(super) fn check_size(name: &str, offered: u64) -> Result<(), FilesError> {
    if offered <= FILE_MAX {
        return Ok(());
    }
    Err(FilesError::TooLarge {
        name: name.to_owned(),
        offered,
        max: FILE_MAX,
    })
}

/// A name in the directory itself. Since it has no separator and no `.` in front, it leads neither out of
/// the directory nor to the files of the guard, on file systems that fold letters as well.
pub(super) fn check_name(name: &str) -> Result<(), FilesError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~:@+=,-".contains(&byte);
    let why = match name {
        "" => "it is empty",
        _ if name.len() > NAME_MAX => "it is too long",
        _ if name.starts_with('.') => "it begins with .",
        _ if name.contains('/') => "it is a path",
        _ if !name.bytes().all(allowed) => "it has other characters",
        _ => return Ok(()),
    };
    Err(FilesError::InvalidName {
        name: name.chars().take(ECHO_MAX).collect(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for good in [
            "a",
            "balance.json",
            "A~b:c@d+e=f,g-h_i..j",
            &"x".repeat(255),
        ] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            ".ringfence",
            ".RINGFENCE",
            "a/b",
            "/etc/passwd",
            "../a",
            "a\0b",
            "a\nb",
            "a b",
            "ä",
            "a\\b",
            &"x".repeat(256),
        ] {
            let refused = check_name(bad);
            assert!(
                matches!(refused, Err(FilesError::InvalidName { .. })),
                "{bad}"
            );
        }
    }
}
