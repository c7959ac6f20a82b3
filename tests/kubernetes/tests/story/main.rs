//! Controllers of real processes on a real Kubernetes: paused past their leases, killed, and stopped,
//! with a fence and, beside them, with client-go's leader election and none.
#![allow(clippy::unwrap_used)]

#[path = "../../cases/objects.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod objects;
#[path = "../../cases/site.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod site;

mod actor;
mod go;
mod paused;
mod rights;
mod takeover;
