//! The ringfence binary.
fn main() {}
