//! Puts the one file together: the page's skeleton, its style, its program, and the data.

use std::io::{self, Write};

use super::data::Data;

/// The longest page, in bytes: what a browser opens without a pause that one notices.
pub const PAGE_BYTES_MAX: usize = 24 * 1024 * 1024;

/// Of these, what is left for the run beside the page's own program.
const DATA_BYTES_MAX: usize = PAGE_BYTES_MAX - 256 * 1024;

const SKELETON: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");

/// The program, in the order in which its parts lean on each other.
const PROGRAM: [&str; 13] = [
    include_str!("page/data.js"),
    include_str!("page/words.js"),
    include_str!("page/describe.js"),
    include_str!("page/scale.js"),
    include_str!("page/brush.js"),
    include_str!("page/lanes.js"),
    include_str!("page/paint.js"),
    include_str!("page/rows.js"),
    include_str!("page/map.js"),
    include_str!("page/panel.js"),
    include_str!("page/search.js"),
    include_str!("page/main.js"),
    include_str!("page/events.js"),
];

/// Writes the page, and returns how long it is.
///
/// # Errors
/// What `to` says.
pub(super) fn write(data: &mut Data, to: &mut impl Write) -> io::Result<usize> {
    let mut json = in_script(&serde_json::to_string(data)?);
    if json.len() > DATA_BYTES_MAX {
        data.drop_texts();
        json = in_script(&serde_json::to_string(data)?);
    }
    let title = in_text(&data.title);
    let summary = in_text(&format!(
        "Verdict: {}. {}",
        data.verdict,
        data.reasons.join(" ")
    ));
    let mut written = 0;
    let mut put = |part: &str| {
        written += part.len();
        to.write_all(part.as_bytes())
    };
    // The skeleton is cut at its marks before anything is put in, so that no text of the run can
    // be taken for a mark.
    let mut rest = SKELETON;
    while let Some((before, behind)) = rest.split_once("{{") {
        put(before)?;
        let Some((name, after)) = behind.split_once("}}") else {
            break;
        };
        match name {
            "title" => put(&title)?,
            "summary" => put(&summary)?,
            "style" => put(STYLE)?,
            "data" => put(&json)?,
            "script" => {
                put("\"use strict\";\n(() => {\n")?;
                for part in PROGRAM {
                    put(part)?;
                }
                put("})();")?;
            }
            other => unreachable!("the skeleton is ours and has no mark called {other}"),
        }
        rest = after;
    }
    put(rest)?;
    Ok(written)
}

/// JSON as it may stand in a script element: nothing in it can end the element, begin a comment or
/// a tag, or break a line of JavaScript. All of these occur in strings only, where the escape means
/// the same.
fn in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + json.len() / 50);
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => safe.push(other),
        }
    }
    safe
}

/// Text as it may stand between tags.
fn in_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str) -> String {
        let mut data = Data {
            title: title.to_owned(),
            verdict: "valid",
            texts: vec![title.to_owned()],
            ..Data::default()
        };
        let mut bytes = Vec::new();
        let length = write(&mut data, &mut bytes).unwrap();
        assert_eq!(length, bytes.len());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn no_text_of_the_run_can_end_the_script() {
        let nasty = "</script><script>alert(1)</script><!-- {{script}} \u{2028} &amp;";
        let (plain, page) = (page("x"), page(nasty));

        let ends = |page: &str| page.matches("</script").count();
        assert_eq!(ends(&page), ends(&plain));
        assert_eq!(
            page.matches("<script").count(),
            plain.matches("<script").count()
        );
        assert_eq!(page.matches("<!--").count(), plain.matches("<!--").count());
        assert!(!page.contains("alert(1)</script>"));
    }

    #[test]
    fn what_is_embedded_reads_back_as_what_it_was() {
        let nasty = "</script>\u{2029}\"\\<!--{{data}}";
        let page = page(nasty);

        let (_, behind) = page.split_once("id=\"data\">").unwrap();
        let (json, _) = behind.split_once("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(data["texts"][0], nasty);
        assert!(!json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
    }

    #[test]
    fn texts_that_would_make_it_too_long_are_left_out_and_that_is_said() {
        // Each character takes six bytes in the page.
        let long = "<".repeat(PAGE_BYTES_MAX / 6);
        let mut data = Data {
            texts: vec![String::new(), long],
            ..Data::default()
        };
        data.ops.text = vec![1, 1, 0];
        let mut bytes = Vec::new();

        assert!(write(&mut data, &mut bytes).unwrap() < PAGE_BYTES_MAX);
        assert_eq!((data.texts.len(), data.ops.text), (1, vec![0, 0, 0]));
        assert!(data.left_out[0].contains("remarks"), "{:?}", data.left_out);
        assert!(
            String::from_utf8(bytes)
                .unwrap()
                .contains(&data.left_out[0])
        );
    }

    #[test]
    fn the_page_asks_nothing_of_a_network() {
        let page = page("x");
        assert!(page.contains("default-src 'none'"));
        for address in ["http://", "https://", "src=\"", "@import", "fetch("] {
            assert!(!page.contains(address), "{address}");
        }
    }
}
