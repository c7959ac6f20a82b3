//! The binary that people get has nothing of the bugs that are planted to test the tests.

#[test]
fn the_binary_knows_no_planted_bug() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_ringfence")).expect("the binary can be read");
    let knows = |word: &str| {
        let mut places = binary.windows(word.len());
        places.any(|bytes| bytes == word.as_bytes())
    };
    // What is looked for could be found, if it were there.
    assert!(knows("RINGFENCE_DATA_DIR"));
    for word in [
        "RINGFENCE_PLANTED",
        "fresh-ttl-in-every-term",
        "ack-before-sync",
    ] {
        assert!(!knows(word), "{word} is in the binary");
    }
}
