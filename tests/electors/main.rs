//! Electors against real clusters: what users of other election libraries rely on, or suffered
//! from. Each name begins with its row in `client/COMPARISON.md`.
#![allow(clippy::unwrap_used)]

mod backends;
mod bootstrap;
mod callbacks;
mod crowds;
mod examples;
mod handing_over;
mod identities;
mod lifecycle;
mod pausing;
mod ranges;
mod raw_lock;
mod renaming;
mod streams;
mod support;
mod work;
