//! The page of a history that was judged offline.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use ringfence_check::Report as Checked;
use ringfence_check::history::{ReadError, Reader};

use super::settle::PageSize;
use super::timeline::Timeline;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The history cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The page cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// Where it was to be.
        path: PathBuf,
        /// The error of the file system.
        cause: io::Error,
    },
}

/// Writes the page of the history in a file, with all that checkers found in it, to another file;
/// one that was there is replaced.
///
/// # Errors
/// [`PageError`] if one of the files cannot be read or written.
pub fn write_offline(history: &Path, found: &[&Checked], to: &Path) -> Result<PageSize, PageError> {
    let name = history.file_name().unwrap_or(history.as_os_str());
    let mut timeline = Timeline::new(format!("check-history {}", name.display()));
    let mut reader = Reader::open(history)?;
    for record in &mut reader {
        timeline.record(&record?);
    }
    timeline.checked(&merged(found));
    let write = || timeline.write(&mut BufWriter::new(File::create(to)?));
    write().map_err(|cause| PageError::Write {
        path: to.to_owned(),
        cause,
    })
}

fn merged(found: &[&Checked]) -> Checked {
    let mut all = Checked::default();
    for report in found {
        all.violations.extend(report.violations.iter().cloned());
        all.more_violations += report.more_violations;
        all.unknowns.extend(report.unknowns.iter().cloned());
        all.remarks.extend(report.remarks.iter().cloned());
        all.looked_at.extend(report.looked_at.iter().copied());
    }
    all
}

#[cfg(test)]
mod tests {
    use ringfence_check::{Recording, blackbox};

    use super::*;

    const FIXTURE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/overtaken.jsonl"
    );

    #[test]
    fn a_history_and_what_was_found_in_it_become_a_page() {
        let fixture = Path::new(FIXTURE);
        let recording = Recording::read(Reader::open(fixture).unwrap()).unwrap();
        let found = blackbox::check(&recording, blackbox::Caps::default());
        let open = Checked {
            unknowns: vec!["nobody ever waited".to_owned()],
            ..Checked::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");

        let size = write_offline(fixture, &[&found, &open], &path).unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        assert_eq!(page.len(), size.bytes);
        for part in [
            "check-history overtaken.jsonl",
            "nobody ever waited",
            "\"unknown\"",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_page_that_cannot_be_written_names_the_place() {
        let nowhere = Path::new("/nowhere/page.html");
        let error = write_offline(Path::new(FIXTURE), &[], nowhere).unwrap_err();
        assert!(error.to_string().contains("/nowhere/page.html"), "{error}");
        let error = write_offline(nowhere, &[], nowhere).unwrap_err();
        assert!(matches!(error, PageError::Read(_)), "{error}");
    }
}
