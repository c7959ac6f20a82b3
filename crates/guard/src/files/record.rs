//! The file of the mark: what was committed last, and what remains to be done for it.

use std::fmt::Write as _;

use ringfence_core::{FencingToken, LeaseName};

use super::changes::check_name;
use crate::mark_text::{self, Unreadable, line};

/// The last committed write of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) mark: FencingToken,
    /// Counts the writes of the directory; the staged files of a write have it in their names.
    pub(super) revision: u64,
    pub(super) operations: Vec<Operation>,
}

/// What one staged file is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// It takes the place of the file of this name.
    Put(String),
    /// It is empty, and stands for the end of the file of this name.
    Delete(String),
}

impl Record {
    pub(super) fn encode(&self, name: &LeaseName) -> String {
        let mut text = mark_text::encode(name, self.mark);
        // Writing to a string does not fail.
        writeln!(text, "revision {}", self.revision).ok();
        for operation in &self.operations {
            match operation {
                Operation::Put(name) => writeln!(text, "put {name}").ok(),
                Operation::Delete(name) => writeln!(text, "delete {name}").ok(),
            };
        }
        text.push_str("end\n");
        text
    }

    pub(super) fn decode(text: &[u8], name: &LeaseName) -> Result<Self, Unreadable> {
        let damaged = Unreadable::Damaged;
        let (mark, rest) = mark_text::decode(text, name)?;
        let (revision, mut rest) =
            line(rest, "revision ").ok_or(damaged("its fourth line is not `revision NUMBER`"))?;
        let revision = revision.parse();
        let revision = revision.map_err(|_| damaged("its revision is no number"))?;
        let mut operations = Vec::new();
        loop {
            if rest == "end\n" {
                return Ok(Self {
                    mark,
                    revision,
                    operations,
                });
            }
            let (operation, behind) = if let Some((file, behind)) = line(rest, "put ") {
                (Operation::Put(file.to_owned()), behind)
            } else if let Some((file, behind)) = line(rest, "delete ") {
                (Operation::Delete(file.to_owned()), behind)
            } else {
                return Err(damaged("it has a line that is neither put, delete nor end"));
            };
            let (Operation::Put(file) | Operation::Delete(file)) = &operation;
            // A record that names something outside would be carried out there.
            check_name(file).map_err(|_| damaged("it names an invalid file"))?;
            operations.push(operation);
            rest = behind;
        }
    }

    /// The name of the staged file of an operation.
    pub(super) fn staged(&self, at: usize) -> String {
        format!("{}{}-{at}", super::disk::STAGED, self.revision)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_record_is_read_as_written_and_leads_nowhere_else() {
        let name = LeaseName::parse("bank/balance").unwrap();
        let record = Record {
            mark: FencingToken::new(FencingToken::MAX).unwrap(),
            revision: 3,
            operations: vec![Operation::Put("a".into()), Operation::Delete("b".into())],
        };
        let text = record.encode(&name);
        assert_eq!(Record::decode(text.as_bytes(), &name), Ok(record));
        for broken in [
            text.replace("put a", "put ../a"),
            text.replace("delete b", "delete /b"),
            text.replace("end\n", ""),
            text.replace("revision 3", "revision x"),
            text.clone() + "more",
        ] {
            let read = Record::decode(broken.as_bytes(), &name);
            assert!(matches!(read, Err(Unreadable::Damaged(_))), "{broken}");
        }
    }
}
