//! A long, repeatable scenario: appends, votes, truncations, purges, marks, rotations, recycling.

use ringfence_wal::EntryId;

use super::model::Subject;

/// Runs the scenario of `seed`, `steps` steps long.
pub(crate) fn run(subject: &mut Subject, seed: u64, steps: u64) {
    let mut random = Random(seed);
    let mut term = 1;
    for step in 0..steps {
        match random.below(10) {
            0..5 => {
                let count = 1 + random.below(3);
                let payloads = (0..count).map(|_| payload(&mut random)).collect();
                subject.append(term, payloads);
            }
            5 => subject.vote(format!("vote of step {step}").as_bytes()),
            6 => {
                if let Some(kept) = pick(subject, &mut random, 3) {
                    term += 1;
                    subject.truncate(Some(kept));
                    subject.append(term, vec![payload(&mut random)]);
                }
            }
            7 => {
                if let Some(upto) = pick(subject, &mut random, 12) {
                    subject.purge(upto);
                }
            }
            8 => subject.commit(subject.next_index().saturating_sub(random.below(4))),
            _ => {}
        }
        if random.below(3) > 0 {
            subject.flush();
        }
    }
    subject.flush();
}

/// Returns one of the last `back` live entries, but the very last.
fn pick(subject: &Subject, random: &mut Random, back: u64) -> Option<EntryId> {
    let live = subject.state.entries.len();
    let back = 2 + random.below(back) as usize;
    live.checked_sub(back)
        .map(|at| subject.state.entries[at].id)
}

fn payload(random: &mut Random) -> Vec<u8> {
    let len = match random.below(8) {
        0 => 5000,
        1 => 0,
        _ => random.below(900),
    };
    (0..len).map(|_| random.below(256) as u8).collect()
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}
