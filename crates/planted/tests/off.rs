//! What every build but that of `cargo xtask planted` gets.
#![cfg(not(feature = "planted"))]

use ringfence_planted::{Bug, planted};

// It is a constant, so the compiler sees a branch that is never taken.
const _: () = assert!(!planted(Bug::FreshTtlInEveryTerm));

#[test]
fn no_bug_is_ever_on() {
    assert!(Bug::ALL.iter().all(|bug| !planted(*bug)));
}

#[test]
fn each_bug_has_a_name_of_its_own_and_a_sentence() {
    let mut names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Bug::ALL.len());
    for bug in Bug::ALL {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(bug.name().bytes().all(is_plain), "{bug:?}");
        assert!(
            bug.what().len() > 20 && bug.what().ends_with('.'),
            "{bug:?}"
        );
    }
}
