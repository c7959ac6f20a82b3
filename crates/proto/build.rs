//! Makes the code of the messages and services from the `.proto` files; without the feature
//! `generate` there is nothing to do, since that code is in the tree too.

use std::error::Error;

#[cfg(feature = "generate")]
#[path = "build/generate.rs"]
mod generate;
#[cfg(feature = "generate")]
#[path = "build/hidden.rs"]
mod hidden;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "generate")]
    generate::run()?;
    Ok(())
}
