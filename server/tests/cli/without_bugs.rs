//! The binary that people get has nothing of the bugs that are planted to test the tests.

#[test]
fn the_binary_knows_no_planted_bug() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_ringfence")).expect("the binary can be read");
    // Texts are searched much faster than bytes.
    let binary = String::from_utf8_lossy(&binary);
    assert!(
        binary.contains("RINGFENCE_DATA_DIR"),
        "nothing can be found in it"
    );
    for word in [
        "RINGFENCE_PLANTED",
        "fresh-ttl-in-every-term",
        "ack-before-sync",
    ] {
        assert!(!binary.contains(word), "{word} is in the binary");
    }
}
