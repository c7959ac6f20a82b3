//! The circles that were there before the rule. The list only shrinks: nothing may join one, and
//! what has left its circle leaves this list.

/// A circle, by its modules.
pub(super) struct Standing {
    pub(super) package: &'static str,
    pub(super) modules: &'static [&'static str],
}

/// The circles that still stand.
pub(super) const STANDING: &[Standing] = &[Standing {
    package: "ringfence-client",
    modules: &[
        "acquire",
        "builder",
        "calls",
        "chance",
        "client",
        "connection",
        "driver",
        "give_up",
        "heartbeat",
        "hub",
        "keepalive",
        "lease",
        "link",
        "liveness",
        "observer",
        "open",
        "race",
        "retry",
        "session",
        "settle",
        "sim",
        "term",
        "unary",
        "unsettled",
        "upkeep",
        "working",
    ],
}];
