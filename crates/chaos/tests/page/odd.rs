//! Odd runs and odd windows.

use ringfence_chaos::record::{Verdict, ViolationRecord};
use ringfence_chaos::report::Timeline;
use ringfence_check::history::{Fault, Guard, Record};
use serde_json::{Value, json};

use super::browser::{open, start};
use super::{fixture, nothing_went_wrong, overtaken, page};

#[test]
fn no_text_of_a_run_becomes_markup_and_nothing_is_asked_of_a_network() {
    let Some(mut browser) = start() else {
        return;
    };
    let nasty = "</script><script>document.title='broken'</script><img src=http://127.0.0.1:9/ onerror=\"document.title='broken'\">\u{2028}'\"`${1}";
    let mut records = fixture();
    for record in &mut records {
        match record {
            Record::Guard(Guard { store, value, .. }) => {
                nasty.clone_into(store);
                *value = Some(nasty.to_owned());
            }
            Record::Fault(Fault { kind, detail, .. }) => {
                kind.push_str(nasty);
                nasty.clone_into(detail);
            }
            _ => {}
        }
    }
    let mut timeline = Timeline::new(nasty);
    for record in &records {
        timeline.record(record);
    }
    let broken = ViolationRecord {
        invariant: nasty.to_owned(),
        what: nasty.to_owned(),
        at_ns: None,
        lease: Some(nasty.to_owned()),
    };
    timeline.judged(Verdict::Unknown, &[nasty.to_owned()], &[broken]);
    open(&mut browser, &page(timeline), "#refused=2");

    browser.ask("for (const tab of document.querySelectorAll('[role=tab]')) tab.click()");
    assert!(browser.text("document.title").starts_with("</script>"));
    assert_eq!(browser.ask("document.images.length"), 0);
    assert_eq!(
        browser.text("document.getElementById('reason').title"),
        nasty
    );
    let elsewhere = |address: &&String| !address.starts_with("file:") && *address != "about:blank";
    let asked_for: Vec<&String> = browser.asked_for.iter().filter(elsewhere).collect();
    assert!(
        asked_for.iter().all(|address| *address == "data:,"),
        "{asked_for:?}"
    );
    nothing_went_wrong(&mut browser);
}

#[test]
fn a_narrow_and_a_dark_window_show_all_of_it() {
    let Some(mut browser) = start() else {
        return;
    };
    browser.size(900, 700);
    browser.prefer("dark");
    open(&mut browser, &overtaken(), "");

    assert_eq!(browser.data("theme"), "dark");
    assert_eq!(browser.ask("document.documentElement.scrollWidth"), 900);
    // The lanes are painted in the colours of the night.
    let light = browser.ask(
        "document.getElementById('lanes').getContext('2d').getImageData(220, 560, 1, 1).data[0]",
    );
    assert!(light.as_u64().unwrap() < 80, "{light}");
    assert_eq!(
        browser.ask("document.getElementById('panel').clientWidth > 280"),
        true
    );
    nothing_went_wrong(&mut browser);
}

#[test]
fn a_run_of_nothing_is_a_page_too() {
    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &page(Timeline::new("nothing")), "");
    assert_eq!(browser.data("refused"), "0");
    for key in ["r", "n", "e", "a", "]", "s", "+", "0"] {
        browser.key(key, 0);
    }
    assert_eq!(
        browser.text("document.getElementById('verdict').textContent"),
        "? UNKNOWN"
    );
    nothing_went_wrong(&mut browser);
}

/// Adds to every token and mark, wherever it stands.
fn raise(value: &mut Value, by: u64) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_u64() {
                    Some(token) if name == "token" || name == "mark" => *field = json!(token + by),
                    _ => raise(field, by),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| raise(item, by)),
        _ => {}
    }
}

#[test]
fn tokens_of_a_lasting_cluster_have_short_names_and_are_found_by_both() {
    let Some(mut browser) = start() else {
        return;
    };
    let clock = 1_882_457_409_323_000;
    let mut timeline = Timeline::new("long tokens");
    for record in fixture() {
        let mut value = serde_json::to_value(&record).unwrap();
        raise(&mut value, clock);
        timeline.record(&serde_json::from_value(value).unwrap());
    }
    open(&mut browser, &page(timeline), "");

    let story = browser.text("document.getElementById('pane-story').textContent");
    for part in [
        "c1 wrote with an old token #2, but sqlite had already seen token #3 of c2.",
        "#2 is token 1882457409323007, #3 is token 1882457409323008",
    ] {
        assert!(story.contains(part), "{part} is not in {story}");
    }
    for name in ["#3", "1882457409323008"] {
        browser.key("/", 0);
        for letter in name.chars() {
            browser.key(&letter.to_string(), 0);
        }
        let found = browser.text("document.getElementById('found').innerText");
        browser.key("Enter", 0);
        assert!(
            found.starts_with("token 1882457409323008 (#3)"),
            "{name}: {found}"
        );
    }
    nothing_went_wrong(&mut browser);
}
