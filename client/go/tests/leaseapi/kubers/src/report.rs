//! What an elector says of itself: a line for each change, and none for what was said before.

use std::error::Error;

/// What was said last.
#[derive(Default)]
pub(crate) struct Report {
    leads: Option<bool>,
    leader: Option<String>,
}

impl Report {
    /// Whether this elector believes that it leads.
    pub(crate) fn leads(&mut self, leads: bool) {
        let line = match (self.leads, leads) {
            (before, now) if before == Some(now) => return,
            (_, true) => "leading",
            (Some(true), false) => "lost",
            (_, false) => "following",
        };
        self.leads = Some(leads);
        println!("{line}");
    }

    /// What it said last of that.
    pub(crate) fn is_leading(&self) -> bool {
        self.leads == Some(true)
    }

    /// Whom it believes to lead; an empty name is none.
    pub(crate) fn leader(&mut self, name: &str) {
        if !name.is_empty() && self.leader.as_deref() != Some(name) {
            self.leader = Some(name.to_owned());
            println!("leader {name}");
        }
    }
}

/// It has given the lease back.
pub(crate) fn released() {
    println!("released");
}

/// An error, with what is behind it.
pub(crate) fn fault(fault: &(dyn Error + 'static)) {
    let mut line = fault.to_string();
    let mut cause = fault.source();
    while let Some(behind) = cause {
        line.push_str(": ");
        line.push_str(&behind.to_string());
        cause = behind.source();
    }
    eprintln!("{line}");
}
