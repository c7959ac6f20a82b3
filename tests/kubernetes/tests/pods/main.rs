//! Leaders for life: sessions bound to Pods of a real Kubernetes, whose status the tests set. Each
//! name begins with its row in `client/COMPARISON.md`.
#![allow(clippy::unwrap_used)]

mod absent;
mod ends;
mod figures;
mod lives;
mod modes;
mod place;
