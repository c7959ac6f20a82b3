//! The page of a run in a real browser: a stranger learns why a stale write was refused, whatever
//! the run was, and nothing but the file is asked for.
//!
//! `fixtures/overtaken.jsonl` is a history made by hand. In it c1 gets token 7 at 3.2 s and is
//! stopped at 4.0 s; the leader is killed; c1's session runs out at 7.2 s; c2 gets token 8 and writes;
//! c1 wakes at 10.2 s, writes with 7, and is refused. Before that c3 has written with a token that
//! it had given back.

#![allow(clippy::unwrap_used)]

mod browser;
mod many;
mod odd;
mod steering;
mod stories;

use std::path::Path;

use ringfence_chaos::record::Verdict;
use ringfence_chaos::report::{PAGE_BYTES_MAX, Timeline};
use ringfence_check::history::{Reader, Record};
use ringfence_check::{Recording, blackbox};
use ringfence_testkit::browser::Browser;

fn fixture() -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/overtaken.jsonl");
    let mut reader = Reader::open(&path).unwrap();
    let header = Record::Header(reader.header().clone());
    let records = reader.by_ref().map(Result::unwrap);
    let all = std::iter::once(header).chain(records).collect();
    assert_eq!(reader.cut_off(), None);
    all
}

fn timeline(records: &[Record]) -> Timeline {
    let mut timeline = Timeline::new("a holder is overtaken");
    for record in records {
        timeline.record(record);
    }
    timeline
}

fn page(timeline: Timeline) -> Vec<u8> {
    let mut page = Vec::new();
    let size = timeline.write(&mut page).unwrap();
    assert_eq!(size.bytes, page.len());
    assert!(size.bytes <= PAGE_BYTES_MAX, "{} bytes", size.bytes);
    page
}

/// The page of the fixture, judged valid.
fn overtaken() -> Vec<u8> {
    let mut timeline = timeline(&fixture());
    timeline.judged(Verdict::Valid, &["all is well".to_owned()], &[]);
    page(timeline)
}

fn shown(browser: &mut Browser) -> (f64, f64) {
    let text = browser.text("document.getElementById('map').getAttribute('aria-valuetext')");
    let mut times = text
        .split(" s")
        .filter_map(|part| part.rsplit(' ').next()?.parse().ok());
    (times.next().unwrap(), times.next().unwrap())
}

fn nothing_went_wrong(browser: &mut Browser) {
    assert_eq!(browser.data("faults"), "");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn the_fixture_is_a_history_of_a_correct_service() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/overtaken.jsonl");
    let recording = Recording::read(Reader::open(&path).unwrap()).unwrap();

    let report = blackbox::check(&recording, blackbox::Caps::default());
    assert_eq!(report.violations, [], "{report}");
}
