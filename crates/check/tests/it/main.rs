//! Tests of the format and of both checkers.
#![allow(clippy::unwrap_used)]

mod files;
mod format;
mod good;
mod limits;
mod mutations;
mod scale;
mod world;
