//! The generated code in the tree, which users of the client build, is what the `.proto` files say.

use std::fs;
use std::path::Path;

use super::golden::recording;

#[test]
fn the_generated_code_in_the_tree_is_that_of_the_proto_files() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    for name in [
        "ringfence.v1",
        "ringfence.raft.v1",
        "ringfence.record.v1",
        "hidden",
    ] {
        let made = Path::new(env!("OUT_DIR")).join(format!("{name}.rs"));
        let made = fs::read_to_string(made).unwrap();
        let kept = kept.join(format!("{name}.in"));
        if recording() {
            fs::write(&kept, &made).unwrap();
        }
        let same = fs::read_to_string(&kept).unwrap() == made;
        assert!(
            same,
            "{}: the .proto files have changed since; \
             `RECORD=1 cargo test -p ringfence-proto generated` writes it",
            kept.display()
        );
    }
}
