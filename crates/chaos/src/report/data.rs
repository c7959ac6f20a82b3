//! What the page is given: the run in rows and columns, as compact as JSON can be.
//!
//! Times are microseconds since the run began; -1 is "never" and "no client". The program in
//! `page/` reads exactly this: `data.js` is its other end.

use serde::Serialize;

/// Everything that the page shows.
#[derive(Debug, Default, Serialize)]
pub(super) struct Data {
    pub(super) title: String,
    /// Runs it again; empty if that is not known.
    pub(super) command: String,
    /// How long the run took.
    pub(super) length: i64,
    /// `valid`, `invalid` or `unknown`.
    pub(super) verdict: &'static str,
    pub(super) reasons: Vec<String>,
    pub(super) figures: Figures,
    /// Names and values, for the tab with the verdict.
    pub(super) facts: Vec<(String, String)>,
    pub(super) clients: Vec<String>,
    pub(super) nodes: Vec<String>,
    pub(super) leases: Vec<String>,
    pub(super) guards: Vec<GuardRow>,
    pub(super) grants: Vec<GrantRow>,
    pub(super) beliefs: Vec<BeliefRow>,
    pub(super) roles: Vec<RoleRow>,
    pub(super) faults: Vec<FaultRow>,
    pub(super) errors: Vec<ErrorRow>,
    /// The kinds of operations, which `ops` names by number.
    pub(super) kinds: Vec<String>,
    /// Remarks, which `ops` names by number.
    pub(super) texts: Vec<String>,
    pub(super) ops: OpColumns,
    /// What is not on the page, in sentences.
    pub(super) left_out: Vec<String>,
}

impl Data {
    /// Drops all remarks, which nothing else depends on, and says so.
    pub(super) fn drop_texts(&mut self) {
        self.texts = vec![String::new()];
        self.ops.text.fill(0);
        for fault in &mut self.faults {
            fault.text.clear();
            fault.effect.clear();
        }
        for error in self.errors.iter_mut().skip(ERRORS_IN_FULL) {
            error.text.clear();
        }
        let said = "All remarks on operations and faults, since with them it would be too long.";
        self.left_out.push(said.to_owned());
    }
}

/// Broken rules whose text stays when texts must go.
const ERRORS_IN_FULL: usize = 20;

/// The counts beside the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    pub(super) operations: u64,
    pub(super) attempted: u64,
    pub(super) refused: u64,
    pub(super) admitted: u64,
    /// Of a copy of the stores without a guard, if there was one.
    pub(super) control: Option<ControlFigures>,
}

/// What the copy without a guard took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ControlFigures {
    pub(super) attempted: u64,
    pub(super) admitted: u64,
}

/// A guarded store; with the lease it names a mark.
#[derive(Debug, Serialize)]
pub(super) struct GuardRow {
    pub(super) lease: usize,
    pub(super) store: String,
}

/// Lease, token, client, from, to, cause of the end.
pub(super) type GrantRow = (usize, u64, i64, i64, i64, &'static str);

/// Client, lease, token, from, to, why it ended.
pub(super) type BeliefRow = (i64, usize, u64, i64, i64, &'static str);

/// Node, from, to, role, term.
pub(super) type RoleRow = (usize, i64, i64, String, u64);

/// A fault and what it hit.
#[derive(Debug, Serialize)]
pub(super) struct FaultRow {
    pub(super) kind: String,
    /// One or two words: `paused`.
    pub(super) label: String,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) nodes: Vec<usize>,
    pub(super) clients: Vec<usize>,
    /// What was done, in a sentence.
    pub(super) text: String,
    /// How it was seen to have an effect.
    pub(super) effect: String,
}

/// A broken rule.
#[derive(Debug, Serialize)]
pub(super) struct ErrorRow {
    pub(super) rule: String,
    /// When it was seen; `null` if it has no time.
    pub(super) at: Option<i64>,
    pub(super) text: String,
    /// The operation that shows it, or -1.
    pub(super) op: i64,
    /// The lease that it concerns, or -1.
    pub(super) lease: i64,
}

/// Operations, sorted by their start: a column per field, each as long as the others.
#[derive(Debug, Default, Serialize)]
pub(super) struct OpColumns {
    pub(super) client: Vec<i64>,
    pub(super) kind: Vec<usize>,
    /// Since the start of the operation before.
    pub(super) start: Vec<i64>,
    /// How long until its answer; -1 if none came.
    pub(super) took: Vec<i64>,
    /// 0 done, 1 refused, 2 unknown; plus 4 if stale, plus 8 if a copy without a guard took it.
    pub(super) outcome: Vec<u8>,
    pub(super) lease: Vec<i64>,
    pub(super) token: Vec<u64>,
    /// What the guard had seen; 0 if that is not known.
    pub(super) mark: Vec<u64>,
    pub(super) guard: Vec<i64>,
    pub(super) text: Vec<usize>,
}
