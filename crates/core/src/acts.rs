//! What operators do, in the words of the command line.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::access::change::{AccessChange, PrincipalLimits};
use crate::audit::{AUDIT_TEXT_BYTES_MAX, AuditRecord};
use crate::command::Command;
use crate::level::{LEVEL_ACCESS, LEVEL_OBJECTS, LEVEL_RESTORE};
use crate::machine::StateMachine;
use crate::outcome::Outcome;

impl StateMachine {
    /// Keeps what an operator did, if it has changed something.
    pub(crate) fn note(&mut self, command: &Command, outcome: &Outcome) {
        if !self.is_at(LEVEL_ACCESS) || matches!(outcome, Outcome::Rejected(_)) {
            return;
        }
        let fair = self.is_at(LEVEL_RESTORE);
        if fair && self.changed_nothing && !planted(Bug::RepeatedActsNoted) {
            return;
        }
        let Some((act, reason)) = act_of(command.bare(), self.level()) else {
            return;
        };
        let caller = self.caller.as_ref();
        let record = AuditRecord {
            index: self.index(),
            wall: self.wall(),
            principal: caller.map(|caller| caller.principal.clone()),
            node: caller.map_or(0, |caller| caller.node),
            act: cut(act),
            reason,
        };
        self.state.audit.add(record);
        match fair && !planted(Bug::ActsOfOthersDisplaced) {
            true => self.state.audit.drop_of_most(),
            false => self.state.audit.drop_oldest(),
        }
    }
}

/// What an operator's command does, and why it says so; `None` for commands of holders and of the
/// leader.
fn act_of(command: &Command, level: u32) -> Option<(String, String)> {
    match command {
        Command::Revoke(revoke) => {
            let now = if revoke.now { " --now" } else { "" };
            let act = format!("lease revoke {}#{}{now}", revoke.name, revoke.token);
            Some((act, said(&revoke.operator, &revoke.reason)))
        }
        Command::Evict(evict) => {
            let act = format!("session evict {}", evict.session);
            Some((act, said(&evict.operator, &evict.reason)))
        }
        Command::Configure(configure) => {
            // Written out: every release has to write the same, whatever it calls its fields.
            let to = &configure.settings;
            let mut act = format!(
                "cluster configure: ttl {} to {}, idle retention {}, leases of a session {}, waiters \
                 of a lease {}, leases {}, sessions {}",
                to.ttl_min,
                to.ttl_max,
                to.idle_retention,
                to.session_leases_max,
                to.lease_waiters_max,
                to.leases_max,
                to.sessions_max
            );
            if level >= LEVEL_OBJECTS {
                act.push_str(&format!(", Lease endpoint factor {}", to.lease_api_factor));
            }
            Some((act, String::new()))
        }
        Command::ChangeAccess(change) => {
            let acts: Vec<String> = change.changes.iter().map(act_of_change).collect();
            Some((format!("access: {}", acts.join("; ")), String::new()))
        }
        Command::Operate { change } => Some((format!("cluster: {change}"), String::new())),
        _ => None,
    }
}

fn said(operator: &str, reason: &str) -> String {
    match operator {
        "" => reason.into(),
        operator => format!("{operator}: {reason}"),
    }
}

fn act_of_change(change: &AccessChange) -> String {
    match change {
        AccessChange::AddRule(rule) => format!("grant {rule}"),
        AccessChange::RemoveRule(rule) => format!("revoke {rule}"),
        AccessChange::Ban(principal) => format!("ban {principal}"),
        AccessChange::Unban(principal) => format!("unban {principal}"),
        AccessChange::AddToken(token) => match token.expires {
            Some(expires) => format!("token create {} until {expires}", token.principal),
            None => format!("token create {}", token.principal),
        },
        AccessChange::RemoveTokens(principal) => format!("token revoke {principal}"),
        AccessChange::SetMode(mode) => format!("mode {mode}"),
        AccessChange::SetLimits(limits) => {
            let PrincipalLimits { sessions, leases } = limits;
            format!("limits --sessions {sessions} --leases {leases}")
        }
    }
}

/// At most [`AUDIT_TEXT_BYTES_MAX`] bytes of a text.
fn cut(mut text: String) -> String {
    if text.len() > AUDIT_TEXT_BYTES_MAX {
        let end = text.floor_char_boundary(AUDIT_TEXT_BYTES_MAX - '…'.len_utf8());
        text.truncate(end);
        text.push('…');
    }
    text
}
