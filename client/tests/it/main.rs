//! The client against a fake cluster in this process, whose nodes can be told to misbehave.
#![allow(clippy::unwrap_used)]

mod support;

mod cancelling;
mod following;
mod keeping_alive;
mod losing;
mod releasing;
mod retrying;
