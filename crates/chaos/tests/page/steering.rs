//! Ways through a page: addresses, keys, the wheel, clicks, the search.

use ringfence_testkit::browser::SHIFT;

use super::browser::{look_for, open, start};
use super::{nothing_went_wrong, overtaken, shown};

#[test]
fn an_address_leads_to_what_it_names() {
    let Some(mut browser) = start() else {
        return;
    };
    let page = overtaken();
    open(&mut browser, &page, "#refused=3");
    assert_eq!(browser.data("story"), "3");

    open(&mut browser, &page, "#token=9");
    let details = browser.text("document.getElementById('pane-details').textContent");
    assert!(
        details.contains("c3 holds mail/outbox with token 9"),
        "{details}"
    );

    open(&mut browser, &page, "#from=1&to=2&lanes=all&theme=dark");
    assert_eq!(shown(&mut browser), (1.0, 2.0));
    assert_eq!(
        (browser.data("lanes"), browser.data("theme")),
        ("9".into(), "dark".into())
    );

    // One that names nothing is as good as none.
    open(&mut browser, &page, "#refused=99&op=-1&token=x");
    assert_eq!(browser.data("story"), "3", "the last one there is");
    nothing_went_wrong(&mut browser);
}

#[test]
fn keys_wheel_and_clicks_do_what_the_help_says() {
    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &overtaken(), "");
    browser.key("r", 0);
    assert_eq!(browser.data("story"), "1");
    browser.key("n", 0);
    browser.key("n", 0);
    browser.key("n", 0);
    assert_eq!(browser.data("story"), "3", "it ends at the last one");
    browser.key("p", 0);
    assert_eq!(browser.data("story"), "2");

    let told = shown(&mut browser);
    browser.key("0", 0);
    browser.until(
        "document.getElementById('map').getAttribute('aria-valuetext') === '0.0 s to 14.0 s'",
    );
    browser.wheel((640.0, 400.0), -400.0);
    browser.until(
        "document.getElementById('map').getAttribute('aria-valuetext') !== '0.0 s to 14.0 s'",
    );
    let (from, to) = shown(&mut browser);
    assert!(to - from < 13.0, "{from} to {to}");
    browser.key("ArrowRight", SHIFT);
    browser.until(&format!(
        "!document.getElementById('map').getAttribute('aria-valuetext').startsWith('{from:.1}')"
    ));
    assert!(shown(&mut browser).0 > from);
    browser.key("s", 0);
    browser.until(&format!(
        "document.getElementById('map').getAttribute('aria-valuetext').startsWith('{:.1}')",
        told.0
    ));

    browser.key("a", 0);
    assert_eq!(browser.data("lanes"), "9");
    browser.key("]", 0);
    let details = browser.text("document.getElementById('pane-details').textContent");
    assert!(details.contains("outcome"), "{details}");
    nothing_went_wrong(&mut browser);
}

#[test]
fn a_click_on_a_mark_says_in_words_what_it_is() {
    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &overtaken(), "#refused=1");
    let place = look_for(&mut browser, "stale write refused");
    browser.click(place);

    let details = browser.text("document.getElementById('pane-details').innerText");
    for part in [
        "stale write refused",
        "c3 tried: it wrote to sqlite, guarded by bank/interest, with token 6.",
        "had already seen 7",
        "Tell its story",
    ] {
        assert!(details.contains(part), "{part} is not in {details}");
    }
    nothing_went_wrong(&mut browser);
}

#[test]
fn search_finds_leases_tokens_and_clients() {
    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &overtaken(), "");
    let mut found = |text: &str| {
        browser.key("/", 0);
        for letter in text.chars() {
            browser.key(&letter.to_string(), 0);
        }
        let all = browser.text("document.getElementById('found').innerText");
        browser.key("Enter", 0);
        let details = browser.text("document.getElementById('pane-details').textContent");
        (all, details, browser.data("lanes"))
    };
    let (all, details, _) = found("10");
    assert!(all.starts_with("token 10"), "{all}");
    assert!(
        details.contains("c1 holds bank/interest with token 10"),
        "{details}"
    );
    let (all, _, lanes) = found("outb");
    assert!(all.starts_with("mail/outbox"), "{all}");
    // Its own, that of its only holder; no fault hit that one.
    assert_eq!(lanes, "2");
    let (all, ..) = found("nobody");
    assert!(all.contains("Nothing of that name"), "{all}");
    nothing_went_wrong(&mut browser);
}
