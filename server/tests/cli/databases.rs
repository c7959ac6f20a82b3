//! Real databases for the commands that write to them, started as the guards' own tests start them.

#![allow(dead_code)]

#[path = "../../../crates/guard/tests/servers/machine.rs"]
mod machine;
#[path = "../../../crates/guard/tests/servers/mysql.rs"]
pub(crate) mod mysql;
#[path = "../../../crates/guard/tests/servers/postgres.rs"]
pub(crate) mod postgres;
#[path = "../../../crates/guard/tests/servers/process.rs"]
mod process;

pub(crate) use machine::Disk;
