//! The client against a fake cluster in this process, whose nodes can be made to misbehave.
#![allow(clippy::unwrap_used)]
#![allow(
    clippy::result_large_err,
    reason = "the fake's refusals are whole replies"
)]

mod support;

mod asking;
mod blocking;
mod cancelling;
mod electing;
mod ending;
mod following;
mod heartbeats;
mod keeping_alive;
mod locking;
mod losing;
mod reconnecting;
mod releasing;
mod retrying;
mod sealing;
mod sealing_again;
mod simulated;
mod watching;
