//! The values that all folders pass to each other, and their bytes.
//!
//! [`type_config`] fixes openraft's types, [`proposal`] is the payload of an entry, [`codec`] turns
//! both into the bytes of the log and of the wire, and [`entry_size`] bounds them. [`reply`] is what a
//! caller gets for a command, [`status`] and [`stop`] what a node says about itself. Nothing here does
//! I/O or waits.

pub(crate) mod codec;
pub(crate) mod entry_size;
pub(crate) mod incarnation;
pub(crate) mod proposal;
pub(crate) mod reply;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod type_config;
