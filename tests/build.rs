//! Takes the Rust program out of the README, so that the example `readme` is what is printed there.

#[path = "documents/fenced.rs"]
mod fenced;

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const README: &str = "../README.md";
    println!("cargo::rerun-if-changed={README}");
    println!("cargo::rerun-if-changed=documents/fenced.rs");
    let blocks = fenced::blocks(&std::fs::read_to_string(README)?, &["rust"]);
    let [(_, program)] = blocks.as_slice() else {
        let count = blocks.len();
        return Err(format!("the README has {count} blocks of Rust; one is expected").into());
    };
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("readme.rs"), program)?;
    Ok(())
}
