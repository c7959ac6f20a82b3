//! Tests against clusters of real processes: one binary, one file per subject.
#![allow(clippy::unwrap_used)]

mod backups;
mod bad_input;
mod behind;
mod elections;
mod failing_disks;
mod long_pauses;
mod lost_data;
mod peer_tls;
mod restarts;
mod saturation;
