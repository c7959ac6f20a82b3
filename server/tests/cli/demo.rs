//! `demo`: the story with real processes and real signals, from beginning to end.

use crate::harness::run;

#[test]
fn the_demo_goes_as_told() {
    let said = run(&["demo"]);

    assert_eq!(said.code, Some(0), "{said:?}");
    for line in [
        "the store is corrupt",
        "STALE_TOKEN",
        "The balance is 170",
        "✗",
        "Verdict: ",
    ] {
        assert!(said.out.contains(line), "{line} is missing in {}", said.out);
    }
    let widest = said.out.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?} columns: {}", said.out);
}
