//! The head of a guarded object: the mark, in front of the body, in the object's own content.

use ring::rand::{SecureRandom as _, SystemRandom};
use ringfence_core::{FencingToken, LeaseName};

/// The most bytes of a head.
pub(super) const HEAD_MAX: usize = 1_024;

/// How many writes an object names: the newest, and the ones before it.
pub(super) const WRITES_KEPT: usize = 16;

const MAGIC: &str = "ringfence-guarded-object 1";
const END: &[u8] = b"\n\n";

/// Decimal digits of a mark and of the other numbers.
const DIGITS: usize = 19;

/// 16 random bytes as 32 hexadecimal digits: what a write finds itself again by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteId(String);

impl WriteId {
    const DIGITS: usize = 32;

    /// `None` if the system has no random numbers.
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0_u8; Self::DIGITS / 2];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let id = u128::from_be_bytes(bytes);
        Some(Self(format!("{id:032x}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let whole = text.len() == Self::DIGITS && text.bytes().all(lower);
        whole.then(|| Self(text.to_owned()))
    }
}

/// What precedes a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) lease: LeaseName,
    pub(super) mark: FencingToken,
    /// Counts the writes of the object, from 1.
    pub(super) revision: u64,
    /// The length of the body in bytes; `None`: the datum is deleted, and only the mark is left.
    pub(super) body: Option<u64>,
    /// The newest writes, the newest first; 1 to [`WRITES_KEPT`].
    pub(super) writes: Vec<WriteId>,
}

impl Head {
    /// The head of the write behind `before`.
    pub(super) fn next(
        before: Option<&Self>,
        lease: LeaseName,
        mark: FencingToken,
        body: Option<u64>,
        id: &WriteId,
    ) -> Self {
        let kept = before.map_or(&[][..], |before| &before.writes);
        let writes = std::iter::once(id).chain(kept);
        Self {
            lease,
            mark,
            revision: before.map_or(0, |before| before.revision) + 1,
            body,
            writes: writes.take(WRITES_KEPT).cloned().collect(),
        }
    }

    pub(super) fn encode(&self) -> String {
        let Self {
            lease,
            mark,
            revision,
            body,
            writes,
        } = self;
        let body = match body {
            Some(length) => format!("body {length:0DIGITS$}"),
            None => "deleted".to_owned(),
        };
        let writes: Vec<&str> = writes.iter().map(|id| id.0.as_str()).collect();
        format!(
            "{MAGIC}\nlease {lease}\nmark {:0DIGITS$}\nrevision {revision:0DIGITS$}\n{body}\n\
             writes {}\n\n",
            mark.get(),
            writes.join(" ")
        )
    }

    /// Reads the head at the beginning of these bytes, and says how long it is. `Ok(None)`: it is
    /// no guarded object.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        if !bytes.starts_with(MAGIC.as_bytes()) {
            return Ok(None);
        }
        let within = &bytes[..bytes.len().min(HEAD_MAX)];
        let end = within.windows(END.len()).position(|pair| pair == END);
        let end = end.ok_or("its head has no end")?;
        let text = str::from_utf8(&within[..end]).map_err(|_| "its head is not UTF-8")?;
        let head = Self::parse(text)?;
        Ok(Some((head, end + END.len())))
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut lines = text.split('\n');
        if lines.next() != Some(MAGIC) {
            return Err("its format is of another version");
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let lease = field("lease").and_then(|name| LeaseName::parse(name).ok());
        let mark = field("mark").and_then(number).and_then(FencingToken::new);
        let revision = field("revision").and_then(number);
        let body = match lines.next() {
            Some("deleted") => Some(None),
            line => line
                .and_then(|line| line.strip_prefix("body "))
                .and_then(number)
                .map(Some),
        };
        let writes = lines.next().and_then(|line| line.strip_prefix("writes "));
        let writes = writes.and_then(|ids| ids.split(' ').map(WriteId::parse).collect());
        let writes = writes.filter(|ids: &Vec<_>| ids.len() <= WRITES_KEPT);
        if lines.next().is_some() {
            return Err("its head has too many lines");
        }
        Ok(Self {
            lease: lease.ok_or("its head names no lease")?,
            mark: mark.ok_or("its head has no mark")?,
            revision: revision
                .filter(|revision| (1..u64::MAX).contains(revision))
                .ok_or("its head has no revision")?,
            body: body.ok_or("its head has no length of a body")?,
            writes: writes.ok_or("its head has no ids of writes")?,
        })
    }
}

fn number(digits: &str) -> Option<u64> {
    let whole = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| whole)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn head(writes: usize, body: Option<u64>) -> Head {
        Head {
            lease: LeaseName::parse(&"l".repeat(255)).unwrap(),
            mark: FencingToken::new(FencingToken::MAX).unwrap(),
            revision: u64::MAX >> 1,
            body,
            writes: (0..writes).map(|_| WriteId::random().unwrap()).collect(),
        }
    }

    #[test]
    fn the_longest_head_fits_and_is_read_as_it_was_written() {
        for (writes, body) in [(1, None), (WRITES_KEPT, Some(u64::MAX >> 1))] {
            let head = head(writes, body);
            let mut bytes = head.encode().into_bytes();
            let length = bytes.len();
            assert!(length <= HEAD_MAX, "{length}");
            bytes.extend_from_slice(b"body\n\nmore");
            assert_eq!(Head::decode(&bytes), Ok(Some((head, length))));
        }
    }

    #[test]
    fn each_cut_and_each_changed_byte_is_another_head_or_none() {
        let bytes = head(2, Some(7)).encode().into_bytes();
        let whole = Head::decode(&bytes).unwrap();
        for end in 0..bytes.len() {
            assert!(!matches!(Head::decode(&bytes[..end]), Ok(Some(_))), "{end}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_ne!(Head::decode(&changed).ok().flatten(), whole, "byte {at}");
        }
    }

    #[test]
    fn the_next_head_counts_on_and_keeps_the_newest_ids() {
        let full = head(WRITES_KEPT, None);
        let id = WriteId::random().unwrap();
        let full = Head {
            revision: 41,
            ..full
        };
        let next = Head::next(Some(&full), full.lease.clone(), full.mark, Some(3), &id);
        assert_eq!((next.revision, next.writes.len()), (42, WRITES_KEPT));
        assert_eq!(next.writes[0], id);
        assert_eq!(next.writes[1..], full.writes[..WRITES_KEPT - 1]);
    }

    #[test]
    fn other_objects_are_none_and_damaged_ones_say_what_is_wrong() {
        assert_eq!(Head::decode(b""), Ok(None));
        assert_eq!(Head::decode(b"{\"a\": 1}"), Ok(None));
        let text = head(1, None).encode();
        for (from, to, wrong) in [
            ("object 1", "object 12", "its format is of another version"),
            ("mark 9", "mark 09", "its head has no mark"),
            ("deleted", "body 3", "its head has no length of a body"),
            ("writes ", "writes  ", "its head has no ids of writes"),
            ("\n\n", "\nmore\n\n", "its head has too many lines"),
            ("\n\n", "\n", "its head has no end"),
        ] {
            let text = text.replacen(from, to, 1);
            assert_eq!(Head::decode(text.as_bytes()), Err(wrong), "{text}");
        }
    }
}
