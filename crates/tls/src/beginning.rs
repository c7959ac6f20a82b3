//! What a connection has to send before it may be silent.

/// How every connection of HTTP/2 begins, and no method of HTTP/1 that is served.
const HTTP2_BEGINS: [u8; 2] = *b"PR";

/// The beginning of a connection, as far as it has come.
pub(crate) struct Beginning {
    missing: usize,
    /// Whether the end of a short head of HTTP/1 is enough.
    or_short_head: bool,
    first: [u8; 2],
    read: usize,
    /// The last bytes, the newest one last.
    last: [u8; 3],
}

impl Beginning {
    /// So many bytes, or, with `or_short_head`, a whole head of HTTP/1.
    pub(crate) fn new(bytes: usize, or_short_head: bool) -> Self {
        Self {
            missing: bytes.max(1),
            or_short_head,
            first: [0; 2],
            read: 0,
            last: [0; 3],
        }
    }

    /// Whether these bytes complete it.
    pub(crate) fn is_made_by(&mut self, bytes: &[u8]) -> bool {
        if self.missing <= bytes.len() {
            return true;
        }
        self.missing -= bytes.len();
        for &byte in bytes {
            if let Some(first) = self.first.get_mut(self.read) {
                *first = byte;
            }
            self.read += 1;
            self.last = [self.last[1], self.last[2], byte];
        }
        let ended = self.last == *b"\n\r\n" || self.last.ends_with(b"\n\n");
        // The preface of HTTP/2 has the end of such a head in it, and nothing limits how long the
        // rest may take but this.
        self.or_short_head && ended && self.first != HTTP2_BEGINS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(or_short_head: bool, parts: &[&[u8]]) -> bool {
        let mut beginning = Beginning::new(33, or_short_head);
        parts.iter().any(|part| beginning.is_made_by(part))
    }

    #[test]
    fn a_short_head_of_http_1_is_enough_where_it_is_spoken() {
        let head: &[u8] = b"GET /x HTTP/1.0\r\n\r\n";
        assert!(begins(true, &[head]));
        assert!(begins(true, &[b"G", b"ET /x HTTP/1.0\r", b"\n\r", b"\n"]));
        assert!(begins(true, &[b"GET /x HTTP/1.0\n\n"]));
        assert!(!begins(true, &[b"GET /x HTTP/1.0\r\n"]));
        assert!(!begins(false, &[head]));
        assert!(begins(false, &[&[b'x'; 33]]));
    }

    #[test]
    fn half_a_preface_of_http_2_is_not_however_it_is_cut() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        assert!(!begins(true, &[preface]));
        let bytes: Vec<&[u8]> = preface.chunks(1).collect();
        assert!(!begins(true, &bytes));
        assert!(!begins(true, &[&preface[..16], &preface[16..18]]));
    }
}
