//! The drawing at the end of the demo: a lane per process, time downwards, messages across.
//!
//! It is 80 columns wide and needs no colour. A lane's line says how its process stands.

use std::fmt;
use std::time::Duration;

/// The processes, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Leader,
    A,
    B,
    Store,
}

/// How a process stands, as its lane's line shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// There is none.
    Absent,
    /// It runs.
    Runs,
    /// It leads, or believes that it holds the lease.
    Believes,
    /// It is stopped.
    Stopped,
    /// It was killed in this row.
    Killed,
}

impl Stands {
    fn glyph(self) -> char {
        match self {
            Self::Absent => ' ',
            Self::Runs => '│',
            Self::Believes => '┃',
            Self::Stopped => '┊',
            Self::Killed => '╳',
        }
    }

    /// The line where an arrow crosses it.
    fn crossed(self) -> char {
        match self {
            Self::Absent | Self::Killed => '─',
            Self::Runs | Self::Stopped => '┼',
            Self::Believes => '╂',
        }
    }
}

/// How a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It is taken.
    Arrives,
    /// It is taken, and destroys what another process wrote.
    Overwrites,
    /// It is refused.
    Refused,
    /// It brings an answer back.
    Returns,
}

/// A message between two lanes, the left one named first.
pub(super) struct Message {
    pub(super) to: Lane,
    pub(super) text: String,
    pub(super) head: Head,
}

pub(super) struct Row {
    pub(super) at: Duration,
    pub(super) lane: Lane,
    pub(super) text: String,
    pub(super) message: Option<Message>,
    pub(super) stands: [Stands; LANES],
}

pub(super) const LANES: usize = 4;
const WIDTH: usize = 80;
/// The columns of the lanes' lines; text stands two to the right.
const COLUMNS: [usize; LANES] = [9, 25, 43, 61];
pub(super) const HEADS: [&str; LANES] = ["Raft leader", "worker A", "worker B", "store"];
/// A pause of this length is shown by a row of its own.
pub(super) const PAUSE: Duration = Duration::from_millis(400);

impl Lane {
    pub(super) const fn place(self) -> usize {
        self as usize
    }

    const fn column(self) -> usize {
        COLUMNS[self.place()]
    }
}

/// What happened, row by row.
pub(super) struct Timeline {
    pub(super) rows: Vec<Row>,
    stands: [Stands; LANES],
}

impl Timeline {
    /// An empty drawing in which every process runs.
    pub(super) fn new() -> Self {
        use Stands::{Believes, Runs};
        Self {
            rows: Vec::new(),
            stands: [Believes, Runs, Runs, Runs],
        }
    }

    /// From the next row on `lane` stands otherwise.
    pub(super) fn stands(&mut self, lane: Lane, stands: Stands) {
        self.stands[lane.place()] = stands;
    }

    /// Something that happens to one process.
    pub(super) fn note(&mut self, at: Duration, lane: Lane, text: impl Into<String>) {
        let (text, stands) = (text.into(), self.stands);
        self.rows.push(Row {
            at,
            lane,
            text,
            message: None,
            stands,
        });
    }

    /// A message from `lane` to one on its right, and what it says there.
    pub(super) fn message(
        &mut self,
        at: Duration,
        (lane, text): (Lane, impl Into<String>),
        head: Head,
        (to, there): (Lane, impl Into<String>),
    ) {
        let message = Some(Message {
            to,
            text: there.into(),
            head,
        });
        self.rows.push(Row {
            at,
            lane,
            text: text.into(),
            message,
            stands: self.stands,
        });
    }
}

impl Row {
    fn draw(&self) -> String {
        let mut line = [' '; WIDTH];
        write(&mut line, 0, &format!("{:>6.2} s", self.at.as_secs_f64()));
        for (column, stands) in COLUMNS.iter().zip(self.stands) {
            line[*column] = stands.glyph();
        }
        let mut from = self.lane.column() + 2;
        write(&mut line, from, &self.text);
        from += self.text.chars().count() + usize::from(!self.text.is_empty());
        if let Some(message) = &self.message {
            let to = message.to.column() - 1;
            line[from..=to].fill('─');
            for (column, stands) in COLUMNS.iter().zip(self.stands) {
                if (from..=to).contains(column) {
                    line[*column] = stands.crossed();
                }
            }
            match message.head {
                Head::Arrives | Head::Overwrites => line[to] = '▶',
                Head::Refused => line[to] = '✗',
                Head::Returns => line[from] = '◀',
            }
            write(&mut line, to + 3, &message.text);
        }
        finish(&line)
    }

    /// The lanes alone, for time that passes.
    fn draw_pause(&self) -> String {
        let mut line = [' '; WIDTH];
        write(&mut line, 5, "⋮");
        for (column, stands) in COLUMNS.iter().zip(self.stands) {
            line[*column] = match stands {
                Stands::Killed => ' ',
                stands => stands.glyph(),
            };
        }
        finish(&line)
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut heads = [' '; WIDTH];
        write(&mut heads, 4, "time");
        for (column, head) in COLUMNS.iter().zip(HEADS) {
            write(&mut heads, *column, head);
        }
        writeln!(f, "{}", finish(&heads))?;
        writeln!(f, "  {}", "─".repeat(WIDTH - 2))?;
        let mut before: Option<&Row> = None;
        for row in &self.rows {
            if let Some(before) = before.filter(|before| row.at.saturating_sub(before.at) > PAUSE) {
                writeln!(f, "{}", before.draw_pause())?;
            }
            writeln!(f, "{}", row.draw())?;
            before = Some(row);
        }
        writeln!(f, "  {}", "─".repeat(WIDTH - 2))?;
        writeln!(
            f,
            "  ┃ leads, or believes that it holds the lease    ┊ stopped    ✗ refused"
        )
    }
}

/// Writes `text` into the line; what does not fit is cut.
fn write(line: &mut [char; WIDTH], at: usize, text: &str) {
    for (place, letter) in line.iter_mut().skip(at).zip(text.chars()) {
        *place = letter;
    }
}

fn finish(line: &[char; WIDTH]) -> String {
    line.iter().collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story() -> Timeline {
        let at = Duration::from_millis;
        let mut drawn = Timeline::new();
        drawn.stands(Lane::A, Stands::Believes);
        drawn.message(
            at(10),
            (Lane::Leader, "grants"),
            Head::Arrives,
            (Lane::A, "token 1"),
        );
        drawn.message(
            at(20),
            (Lane::A, "reads"),
            Head::Returns,
            (Lane::Store, "100"),
        );
        drawn.stands(Lane::A, Stands::Stopped);
        drawn.note(at(30), Lane::A, "SIGSTOP");
        drawn.stands(Lane::B, Stands::Believes);
        drawn.message(
            at(3_000),
            (Lane::Leader, "grants"),
            Head::Arrives,
            (Lane::B, "token 2"),
        );
        drawn.stands(Lane::A, Stands::Believes);
        let refused = (Lane::Store, "STALE_TOKEN 1 < 2");
        drawn.message(at(3_010), (Lane::A, "writes 130"), Head::Refused, refused);
        drawn
    }

    #[test]
    fn messages_cross_the_lanes_between() {
        let drawn = story().to_string();
        let rows: Vec<&str> = drawn.lines().skip(2).collect();

        let expected = [
            "  0.01 s ┃ grants ──────▶┃ token 1         │                 │",
            "  0.02 s ┃               ┃ reads ◀─────────┼─────────────────│ 100",
            "  0.03 s ┃               ┊ SIGSTOP         │                 │",
            "     ⋮   ┃               ┊                 │                 │",
            "  3.00 s ┃ grants ───────┼────────────────▶┃ token 2         │",
            "  3.01 s ┃               ┃ writes 130 ─────╂────────────────✗│ STALE_TOKEN 1 < 2",
        ];
        assert_eq!(rows[..6], expected);
    }

    #[test]
    fn no_row_is_wider_than_a_terminal() {
        let widths = story()
            .to_string()
            .lines()
            .map(|row| row.chars().count())
            .max();
        assert!(widths <= Some(80), "{widths:?}");
    }
}
