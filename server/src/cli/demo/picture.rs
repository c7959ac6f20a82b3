//! Both acts of the demo as one SVG picture: the drawing of the terminal, for documents.

use std::fmt::Write;

use super::timeline::{HEADS, Head, LANES, PAUSE, Row, Stands, Timeline};

/// One act in the picture.
pub(super) struct Panel<'a> {
    pub(super) title: String,
    pub(super) drawing: &'a Timeline,
    /// What the store holds at the end.
    pub(super) verdict: String,
    pub(super) correct: bool,
}

const WIDTH: u32 = 860;
const MARGIN: u32 = 24;
/// The lanes' lines; text stands to the right.
const COLUMNS: [u32; LANES] = [96, 272, 470, 668];
const ROW: u32 = 20;
/// From the top of a panel to its first row: title, then the names of the lanes.
const HEADING: u32 = 66;
/// From the last row to the bottom of a panel.
const FOOT: u32 = 44;
/// The advance of a letter, about the same in all monospaced fonts. Arrows begin behind the text.
const LETTER: u32 = 8;

const INK: &str = "#1c222b";
const FAINT: &str = "#8a94a3";
const GOOD: &str = "#00805a";
const BAD: &str = "#c43302";
const BELIEF: &str = "#0069b1";

const STYLE: &str = "\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
fill:#1c222b;dominant-baseline:central}\
.title{font:600 16px system-ui,'Segoe UI','DejaVu Sans',sans-serif}\
.head{font-weight:600}.faint{fill:#8a94a3}";

/// Draws the acts below each other.
pub(super) fn draw(panels: &[Panel<'_>]) -> String {
    let mut body = String::new();
    let mut top = 0;
    for panel in panels {
        top = panel_at(&mut body, top, panel);
    }
    let key = "thick line: leads, or believes that it holds the lease · dotted: stopped";
    text(&mut body, MARGIN, top + 4, "faint", key);
    let height = top + 24;
    let title: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        escaped(&title.join(" ")),
    )
}

/// Draws one act from `top` on, and returns where the next one begins.
fn panel_at(out: &mut String, top: u32, panel: &Panel<'_>) -> u32 {
    text(out, MARGIN, top + 24, "title", &panel.title);
    for (column, head) in COLUMNS.iter().zip(HEADS) {
        text(out, column - 4, top + HEADING - 16, "head", head);
    }
    let mut y = top + HEADING;
    let mut before: Option<&Row> = None;
    for row in &panel.drawing.rows {
        if let Some(before) = before.filter(|before| row.at.saturating_sub(before.at) > PAUSE) {
            lanes(out, y, before);
            text(out, MARGIN + 20, y + ROW / 2, "faint", "⋮");
            y += ROW;
        }
        lanes(out, y, row);
        content(out, y + ROW / 2, row);
        y += ROW;
        before = Some(row);
    }
    let (mark, colour) = if panel.correct {
        ("✓", GOOD)
    } else {
        ("✗", BAD)
    };
    let verdict = format!("{mark} {}", panel.verdict);
    coloured(out, COLUMNS[0] - 4, y + 18, colour, &verdict);
    y + FOOT
}

/// How each process stands in this row.
fn lanes(out: &mut String, y: u32, row: &Row) {
    for (x, stands) in COLUMNS.iter().zip(row.stands) {
        let (colour, width, dashes) = match stands {
            Stands::Absent | Stands::Killed => continue,
            Stands::Runs => (FAINT, 1, "none"),
            Stands::Believes => (BELIEF, 5, "none"),
            Stands::Stopped => (BAD, 2, "2 4"),
        };
        line(out, (*x, y), (*x, y + ROW), colour, width, dashes);
    }
}

/// The time, the text, and the arrow of a row whose middle is at `y`.
fn content(out: &mut String, y: u32, row: &Row) {
    let time = format!("{:.2} s", row.at.as_secs_f64());
    text(out, MARGIN, y, "faint", &time);
    let from = COLUMNS[row.lane.place()];
    if row.stands[row.lane.place()] == Stands::Killed {
        cross(out, from, y);
    }
    let colour = match row.message.as_ref().map(|message| message.head) {
        Some(Head::Overwrites) => BAD,
        Some(Head::Refused) => GOOD,
        Some(Head::Arrives | Head::Returns) | None => INK,
    };
    coloured(out, from + 9, y, colour, &row.text);
    let Some(message) = &row.message else { return };
    let letters = u32::try_from(row.text.chars().count()).unwrap_or(0);
    let start = from + 14 + LETTER * letters;
    let to = COLUMNS[message.to.place()];
    let end = to - 5;
    line(out, (start, y), (end, y), colour, 1, "none");
    match message.head {
        Head::Arrives | Head::Overwrites => arrow(out, end, -7, y, colour),
        Head::Returns => arrow(out, start, 7, y, colour),
        Head::Refused => cross(out, end - 6, y),
    }
    coloured(out, to + 9, y, colour, &message.text);
}

/// A tip at `x` that opens towards `back`.
fn arrow(out: &mut String, x: u32, back: i32, y: u32, colour: &str) {
    let base = x.saturating_add_signed(back);
    let (above, below) = (y - 4, y + 4);
    put(
        out,
        format_args!("<path d=\"M{x} {y}L{base} {above}V{below}Z\" fill=\"{colour}\"/>"),
    );
}

fn cross(out: &mut String, x: u32, y: u32) {
    let (left, right, above, below) = (x - 5, x + 5, y - 5, y + 5);
    put(
        out,
        format_args!(
            "<path d=\"M{left} {above}L{right} {below}M{left} {below}L{right} {above}\" \
             stroke=\"{BAD}\" stroke-width=\"2.5\"/>"
        ),
    );
}

fn line(
    out: &mut String,
    (x, y): (u32, u32),
    (to_x, to_y): (u32, u32),
    colour: &str,
    width: u32,
    dashes: &str,
) {
    put(
        out,
        format_args!(
            "<path d=\"M{x} {y}L{to_x} {to_y}\" stroke=\"{colour}\" stroke-width=\"{width}\" \
             stroke-dasharray=\"{dashes}\"/>"
        ),
    );
}

fn text(out: &mut String, x: u32, y: u32, class: &str, text: &str) {
    let text = escaped(text);
    put(
        out,
        format_args!("<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{text}</text>"),
    );
}

fn coloured(out: &mut String, x: u32, y: u32, colour: &str, text: &str) {
    let text = escaped(text);
    put(
        out,
        format_args!("<text x=\"{x}\" y=\"{y}\" style=\"fill:{colour}\">{text}</text>"),
    );
}

fn put(out: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    writeln!(out, "{element}").ok();
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::timeline::Lane;
    use super::*;

    #[test]
    fn a_refused_write_is_crossed_out_and_its_text_is_escaped() {
        let mut drawing = Timeline::new();
        let refused = (Lane::Store, "STALE_TOKEN 1<2");
        let at = Duration::from_millis(3_010);
        drawing.message(at, (Lane::A, "writes 130"), Head::Refused, refused);
        let panel = |correct| Panel {
            title: "With a guard".into(),
            drawing: &drawing,
            verdict: "balance 170".into(),
            correct,
        };

        let drawn = draw(&[panel(true)]);

        assert!(drawn.starts_with("<svg "), "{drawn}");
        assert!(drawn.contains("STALE_TOKEN 1&lt;2"), "{drawn}");
        assert!(drawn.contains("3.01 s"), "{drawn}");
        assert!(drawn.contains("✓ balance 170"), "{drawn}");
        assert!(drawn.contains("stroke-width=\"2.5\""), "{drawn}");
        assert!(draw(&[panel(false)]).contains("✗ balance 170"));
    }
}
