//! What Ringfence does in Kubernetes, shown on a real one.
#![allow(clippy::unwrap_used)]

mod away;
mod beside;
mod crowd;
mod deployed;
mod deposed;
mod figures;
mod floors;
mod hands;
mod names;
mod objects;
mod obstructed;
mod policy;
mod replica;
mod shown;
mod site;
mod versions;
