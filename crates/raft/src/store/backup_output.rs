//! A file that becomes a backup: written beside its place, and there as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ringfence_core::BackupDigest;

use crate::platform::runtime;
use crate::store::backup_file::Hashed;

/// How the name of an unfinished backup ends: `.NAME.ID.partial`.
const PARTIAL: &str = ".partial";
/// Hexadecimal digits that tell two unfinished backups of one name apart.
const ID_DIGITS: usize = 8;

/// A backup that is being written.
///
/// The bytes go to a file with the mode 0600 in the same directory, whose name begins with a dot.
/// [`BackupOutput::finish`] syncs it and puts it in its place; dropped before that, it goes.
pub struct BackupOutput {
    path: PathBuf,
    partial: PathBuf,
    file: Hashed<BufWriter<File>>,
    overwrite: bool,
    finished: bool,
}

impl BackupOutput {
    /// Begins a backup that will be at `path`. `overwrite`: a file that is there may be replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is a file and it may not be replaced; what the
    /// operating system fails with.
    pub fn create(path: &Path, overwrite: bool) -> io::Result<Self> {
        if !overwrite && fs::symlink_metadata(path).is_ok() {
            return Err(already_there(path));
        }
        let name = path.file_name().ok_or_else(|| {
            let why = format!("{} names no file", path.display());
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        let id: String = runtime::random_bytes()
            .iter()
            .take(ID_DIGITS / 2)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let partial = format!(".{}.{id}{PARTIAL}", name.to_string_lossy());
        let partial = path.with_file_name(partial);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&partial)?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            file: Hashed::new(BufWriter::new(file)),
            overwrite,
            finished: false,
        })
    }

    /// Removes what runs that were killed left of a backup that was to be at the same place. No other
    /// run may be writing there now.
    ///
    /// # Errors
    /// What the operating system fails with.
    pub(crate) fn remove_leftovers(&self) -> io::Result<()> {
        let Some(name) = self.path.file_name() else {
            return Ok(());
        };
        for entry in fs::read_dir(dir_of(&self.path))? {
            let entry = entry?;
            let found = entry.file_name();
            let found = found.to_string_lossy();
            let of_this = Self::partial_of(&found).is_some_and(|of| name == of);
            if of_this && self.partial.file_name() != Some(&entry.file_name()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The name of the backup that this file was to become, if `file` is the name of an unfinished one.
    #[must_use]
    pub fn partial_of(file: &str) -> Option<&str> {
        let (name, id) = file
            .strip_prefix('.')?
            .strip_suffix(PARTIAL)?
            .rsplit_once('.')?;
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(name)
    }

    /// Makes the file durable and puts it in its place.
    ///
    /// # Errors
    /// As [`BackupOutput::create`]; the place is as it was before then.
    pub fn finish(mut self) -> io::Result<BackupDigest> {
        self.file.flush()?;
        let file = self.file.inner().get_ref();
        file.sync_all()?;
        match self.overwrite {
            true => fs::rename(&self.partial, &self.path)?,
            // A link, unlike a rename, fails if another backup came first.
            false => {
                fs::hard_link(&self.partial, &self.path).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => already_there(&self.path),
                    _ => error,
                })?;
                fs::remove_file(&self.partial)?;
            }
        }
        self.finished = true;
        File::open(dir_of(&self.path))?.sync_all()?;
        Ok(self.file.digest())
    }
}

fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

fn already_there(path: &Path) -> io::Error {
    let why = format!(
        "{} is there already; name a file that does not exist yet, or move this one away",
        path.display()
    );
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

impl Write for BackupOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for BackupOutput {
    fn drop(&mut self) {
        if !self.finished {
            fs::remove_file(&self.partial).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_of_the_same_backup_goes_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let others = [".n3.backup.x.partial", ".n2.backup.0a1b2c3d.partial", "n1"];
        for name in others.into_iter().chain([".n3.backup.0a1b2c3d.partial"]) {
            fs::write(dir.path().join(name), "part").unwrap();
        }
        let path = dir.path().join("n3.backup");
        let mut output = BackupOutput::create(&path, false).unwrap();
        output.remove_leftovers().unwrap();
        output.write_all(b"whole").unwrap();
        output.finish().unwrap();
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [others[1], others[0], others[2], "n3.backup"]);
    }
}
