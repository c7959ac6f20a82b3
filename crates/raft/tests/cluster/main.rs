//! Nodes in one process, on loopback, each with a directory of its own.
#![allow(clippy::unwrap_used)]

mod alone;
mod away;
mod backups;
mod caught_up;
mod clocks;
mod data_v1;
mod disk;
mod forming;
mod harness;
mod history;
mod losses;
mod members;
mod peers;
mod recover;
mod restore;
mod restore_hazards;
mod rights;
mod room;
mod silence;
mod single;
mod snapshots;
mod stalls;
mod storage;
mod three;
mod turns;
mod twins;
mod versions;
