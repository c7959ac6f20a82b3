//! `demo`: the story with real processes and real signals, from beginning to end.

use crate::harness::run;

#[test]
fn the_demo_goes_as_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = folder.path().join("accident.svg");
    let said = run(&["demo", "--svg", picture.to_str().expect("a path in UTF-8")]);

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

    let drawn = std::fs::read_to_string(picture).expect("the picture is written");
    for text in [
        "STALE_TOKEN",
        "SIGSTOP",
        "the balance is 130",
        "the balance is 170",
    ] {
        assert!(drawn.contains(text), "{text} is missing in {drawn}");
    }
}

#[test]
fn the_demo_goes_as_told_where_rights_bind() {
    let said = run(&["demo", "--access", "enforced"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in ["access grant anonymous acquire", "The balance is 170"] {
        assert!(said.out.contains(line), "{line} is missing in {}", said.out);
    }
}
