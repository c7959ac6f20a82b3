//! The story of a stale write, as a stranger meets it.

use ringfence_chaos::record::{Verdict, ViolationRecord};
use ringfence_check::history::{
    Acquire, Admission, Guard, GuardAct, Invoked, Op, Outcome, Record, Returned,
};
use ringfence_check::{Rule, Violation};

use ringfence_testkit::browser::Browser;

use super::browser::{look_for, open, start};
use super::{fixture, nothing_went_wrong, overtaken, page, shown, timeline};

/// The texts of the story's steps, a line each.
fn steps(browser: &mut Browser) -> Vec<String> {
    let script = "[...document.querySelectorAll('.steps li button')].map((it) => it.textContent).join('\\n')";
    browser.text(script).lines().map(str::to_owned).collect()
}

#[test]
fn a_stranger_is_told_why_the_write_was_refused() {
    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &overtaken(), "");

    assert_eq!(
        browser.text("document.getElementById('verdict').textContent"),
        "✓ VALID"
    );
    // Faults, two leases, three clients, three nodes; of them the story needs six.
    assert_eq!(browser.data("total"), "9");
    assert_eq!(browser.data("lanes"), "6");
    assert_eq!(browser.data("refused"), "3");
    // Not the first in time, which is c3's, but the accident that guards are for.
    assert_eq!(browser.data("story"), "2");
    let punch = browser.text("document.querySelector('.punch').textContent");
    assert_eq!(
        punch,
        "c1 wrote with an old token 7, but sqlite had already seen token 8 of c2."
    );
    let told = steps(&mut browser);
    let wanted = [
        ("3.201 s", "c1 is granted bank/interest with token 7"),
        ("4.000 s", "stopped (SIGSTOP)"),
        ("4.600 s", "n2, which led, was killed"),
        ("7.211 s", "its session ran out"),
        ("7.211 s", "c2 is granted the lease with token 8"),
        ("7.216 s", "c2 shows token 8 to sqlite"),
        (
            "10.203 s",
            "c1 wakes. It knows of nothing that happened since, and writes with token 7",
        ),
        ("10.204 s", "token 7 is less than token 8. Refused"),
    ];
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    for (step, (time, text)) in told.iter().zip(wanted) {
        assert!(
            step.starts_with(time) && step.contains(text),
            "{step} lacks {time} {text}"
        );
    }
    let copy = browser.text("document.querySelector('#pane-story .quiet').textContent");
    assert!(copy.contains("without a guard"), "{copy}");
    // All of it is in sight.
    let (from, to) = shown(&mut browser);
    assert!(from <= 3.2 && to >= 10.3, "{from} to {to}");
    nothing_went_wrong(&mut browser);
}

#[test]
fn the_tokens_of_a_story_never_look_alike() {
    let Some(mut browser) = start() else {
        return;
    };
    // As many grants between the old one and the new one as bring the same colour round again,
    // and around that.
    for grants in 3..16 {
        let mut timeline = timeline(&[]);
        for token in 1..=grants {
            for record in turn(token) {
                timeline.record(&record);
            }
        }
        timeline.record(&too_late(1, grants));
        timeline.judged(Verdict::Valid, &[], &[]);
        open(&mut browser, &page(timeline), "");
        let chips = browser.text(
            "[...document.querySelectorAll('.punch .chip')].map((it) => \
             it.textContent + it.style.background).join('\\n')",
        );
        let chips: Vec<&str> = chips.lines().collect();
        assert_eq!(chips.len(), 2, "{chips:?}");
        let colour = |chip: &str| chip.split_once("rgb").unwrap().1.to_owned();
        assert_ne!(colour(chips[0]), colour(chips[1]), "{grants}: {chips:?}");
    }
    nothing_went_wrong(&mut browser);
}

/// A client is granted the lease for a tenth of a second, and writes.
fn turn(token: u64) -> [Record; 3] {
    let (begin, client) = (token * 100_000_000, token as u32 % 3);
    let ask = Acquire {
        lease: "db".to_owned(),
        wait_ms: None,
        lock_delay_ms: 0,
    };
    [
        Record::Invoked(Invoked {
            id: token,
            t: begin,
            client,
            session: Some(token),
            request: None,
            op: Op::Acquire(ask),
        }),
        Record::Returned(Returned {
            id: token,
            t: begin + 1_000_000,
            outcome: Outcome::Granted { token },
            index: None,
        }),
        Record::Guard(write(client, token, begin + 2_000_000, Admission::Admitted)),
    ]
}

/// A write with an old token, at the end of all turns.
fn too_late(token: u64, mark: u64) -> Record {
    let at = (mark + 1) * 100_000_000;
    Record::Guard(write(
        token as u32 % 3,
        token,
        at,
        Admission::Refused { mark },
    ))
}

fn write(client: u32, token: u64, begin: u64, admission: Admission) -> Guard {
    Guard {
        store: "store".to_owned(),
        client,
        lease: "db".to_owned(),
        token,
        act: GuardAct::Write,
        begin,
        end: begin + 500_000,
        commit: None,
        admission,
        value: None,
        guarded: true,
    }
}

#[test]
fn refused_writes_are_also_a_table() {
    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &overtaken(), "");
    let rows = browser.text(
        "document.getElementById('tab-refused').click(); \
         [...document.querySelectorAll('#pane-refused tbody tr')].map((row) => \
         [...row.cells].map((cell) => cell.textContent).join(' ')).join('\\n')",
    );
    assert_eq!(
        rows.lines().collect::<Vec<_>>(),
        [
            "4.301 s c3 bank/interest 6 7 refused",
            "10.204 s c1 bank/interest 7 8 refused",
            "10.291 s c1 bank/interest 7 8 refused",
        ]
    );

    browser.ask("document.querySelectorAll('#pane-refused tbody button')[0].click()");
    assert_eq!(browser.data("story"), "1");
    let told = steps(&mut browser).join("\n");
    assert!(told.contains("its holder gave it back"), "{told}");
    assert!(
        told.contains("c3 does not look whether it may, and writes with token 6"),
        "{told}"
    );
    nothing_went_wrong(&mut browser);
}

#[test]
fn a_stale_write_that_got_through_is_what_one_sees_first() {
    let Some(mut browser) = start() else {
        return;
    };
    let mut records = fixture();
    let mut at_ns = None;
    for record in &mut records {
        let Record::Guard(guard) = record else {
            continue;
        };
        // A store that does not count its commits: the times say what was before what.
        guard.commit = None;
        let late = (1, 7, Some("140"));
        if guard.guarded && (guard.client, guard.token, guard.value.as_deref()) == late {
            guard.admission = Admission::Admitted;
            at_ns = Some(guard.end);
        }
    }
    let mut timeline = timeline(&records);
    let broken = ViolationRecord {
        invariant: "I1".to_owned(),
        what: "a guard admitted 7 after 8".to_owned(),
        at_ns,
        lease: Some("bank/interest".to_owned()),
    };
    timeline.judged(
        Verdict::Invalid,
        &["a guard was wrong".to_owned()],
        &[broken],
    );
    open(&mut browser, &page(timeline), "");

    assert_eq!(
        browser.text("document.getElementById('verdict').textContent"),
        "✗ INVALID"
    );
    assert_eq!(
        browser.text("document.querySelector('#figures .bad dd').textContent"),
        "1"
    );
    let pane = "document.getElementById('pane-story').textContent";
    assert!(browser.text(pane).contains("A stale write got through"));
    browser.key("r", 0);
    assert_eq!(browser.data("story"), "1");
    browser.key("e", 0);
    assert!(
        browser
            .text(pane)
            .contains("although the store had already seen token 8")
    );
    assert_eq!(browser.data("error"), "1");
    nothing_went_wrong(&mut browser);
}

#[test]
fn a_belief_that_outlasts_its_grant_is_what_one_sees_first() {
    let Some(mut browser) = start() else {
        return;
    };
    let mut records = fixture();
    let mut seen_at = 0;
    for record in &mut records {
        if let Record::Belief(belief) = record
            && belief.token == 7
        {
            // c2 has token 8 since 7.2 s.
            belief.until = belief.from + 6_000_000_000;
            seen_at = belief.until;
        }
    }
    let mut timeline = timeline(&records);
    let mut found = ringfence_check::Report::default();
    found.violations.push(Violation {
        rule: Rule::I4,
        t: seen_at,
        lease: Some("bank/interest".to_owned()),
        operations: Vec::new(),
        what: "two believed at once".to_owned(),
    });
    timeline.checked(&found);
    open(&mut browser, &page(timeline), "");

    assert_eq!(browser.data("error"), "1");
    let reason = browser.text("document.getElementById('reason').textContent");
    assert_eq!(reason, "I4: two believed at once");
    // The lanes of the lease, of those who held it, and of their faults.
    assert_eq!(browser.data("lanes"), "5");
    let place = look_for(&mut browser, "c1 and token 7");
    browser.click(place);
    let details = browser.text("document.getElementById('pane-details').innerText");
    assert!(
        details.contains("1.99 s longer than it was true"),
        "{details}"
    );
    nothing_went_wrong(&mut browser);
}
