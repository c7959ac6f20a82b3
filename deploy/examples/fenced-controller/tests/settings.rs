//! What a person reads who has set something wrong. (That there is a test beside the program also
//! makes `cargo test` build the program, which tests with a real API server start.)

use std::process::Command;

#[test]
fn a_setting_that_cannot_be_is_named_with_what_can_be() {
    for (name, value, allowed) in [
        ("LEASE_SECONDS", "soon", "a number of seconds"),
        ("LEASE_SECONDS", "-1", "a number of seconds"),
        ("STOP_AT", "never", "the number of a write"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_fenced-controller"))
            .env(name, value)
            .output()
            .expect("cargo has built it");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{name}={value} was taken");
        for words in [name, value, allowed] {
            assert!(said.contains(words), "no {words} in {said}");
        }
    }
}
