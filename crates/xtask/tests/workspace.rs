//! Runs tidy on this workspace, so that `cargo test --workspace` holds the rules of the house.

#[test]
fn the_workspace_is_tidy() {
    let violations = xtask::tidy::check(&xtask::workspace_root()).expect("git and cargo answer");

    let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "\n{}\n", told.join("\n"));
}
