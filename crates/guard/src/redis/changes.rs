//! What a guarded write changes.

use ::redis::ScriptInvocation;

use super::RedisError;

/// How many changes one write may make: the server serves no other client meanwhile.
pub const CHANGES_MAX: usize = 1_000;

/// How many arguments after the key one command may have. Lua hands over at most 8,000 at once.
pub const ARGUMENTS_MAX: usize = 4_000;

/// The changes of one guarded write, applied in their order.
///
/// They are applied alone, but not wholly or not at all: if one fails (`WRONGTYPE`, an `INCR` of
/// what is no number), the ones before it stay, and the mark with them. [`Changes::set`] and
/// [`Changes::delete`] do not fail.
#[derive(Clone, Debug, Default)]
#[must_use = "changes do nothing until a guard admits them"]
pub struct Changes {
    commands: Vec<Command>,
}

#[derive(Clone, Debug)]
struct Command {
    name: String,
    key: Vec<u8>,
    arguments: Vec<Vec<u8>>,
}

impl Changes {
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`, whatever it was before.
    pub fn set(self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.command("SET", key, [value])
    }

    /// Deletes `key`. The mark is another key, and stays.
    pub fn delete(self, key: impl AsRef<[u8]>) -> Self {
        self.command("DEL", key, [[0_u8; 0]; 0])
    }

    /// Any command of one key that comes right after the command's name, as in `HSET key …`. A write
    /// that has the key of the mark among its arguments is refused, also where it would be a value.
    pub fn command<A: AsRef<[u8]>>(
        mut self,
        name: &str,
        key: impl AsRef<[u8]>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.commands.push(Command {
            name: name.to_owned(),
            key: key.as_ref().to_vec(),
            arguments: arguments
                .into_iter()
                .map(|argument| argument.as_ref().to_vec())
                .collect(),
        });
        self
    }

    /// Whether all of it may be sent to a guard with this tag and mark.
    pub(super) fn check(&self, tag: &str, mark_key: &str) -> Result<(), RedisError> {
        let too_many = |what, offered, max| Err(RedisError::TooMany { what, offered, max });
        if self.commands.len() > CHANGES_MAX {
            return too_many("changes in one write", self.commands.len(), CHANGES_MAX);
        }
        for command in &self.commands {
            let arguments = command.arguments.len();
            if arguments > ARGUMENTS_MAX {
                return too_many("arguments of one command", arguments, ARGUMENTS_MAX);
            }
            if hash_tag(&command.key) != tag.as_bytes() {
                return Err(RedisError::OtherTag {
                    key: String::from_utf8_lossy(&command.key).into_owned(),
                    tag: tag.to_owned(),
                });
            }
            // DEL, RENAME and the like take further keys.
            let mut named = command.arguments.iter().chain([&command.key]);
            if named.any(|named| named == mark_key.as_bytes()) {
                let key = mark_key.to_owned();
                return Err(RedisError::MarkIsNoData { key });
            }
        }
        Ok(())
    }

    pub(super) fn add_to(&self, call: &mut ScriptInvocation<'_>) {
        for command in &self.commands {
            call.key(&command.key[..]);
            call.arg(&command.name).arg(command.arguments.len());
            for argument in &command.arguments {
                call.arg(&argument[..]);
            }
        }
    }
}

/// The part of a key that decides its slot: what stands between the first `{` and the first `}`
/// after it, unless that is empty; else the whole key.
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let inside = &key[open + 1..];
    match inside.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_key_is_what_the_server_takes_it_for() {
        for (key, tag) in [
            ("balance", "balance"),
            ("{a}:balance", "a"),
            ("x{a}y{b}", "a"),
            ("x{}y{b}", "x{}y{b}"),
            ("x{a", "x{a"),
            ("x{{a}}", "{a"),
            ("", ""),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }
}
