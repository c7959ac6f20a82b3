//! The project's own commands, and the rules of the house that no compiler checks.
//!
//! `cargo xtask verify` reads, `cargo xtask fix` writes; [`tidy`] is a library so that
//! `cargo test --workspace` runs it too. Nothing here is part of what Ringfence ships.

pub mod arm64;
pub mod bench;
mod cargo;
pub mod cli;
mod lean;
pub mod node;
pub mod older;
mod patches;
pub mod planted;
pub mod servers;
pub mod sim;
pub mod steps;
pub mod targets;
pub mod tidy;
pub mod upgrade;

use std::path::{Path, PathBuf};

/// The folder of the workspace's `Cargo.toml`.
#[must_use]
pub fn workspace_root() -> PathBuf {
    // What cargo says now goes before what it said at compile time: two clones that share a target
    // folder share this program too, and each wants its own files looked at.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    // This crate lives in <root>/crates/xtask; the folder rule of `tidy` holds it there.
    here.ancestors()
        .nth(2)
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
