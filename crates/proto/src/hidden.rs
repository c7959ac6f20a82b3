//! `Debug` for messages that carry a secret. Nothing ever shows one.

use std::fmt;

use crate::text::hex;
use crate::v1::{OpenRequest, SessionHandle};

const SECRET: fmt::Arguments<'static> = format_args!("(secret)");

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, secret: _ } = self;
        f.debug_struct("SessionHandle")
            .field("session", session)
            .field("secret", &SECRET)
            .finish()
    }
}

impl fmt::Debug for OpenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            secret: _,
            seen_cluster_time_ms,
            ttl_ms,
            identity,
        } = self;
        f.debug_struct("OpenRequest")
            .field("id", &format_args!("{}", hex(id)))
            .field("secret", &SECRET)
            .field("seen_cluster_time_ms", seen_cluster_time_ms)
            .field("ttl_ms", ttl_ms)
            .field("identity", identity)
            .finish()
    }
}
