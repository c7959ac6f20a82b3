//! Results on stdout: JSON for programs, short lines and tables for people.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::stderr::{aside, is_writable};
use super::visible::{visible, visible_lines};
use super::{Failure, Global, exit, signals};

/// How often to look whether a reader that holds up stdout has read.
const GLANCE: Duration = Duration::from_millis(20);

/// Where results go, and in which of the two forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    /// The form that `global` asks for.
    pub(crate) fn new(global: &Global) -> Self {
        Self { json: global.json }
    }

    /// Prints one result: `object` on one line, or `text` for people.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(crate) fn result(&self, object: &Value, text: impl AsRef<str>) -> Result<(), Failure> {
        told(self.print(object, text))
    }

    /// Prints one result, and returns the exit code that says the same: for those who only ask for
    /// the code it stands, also when no program reads the result.
    ///
    /// # Errors
    /// If stdout cannot be written for another reason.
    pub(crate) fn verdict(
        &self,
        object: &Value,
        text: impl AsRef<str>,
        code: ExitCode,
    ) -> Result<ExitCode, Failure> {
        match self.print(object, text) {
            Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => Err(unwritten(&cause)),
            Ok(()) | Err(_) => Ok(code),
        }
    }

    /// Prints one result that is lost if no program reads it, as soon as stdout takes it.
    ///
    /// # Errors
    /// If stdout cannot be written, its reader has gone away, or has not read until `too_late`
    /// completes; that a signal arrived before.
    pub(crate) async fn receipt(
        &self,
        object: &Value,
        text: impl AsRef<str>,
        too_late: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        tokio::select! {
            biased;
            () = writable() => self.print(object, text).map_err(|cause| unwritten(&cause)),
            signal = signals::stop() => Err(signals::interrupted(signal)),
            () = too_late => Err(unwritten(&io::Error::new(
                io::ErrorKind::TimedOut,
                "its reader has not read in time",
            ))),
        }
    }

    fn print(&self, object: &Value, text: impl AsRef<str>) -> io::Result<()> {
        if self.json {
            line(&object.to_string())
        } else {
            line(&visible_lines(text.as_ref()))
        }
    }

    /// Prints a list: one object per line, or a table for people, or `none` if it is empty.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(crate) fn list(&self, objects: &[Value], table: &Table, none: &str) -> Result<(), Failure> {
        if self.json {
            let mut objects = objects.iter();
            return told(objects.try_for_each(|object| line(&object.to_string())));
        }
        let text = if table.rows.is_empty() {
            none.to_owned()
        } else {
            table.to_string()
        };
        told(line(&visible_lines(text.trim_end())))
    }

    /// Prints text for people between results; nothing with `--json`.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.json {
            // Whether stdout can be written is found out by the next result.
            line(&visible_lines(text.as_ref())).ok();
        }
    }

    /// Prints a remark for people that is no result, to stderr; nothing with `--json`.
    pub(crate) fn remark(&self, text: impl AsRef<str>) {
        if !self.json {
            aside(visible_lines(text.as_ref()));
        }
    }
}

/// Prints text as it is.
///
/// # Errors
/// If stdout cannot be written.
pub(crate) fn raw(text: &[u8]) -> Result<(), Failure> {
    told(write(text))
}

/// Waits until stdout takes a line of up to 4 KiB without a pause. A full pipe whose reader does not
/// read would hold up the writer, and nothing else of it would go on: no deadline, no signal.
///
/// stdout is not made non-blocking: other processes write to the same pipe or terminal.
pub(crate) async fn writable() {
    while !is_writable(&io::stdout()) {
        tokio::time::sleep(GLANCE).await;
    }
}

/// Prints a line to stdout.
fn line(text: &str) -> io::Result<()> {
    write(format!("{text}\n").as_bytes())
}

fn write(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush())
}

/// A reader that has gone away, as in `ringfence lease list | head -1`,
/// ends the process without a word, as the other tools of a pipeline do.
fn told(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Err(Failure::silent()),
        Err(cause) => Err(unwritten(&cause)),
    }
}

fn unwritten(cause: &io::Error) -> Failure {
    let message = format!("cannot write to stdout: {cause}");
    Failure::new(exit::SYSTEM, "FAULT", message)
}

/// A cell of more characters than this stands out of line, so that one name of 255 bytes does not
/// push every row off the screen.
const ALIGNED_MAX: usize = 64;

/// Columns that line up; numbers stand at the right.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.heads.len(),
            "a row has a cell for each column"
        );
        let cells = cells.iter().map(|cell| visible(cell).into_owned());
        self.rows.push(cells.collect());
    }

    /// Whether every cell of a column is a number, with a unit perhaps; addresses, dates and names
    /// that begin with a digit are none.
    fn is_number(&self, column: usize) -> bool {
        self.rows.iter().all(|row| {
            let cell = &row[column];
            let digit_first = cell.starts_with(|letter: char| letter.is_ascii_digit());
            cell == "-" || (digit_first && !cell.contains([':', '@', '/', '-']))
        })
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = 0..self.heads.len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells
                .chain([self.heads[column].chars().count()])
                .filter(|width| *width <= ALIGNED_MAX)
                .max()
                .unwrap_or_default()
        };
        let widths: Vec<(usize, bool)> = columns
            .map(|column| (width(column), self.is_number(column)))
            .collect();
        let heads = self.heads.iter().map(|head| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut text = String::new();
            for (cell, (width, number)) in row.iter().zip(&widths) {
                match number {
                    true => text.push_str(&format!("{cell:>width$}  ")),
                    false => text.push_str(&format!("{cell:<width$}  ")),
                }
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_stand_at_the_right() {
        let mut table = Table::new(&["NAME", "TOKEN", "HOLDER"]);
        table.row(vec!["jobs/backup".into(), "7".into(), "alice".into()]);
        table.row(vec!["db".into(), "1234567".into(), "-".into()]);

        let shown = table.to_string();

        assert_eq!(
            shown,
            "NAME           TOKEN  HOLDER\njobs/backup        7  alice\ndb           1234567  -\n"
        );
    }

    #[test]
    fn what_moves_a_cursor_is_written_out() {
        let mut table = Table::new(&["NAME", "TOKEN"]);
        table.row(vec!["n1\u{1b}[2J\nn2".into(), "7".into()]);
        let shown = table.to_string();
        assert_eq!(shown, "NAME             TOKEN\nn1\\u{1b}[2J\\nn2      7\n");
    }

    #[test]
    fn one_long_name_does_not_widen_the_other_rows() {
        let mut table = Table::new(&["NAME", "TOKEN"]);
        table.row(vec!["n".repeat(255), "7".into()]);
        table.row(vec!["db".into(), "8".into()]);

        let shown = table.to_string();

        let lengths: Vec<usize> = shown.lines().map(str::len).collect();
        assert_eq!(lengths, [11, 255 + 2 + 5, 11], "{shown}");
    }
}
