//! From what was gathered to what the page is given: numbers for names, microseconds since the
//! begin for nanoseconds since boot, and nothing above its limit. Then it is written.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use super::call::{Call, Fate};
use super::data::{Data, ErrorRow, Figures, GuardRow, OpColumns};
use super::frame::{Frame, client_name};
use super::gather::{Gather, belief_word};
use super::hits;
use super::page;
use super::thin;
use super::timeline::{Broken, Timeline};
use super::{data, guards};

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// How long the page is, in bytes.
    pub bytes: usize,
    /// What of the run is not on it, in sentences; the page says the same.
    pub left_out: Vec<String>,
}

impl Timeline {
    /// Writes the page.
    ///
    /// # Errors
    /// What `to` says.
    pub fn write(self, to: &mut impl Write) -> io::Result<PageSize> {
        let mut data = settle(self);
        let bytes = page::write(&mut data, to)?;
        to.flush()?;
        let left_out = data.left_out;
        Ok(PageSize { bytes, left_out })
    }
}

fn settle(timeline: Timeline) -> Data {
    let mut said = Vec::new();
    let mut timeline = timeline;
    guards::settle(&mut timeline.gather.calls);
    timeline.gather.find_copies();
    timeline.gather.calls.sort_by_key(|call| call.begin);
    let figures = timeline
        .figures
        .unwrap_or_else(|| counted(&timeline.gather));

    let known = timeline.gather.leases.all().len();
    let shown = thin::leases(&timeline.gather.calls, known, &mut said);
    let frame = frame(&timeline, &shown);
    let mut data = Data {
        title: timeline.title.clone(),
        command: timeline.command.clone(),
        length: frame.at(u64::MAX).max(1),
        verdict: timeline.verdict.as_str(),
        reasons: timeline.reasons.iter().map(|it| thin::reason(it)).collect(),
        figures,
        facts: timeline.facts.clone(),
        clients: frame.clients.keys().map(|it| client_name(*it)).collect(),
        ..Data::default()
    };
    hits::settle(&mut timeline, &frame, &mut data, &mut said);
    bands(&timeline.gather, &frame, &mut data, &mut said);
    let numbers = operations(&mut timeline.gather, &frame, &mut data, &mut said);
    errors(&timeline, &frame, &numbers, &mut data, &mut said);
    data.left_out = said;
    data
}

fn counted(gather: &Gather) -> Figures {
    let stale = gather.calls.iter().filter(|call| call.stale);
    let admitted = stale.clone().filter(|call| call.fate == Fate::Done).count() as u64;
    let attempted = stale.count() as u64;
    Figures {
        operations: gather.operations,
        attempted,
        refused: attempted - admitted,
        admitted,
        control: None,
    }
}

fn frame(timeline: &Timeline, shown: &BTreeSet<usize>) -> Frame {
    let (first, last) = timeline.gather.span.unwrap_or((0, 1));
    let begin = timeline.began_ns.map_or(first, |began| began.min(first));
    let end = timeline.ended_ns.map_or(last, |ended| ended.max(last));
    let clients = &timeline.gather.clients;
    let names = timeline.gather.leases.all();
    let mut by_name: Vec<usize> = shown.iter().copied().collect();
    by_name.sort_by(|one, other| names[*one].cmp(&names[*other]));
    Frame {
        begin,
        end: end.max(begin + 1_000),
        clients: clients.iter().copied().zip(0..).collect(),
        leases: by_name.into_iter().zip(0..).collect(),
    }
}

fn bands(gather: &Gather, frame: &Frame, data: &mut Data, said: &mut Vec<String>) {
    let names = gather.leases.all();
    data.leases = vec![String::new(); frame.leases.len()];
    for (number, place) in &frame.leases {
        data.leases[*place].clone_from(&names[*number]);
    }

    let settled = gather.grants.settled();
    let on_page = settled
        .into_iter()
        .filter(|grant| frame.leases.contains_key(&grant.lease))
        .collect();
    data.grants = thin::evenly(on_page, thin::BANDS_MAX, "grants", said)
        .into_iter()
        .map(|grant| {
            let client = grant.client.map_or(-1, |client| frame.client(client));
            let (from, to) = (frame.at(grant.from), frame.until(grant.to));
            let lease = frame.leases[&grant.lease];
            (lease, grant.token, client, from, to, grant.cause)
        })
        .collect();

    let on_page = gather
        .beliefs
        .iter()
        .filter_map(|belief| {
            let lease = frame.leases.get(&gather.leases.find(&belief.lease)?)?;
            let (from, to) = (frame.at(belief.from), frame.until(Some(belief.until)));
            let client = frame.client(belief.client);
            Some((
                client,
                *lease,
                belief.token,
                from,
                to,
                belief_word(belief.why),
            ))
        })
        .collect();
    data.beliefs = thin::evenly(on_page, thin::BANDS_MAX, "beliefs", said);
}

/// Fills in the operations, and returns the place of each by its number in the history.
fn operations(
    gather: &mut Gather,
    frame: &Frame,
    data: &mut Data,
    said: &mut Vec<String>,
) -> HashMap<u64, i64> {
    let mut guards: HashMap<usize, i64> = HashMap::new();
    for (number, (lease, store)) in gather.guards.iter().enumerate() {
        if let Some(lease) = frame.leases.get(lease) {
            guards.insert(number, guards.len().try_into().unwrap_or(-1));
            let store = store.clone();
            data.guards.push(GuardRow {
                lease: *lease,
                store,
            });
        }
    }
    let on_page = std::mem::take(&mut gather.calls)
        .into_iter()
        .filter(|call| {
            call.lease
                .is_none_or(|lease| frame.leases.contains_key(&lease))
        })
        .collect();
    let kept = thin::calls(on_page, thin::OPERATIONS_MAX, said);

    let mut columns = OpColumns::default();
    let (mut kinds, mut texts) = (Numbers::default(), Numbers::default());
    texts.number("");
    let mut before = 0;
    for call in &kept {
        let begin = frame.at(call.begin);
        let lease = call.lease.and_then(|lease| frame.leases.get(&lease));
        columns.client.push(frame.client(call.client));
        columns.kind.push(kinds.number(call.kind));
        columns.start.push(begin - before);
        columns
            .took
            .push(call.end.map_or(-1, |end| frame.at(end) - begin));
        columns.outcome.push(outcome(call));
        columns
            .lease
            .push(lease.map_or(-1, |it| i64::try_from(*it).unwrap_or(-1)));
        columns.token.push(call.token);
        columns.mark.push(call.mark);
        let guard = call.guard.and_then(|guard| guards.get(&guard));
        columns.guard.push(guard.copied().unwrap_or(-1));
        let text = thin::text(&call.text);
        let full = texts.values.len() >= thin::TEXTS_MAX && !texts.numbers.contains_key(&text);
        columns
            .text
            .push(if full { 0 } else { texts.number(&text) });
        before = begin;
    }
    if texts.values.len() >= thin::TEXTS_MAX {
        said.push(format!(
            "Remarks on operations beyond the first {}.",
            thin::TEXTS_MAX
        ));
    }
    data.kinds = kinds.values;
    data.texts = texts.values;
    data.ops = columns;
    let numbers = kept.iter().map(|call| call.number).zip(0..);
    numbers
        .filter_map(|(number, place)| Some((number?, place)))
        .collect()
}

/// Texts with a number each.
#[derive(Default)]
struct Numbers {
    values: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Numbers {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.values.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.values.len() - 1);
        self.values.len() - 1
    }
}

fn outcome(call: &Call) -> u8 {
    let fate = match call.fate {
        Fate::Done => 0,
        Fate::Refused => 1,
        Fate::Unknown => 2,
    };
    fate + 4 * u8::from(call.stale) + 8 * u8::from(call.copy_took)
}

fn errors(
    timeline: &Timeline,
    frame: &Frame,
    numbers: &HashMap<u64, i64>,
    data: &mut Data,
    said: &mut Vec<String>,
) {
    let mut broken = timeline.broken.clone();
    broken.sort_by_key(|it| it.record.at_ns.unwrap_or(u64::MAX));
    let lease = |name: &String| {
        let place = frame.leases.get(&timeline.gather.leases.find(name)?)?;
        i64::try_from(*place).ok()
    };
    data.errors = thin::evenly(broken, thin::ERRORS_MAX, "broken rules", said)
        .into_iter()
        .map(|Broken { record, operations }| {
            let at = record.at_ns.map(|at| frame.at(at));
            let named = operations.iter().find_map(|it| numbers.get(it)).copied();
            let seen = || at.map(|at| witness(&data.ops, &record.invariant, at));
            ErrorRow {
                at,
                op: named.or_else(seen).unwrap_or(-1),
                lease: record.lease.as_ref().and_then(lease).unwrap_or(-1),
                text: thin::reason(&record.what),
                rule: record.invariant,
            }
        })
        .collect();
}

/// How far, in microseconds, the operation that shows a broken rule may be from its time.
const WITNESS_WITHIN: i64 = 2_000;

/// The stale write that was admitted at this time, if that is the rule that was broken.
fn witness(ops: &data::OpColumns, rule: &str, at: i64) -> i64 {
    if rule != "I1" {
        return -1;
    }
    let mut start = 0;
    let mut best = (WITNESS_WITHIN + 1, -1);
    for (number, outcome) in ops.outcome.iter().enumerate() {
        start += ops.start[number];
        let away = (start + ops.took[number].max(0) - at).abs();
        if outcome & 7 == 4 && away < best.0 {
            best = (away, i64::try_from(number).unwrap_or(-1));
        }
    }
    best.1
}
