//! A run with more operations than a page holds.

use ringfence_chaos::record::Verdict;
use ringfence_chaos::report::{OPERATIONS_MAX, PAGE_BYTES_MAX, Timeline};
use ringfence_check::history::{
    Acquire, Admission, Belief, BeliefEnd, Guard, GuardAct, Invoked, KeepAlive, Op, Outcome,
    Record, Returned,
};

use super::browser::{open, start};

const CLIENTS: u32 = 16;
const TURNS: u64 = 6_000;
const TURN_NS: u64 = 100_000_000;
/// A second, in turns.
const STALE_EVERY: u64 = 100;

/// Turn by turn another client holds the lease and writes; now and then the last one comes too late.
fn run(timeline: &mut Timeline) -> u64 {
    let mut operations = 0;
    for turn in 0..TURNS {
        let (client, token) = ((turn % u64::from(CLIENTS)) as u32, turn + 1);
        let begin = 1_000_000_000 + turn * TURN_NS;
        timeline.record(&Record::Invoked(Invoked {
            id: turn,
            t: begin,
            client,
            session: Some(u64::from(client)),
            request: None,
            op: Op::Acquire(Acquire {
                lease: "busy".to_owned(),
                wait_ms: None,
                lock_delay_ms: 0,
            }),
        }));
        timeline.record(&Record::Returned(Returned {
            id: turn,
            t: begin + 1_000_000,
            outcome: Outcome::Granted { token },
            index: None,
        }));
        timeline.record(&Record::Belief(Belief {
            client,
            session: u64::from(client),
            lease: "busy".to_owned(),
            token,
            from: begin + 1_000_000,
            until: begin + TURN_NS - 1_000_000,
            why: BeliefEnd::Released,
        }));
        for nth in 0..10 {
            let at = begin + 2_000_000 + nth * 8_000_000;
            timeline.record(&visit(client, token, at, None));
        }
        for nth in 0..15 {
            let sent = begin + nth * 6_000_000;
            timeline.record(&Record::KeepAlive(KeepAlive {
                client: (client + nth as u32) % CLIENTS,
                session: 1,
                sent,
                acked: sent + 900_000,
                ttl_ms: 1_000,
            }));
        }
        operations += 26;
        if turn % STALE_EVERY == STALE_EVERY - 1 {
            let late = (client + CLIENTS - 1) % CLIENTS;
            timeline.record(&visit(late, token - 1, begin + 50_000_000, Some(token)));
            operations += 1;
        }
    }
    operations
}

fn visit(client: u32, token: u64, begin: u64, mark: Option<u64>) -> Record {
    Record::Guard(Guard {
        store: "store".to_owned(),
        client,
        lease: "busy".to_owned(),
        token,
        act: GuardAct::Write,
        begin,
        end: begin + 500_000,
        commit: None,
        admission: mark.map_or(Admission::Admitted, |mark| Admission::Refused { mark }),
        value: Some(begin.to_string()),
        guarded: true,
    })
}

#[test]
fn a_hundred_thousand_operations_stay_usable_and_what_is_left_out_is_said() {
    let mut timeline = Timeline::new("a long run");
    let operations = run(&mut timeline);
    assert!(operations as usize > OPERATIONS_MAX, "{operations}");
    timeline.judged(Verdict::Valid, &[], &[]);
    let mut page = Vec::new();
    let size = timeline.write(&mut page).unwrap();
    assert!(size.bytes < PAGE_BYTES_MAX / 2, "{} bytes", size.bytes);
    assert_eq!(size.left_out.len(), 2, "{:?}", size.left_out);

    let Some(mut browser) = start() else {
        return;
    };
    open(&mut browser, &page, "#lanes=all");
    assert_eq!(browser.data("operations"), OPERATIONS_MAX.to_string());
    assert_eq!(browser.data("refused"), (TURNS / STALE_EVERY).to_string());
    let notice = browser.text("document.getElementById('notice').innerText");
    assert!(notice.contains("keep-alives, checks and reads"), "{notice}");

    // From the whole run down to milliseconds; the slowest picture is in between.
    let slowest = browser.ask(
        "(async () => {
           const key = (name) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
           const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
           let slowest = 0;
           key('0');
           for (let nth = 0; nth < 30; nth += 1) {
             await frame();
             slowest = Math.max(slowest, Number(document.documentElement.dataset.frame));
             key(nth % 3 ? '+' : 'ArrowRight');
           }
           return slowest;
         })()",
    );
    println!(
        "{} bytes, the slowest picture took {slowest} ms",
        size.bytes
    );
    // On a quiet machine it takes some 20 ms; this is for one that compiles at the same time.
    assert!(slowest.as_f64().unwrap() < 2_000.0, "{slowest} ms");
    assert_eq!(browser.data("faults"), "");
}
