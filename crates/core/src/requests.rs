//! What a session remembers of its requests, so that a retry on any connection, node or term has
//! one effect and a late duplicate has none.

use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::answer::{Answer, Cached, CachedAnswer, Remembered};
use crate::command::Ask;
use crate::few::Few;
use crate::id::RequestNumber;
use crate::name::LeaseName;
use crate::outcome::Rejection;
use crate::settings::UNCONFIRMED_MAX;

/// The answers from the lowest unconfirmed number on.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    lowest: RequestNumber,
    /// In rising order of their numbers.
    answers: Few<Cached>,
}

/// What to do with a request.
pub(crate) enum Admission {
    /// It is new: carry it out and remember the answer.
    New,
    /// It was answered before.
    Repeat(Answer),
    /// It is refused, and that is not remembered.
    Refused(Rejection),
}

impl From<Result<Answer, Rejection>> for Admission {
    fn from(known: Result<Answer, Rejection>) -> Self {
        known.map_or_else(Self::Refused, Self::Repeat)
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            lowest: RequestNumber::FIRST,
            answers: Few::default(),
        }
    }

    /// Takes notice of what the session still waits for, and looks the request up.
    pub(crate) fn admit(
        &mut self,
        number: RequestNumber,
        lowest: RequestNumber,
        fingerprint: u64,
    ) -> Admission {
        if number < self.lowest {
            // Confirmed, and still remembered if it waits or holds: a retry finds its place.
            return match self.find(number) {
                Ok(at) => self.repeat(at, fingerprint).into(),
                Err(_) => Admission::Refused(self.stale(number)),
            };
        }
        // A request does not confirm its own answer, which its client cannot have seen yet.
        self.confirm_below(lowest.min(number));
        let too_many = number.get() - self.lowest.get() >= UNCONFIRMED_MAX;
        if too_many && !planted(Bug::AnswersUnbounded) {
            let lowest = self.lowest;
            return Admission::Refused(Rejection::TooManyUnconfirmed { number, lowest });
        }
        match self.find(number) {
            Err(_) => Admission::New,
            Ok(_) if planted(Bug::RetryDoneTwice) => Admission::New,
            Ok(at) => self.repeat(at, fingerprint).into(),
        }
    }

    fn repeat(&self, at: usize, fingerprint: u64) -> Result<Answer, Rejection> {
        let known = &self.answers.as_slice()[at];
        if known.answer.is_voided() || known.fingerprint == fingerprint {
            Ok(known.answer.get())
        } else {
            let number = known.number;
            Err(Rejection::RequestMismatch { number })
        }
    }

    fn stale(&self, number: RequestNumber) -> Rejection {
        let lowest = self.lowest;
        Rejection::StaleRequest { number, lowest }
    }

    /// The answer to a request that was made before, if it was this one and is remembered.
    pub(crate) fn recall(
        &self,
        number: RequestNumber,
        fingerprint: u64,
    ) -> Result<Answer, Rejection> {
        match self.find(number) {
            Ok(at) => self.repeat(at, fingerprint),
            Err(_) if number < self.lowest => Err(self.stale(number)),
            Err(_) => Err(Rejection::RequestMismatch { number }),
        }
    }

    /// Forgets the answers below `lowest`, but for those that still bear on something: whatever a
    /// client says of its numbers, a request that stands in a queue or whose grant is in force
    /// finds its place again. So a long wait does not hold up the numbers after it.
    pub(crate) fn confirm_below(&mut self, lowest: RequestNumber) {
        if lowest <= self.lowest {
            return;
        }
        let answers = self.answers.as_slice();
        let from = answers.partition_point(|known| known.number < self.lowest);
        let to = answers.partition_point(|known| known.number < lowest);
        self.answers
            .retain_in(from..to, |known| known.answer.in_force());
        self.lowest = lowest;
    }

    /// Remembers the answer of a new request.
    pub(crate) fn remember(&mut self, number: RequestNumber, fingerprint: u64, answer: Answer) {
        let cached = Cached {
            number,
            fingerprint,
            answer: answer.into(),
        };
        match self.known(number) {
            Some(known) => *known = cached,
            None => {
                let (Ok(at) | Err(at)) = self.find(number);
                self.answers.insert(at, cached);
            }
        }
    }

    /// Replaces the answer of a request, if it is still remembered, and forgets it if that was
    /// confirmed and nothing more can come of it.
    pub(crate) fn settle(&mut self, number: RequestNumber, answer: Answer) {
        let answer = CachedAnswer::from(answer);
        if let Ok(at) = self.find(number) {
            if number < self.lowest && !answer.in_force() {
                self.answers.remove(at);
            } else if let Some(known) = self.answers.get_mut(at) {
                known.answer = answer;
            }
        }
    }

    pub(crate) fn get(&self, number: RequestNumber) -> Option<Answer> {
        let at = self.find(number).ok()?;
        Some(self.answers.as_slice()[at].answer.get())
    }

    /// Takes this very name for the answer of a request that waits for it or holds it.
    pub(crate) fn share_name(&mut self, number: RequestNumber, name: &LeaseName) {
        if let Some(known) = self.known(number) {
            known.answer.share(name);
        }
    }

    fn known(&mut self, number: RequestNumber) -> Option<&mut Cached> {
        let at = self.find(number).ok()?;
        self.answers.get_mut(at)
    }

    /// Whether a cancel of this number can still void it.
    pub(crate) fn can_void(&self, number: RequestNumber) -> bool {
        number >= self.lowest && number.get() - self.lowest.get() < UNCONFIRMED_MAX
    }

    fn find(&self, number: RequestNumber) -> Result<usize, usize> {
        self.answers
            .as_slice()
            .binary_search_by_key(&number, |known| known.number)
    }

    pub(crate) fn lowest(&self) -> RequestNumber {
        self.lowest
    }

    pub(crate) fn records(&self) -> Vec<Remembered> {
        self.answers.as_slice().iter().map(Cached::record).collect()
    }

    /// The memory with these contents, unless they contradict each other.
    pub(crate) fn restore(lowest: RequestNumber, answers: Vec<Remembered>) -> Option<Self> {
        let answers: Few<Cached> = answers.into_iter().map(Cached::from).collect();
        let kept = answers.as_slice();
        let rising = kept.windows(2).all(|pair| pair[0].number < pair[1].number);
        let in_window = kept.iter().all(|known| {
            let confirmed = known.number < lowest;
            (confirmed && known.answer.in_force())
                || (!confirmed && known.number.get() - lowest.get() < UNCONFIRMED_MAX)
        });
        (rising && in_window).then_some(Self { lowest, answers })
    }
}

/// FNV-1a, 64 bits (Fowler, Noll and Vo). It only has to notice a client's mistake, a number used
/// twice; against malice there is the session's secret.
struct Fnv(u64);

impl Fnv {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;

    /// A whole word at once: eight times faster, and as good at noticing that it changed.
    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(Self::PRIME);
        self.0 ^= self.0 >> 32;
    }

    fn text(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(Self::PRIME);
        }
    }
}

/// A fingerprint of what is asked.
pub(crate) fn fingerprint(ask: &Ask) -> u64 {
    let mut hash = Fnv(Fnv::OFFSET);
    match ask {
        Ask::Acquire(acquire) => {
            hash.word(1);
            hash.text(acquire.name.as_str().as_bytes());
            hash.word(acquire.wait.map_or(u64::MAX, |wait| wait.0));
            hash.text(acquire.data.as_bytes());
            hash.word(acquire.lock_delay.0);
        }
        Ask::Cancel { number } => {
            hash.word(2);
            hash.word(number.get());
        }
        Ask::Release { name, token, close } => {
            hash.word(3);
            hash.text(name.as_str().as_bytes());
            hash.word(token.get());
            hash.word(u64::from(*close));
        }
        Ask::Transfer { name, token, to } => {
            hash.word(4);
            hash.text(name.as_str().as_bytes());
            hash.word(token.get());
            hash.word(to.map_or(0, |to| to.get()));
        }
    }
    hash.0
}
