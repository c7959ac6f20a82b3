//! The property of the gate, against a plain list of all requests that were ever let in.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::clock;

const DRAIN: u64 = 30;
const REQUEST_MAX: u64 = 60;

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

/// A random sequence that a seed names.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One that was let in by any process.
#[derive(Debug)]
struct Sent {
    token: u64,
    /// Then it is severed; once it is, the service is at work on it until then at the latest.
    until: u64,
    /// The process that has let it in.
    process: u64,
    is_inside: bool,
    /// Its end was seen, or it was cut behind the drain limit.
    is_over: bool,
}

/// One that waits at the gate.
struct Waiting {
    token: u64,
    until: u64,
    has_cut: bool,
}

struct World {
    random: Random,
    start: Instant,
    now: u64,
    process: u64,
    gate: Gate,
    /// What the file has.
    file: Option<u64>,
    /// What is on its way to the file.
    raising: Option<u64>,
    inherited: Option<u64>,
    sent: Vec<Sent>,
    waiting: Vec<Waiting>,
    cuts: bool,
    newest: u64,
    let_in: [u64; 2],
}

impl World {
    fn new(seed: u64, cuts: bool) -> Self {
        Self {
            random: Random(seed),
            start: clock::now(),
            now: 0,
            process: 1,
            gate: Gate::default(),
            file: None,
            raising: None,
            inherited: None,
            sent: Vec::new(),
            waiting: Vec::new(),
            cuts,
            newest: 1,
            let_in: [0; 2],
        }
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=5 => self.come(),
            6..=8 => self.now += 1 + self.random.below(4),
            9 => self.now += self.random.below(40),
            10..=13 => self.end(),
            14..=15 => self.end_of_writing(),
            16 => self.newest += 1,
            17 if self.random.below(4) == 0 => self.crash(),
            18 => self.forget(),
            _ => {}
        }
        self.end_what_is_late_or_cut();
        for index in (0..self.waiting.len()).rev() {
            self.ask(index);
        }
    }

    fn come(&mut self) {
        let back = self.random.below(3).min(self.newest - 1);
        self.waiting.push(Waiting {
            token: self.newest - back,
            until: self.now + DRAIN,
            has_cut: false,
        });
    }

    /// What the passage does with a verdict.
    fn ask(&mut self, index: usize) {
        let (asked, now) = (self.waiting[index].token, self.at(self.now));
        match self.gate.arrive(token(asked), now) {
            Verdict::File(Ask::Read) => {
                let inherited = self.inherited.map(|end| self.at(end));
                self.gate.read(self.file.map(token), inherited);
            }
            Verdict::File(Ask::Raise) if self.raising.is_none() => self.raising = Some(asked),
            Verdict::File(Ask::Raise) => {}
            Verdict::Stale(mark) => {
                assert!(mark > token(asked));
                self.waiting.remove(index);
            }
            Verdict::In => {
                self.waiting.remove(index);
                self.check(asked);
                self.sent.push(Sent {
                    token: asked,
                    until: self.now + REQUEST_MAX,
                    process: self.process,
                    is_inside: true,
                    is_over: false,
                });
            }
            Verdict::Wait(_) if self.now < self.waiting[index].until => {}
            Verdict::Wait(_) if self.cuts && !self.waiting[index].has_cut => {
                self.waiting[index].has_cut = true;
                self.gate.cut_older();
                for one in self.sent.iter_mut().filter(|one| one.token < asked) {
                    // Severed before, by this process: all that there is to do is done.
                    one.is_over |= !one.is_inside && one.process == self.process;
                }
            }
            Verdict::Wait(_) => drop(self.waiting.remove(index)),
        }
    }

    /// The property itself.
    fn check(&mut self, asked: u64) {
        let now = self.now;
        for one in &self.sent {
            let is_over = one.is_over || (now >= one.until && !one.is_inside);
            assert!(
                one.token >= asked || is_over,
                "{asked} was let in at {now} while {one:?} is inside"
            );
            assert!(one.token <= asked, "{asked} was let in behind {one:?}");
        }
        assert!(self.file >= Some(asked), "{asked} is not in the file");
        self.let_in[usize::from(self.process > 1)] += 1;
    }

    fn leave(&mut self, index: usize, unseen: Option<u64>) {
        let unseen = unseen.map(|end| self.at(end));
        let one = &mut self.sent[index];
        one.is_inside = false;
        self.gate.leave(token(one.token), unseen);
    }

    /// One of those inside leaves, with or without its end.
    fn end(&mut self) {
        let inside: Vec<usize> = self.inside();
        if inside.is_empty() {
            return;
        }
        let index = inside[self.random.below(inside.len() as u64) as usize];
        // One that is cut is severed behind the drain limit, however it ends.
        let is_cut = self.gate.is_cut(token(self.sent[index].token));
        let is_seen = self.random.below(3) > 0 || is_cut;
        self.sent[index].is_over = is_seen;
        self.sever(index, is_seen);
    }

    fn end_what_is_late_or_cut(&mut self) {
        for index in self.inside() {
            let is_cut = self.gate.is_cut(token(self.sent[index].token));
            if is_cut || self.now >= self.sent[index].until {
                self.sent[index].is_over = is_cut;
                self.sever(index, is_cut);
            }
        }
    }

    /// Nothing more of it goes to the service. Unless its end was seen, that is at work from now on.
    fn sever(&mut self, index: usize, is_over: bool) {
        let until = self.now + REQUEST_MAX;
        self.sent[index].until = until;
        self.leave(index, (!is_over).then_some(until));
    }

    fn inside(&self) -> Vec<usize> {
        let inside = |(index, one): (usize, &Sent)| one.is_inside.then_some(index);
        self.sent.iter().enumerate().filter_map(inside).collect()
    }

    /// The mark is in the file, or whether it is is not known.
    fn end_of_writing(&mut self) {
        let Some(raised) = self.raising.take() else {
            return;
        };
        let (is_done, is_told) = (self.random.below(8) > 0, self.random.below(8) > 0);
        if is_done {
            self.file = self.file.max(Some(raised));
        }
        match is_done && is_told {
            true => self.gate.raised(token(raised)),
            false => self.gate.unread(),
        }
    }

    /// The process is killed, and another one begins without a word of it.
    fn crash(&mut self) {
        self.process += 1;
        if self.random.below(2) > 0 {
            self.file = self.file.max(self.raising);
        }
        self.raising = None;
        self.gate = Gate::default();
        self.waiting.clear();
        self.inherited = Some(self.now + REQUEST_MAX.max(DRAIN));
        for one in self.sent.iter_mut().filter(|one| one.is_inside) {
            one.is_inside = false;
            one.until = self.now + REQUEST_MAX;
        }
    }

    /// The lease gives way to others in memory.
    fn forget(&mut self) {
        let is_unused = self.waiting.is_empty() && self.raising.is_none();
        if is_unused && self.gate.is_quiet(self.at(self.now)) {
            self.gate = Gate::default();
        }
    }
}

#[test]
fn no_request_is_let_in_while_an_older_one_is_not_over() {
    let mut let_in = [0; 2];
    for seed in 1..=3_000_u64 {
        let mut world = World::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, seed % 3 == 0);
        for _ in 0..400 {
            world.step();
        }
        for (sum, count) in let_in.iter_mut().zip(world.let_in) {
            *sum += count;
        }
    }
    // It was about something: also behind a crash.
    assert!(let_in[0] > 10_000 && let_in[1] > 10_000, "{let_in:?}");
}

#[test]
fn a_mark_of_the_process_before_lets_none_in_before_its_requests_are_over() {
    let start = clock::now();
    let quiet = start + Duration::from_secs(REQUEST_MAX);
    for offered in [8, 9] {
        let mut gate = Gate::default();
        assert_eq!(gate.arrive(token(offered), start), Verdict::File(Ask::Read));
        gate.read(Some(token(8)), Some(quiet));
        if offered > 8 {
            assert_eq!(
                gate.arrive(token(offered), start),
                Verdict::File(Ask::Raise)
            );
            gate.raised(token(offered));
        }
        let early = gate.arrive(token(offered), start);
        assert_eq!(early, Verdict::Wait(Some(quiet)));
        // Not by a cut either.
        gate.cut_older();
        assert_eq!(gate.arrive(token(offered), start), early);
        assert!(!gate.is_quiet(start));
        assert_eq!(gate.arrive(token(offered), quiet), Verdict::In);
    }
}

#[test]
fn one_whose_end_was_not_seen_counts_for_newer_ones_until_its_time_is_over() {
    let start = clock::now();
    let until = start + Duration::from_secs(5);
    let mut gate = Gate::default();
    gate.read(None, None);
    gate.raised(token(8));
    assert_eq!(gate.arrive(token(8), start), Verdict::In);
    gate.leave(token(8), Some(until));
    assert!(!gate.is_quiet(start));
    // Its own holder goes on.
    assert_eq!(gate.arrive(token(8), start), Verdict::In);
    gate.leave(token(8), None);
    gate.raised(token(9));
    assert_eq!(gate.arrive(token(9), start), Verdict::Wait(Some(until)));
    assert_eq!(gate.arrive(token(9), until), Verdict::In);
}
