//! The words of a story and how they are written.

use std::collections::BTreeMap;

use ringfence_core::{
    Acquire, Ask, ClusterTime, Command, Configure, Entry, Evict, FencingToken, HolderData,
    Identity, LeaseName, Millis, Open, OpenId, Outcome, Renew, Request, RequestNumber, Revoke,
    Secret, SessionId, Settings, StateMachine, WallTime,
};

mod past;
mod rights;
mod telling;

use telling::Names;

/// A state machine, the people in the story, and the clock that its teller sets.
pub(crate) struct Story {
    machine: StateMachine,
    index: u64,
    term: u64,
    time: u64,
    people: BTreeMap<String, Person>,
    names: Names,
}

struct Person {
    session: SessionId,
    secret: Secret,
    next: u64,
}

/// The arguments of a step: words, and `key=value` pairs.
struct Args<'a> {
    words: Vec<&'a str>,
    pairs: BTreeMap<&'a str, &'a str>,
}

type Step<T> = Result<T, String>;

impl<'a> Args<'a> {
    fn parse(line: &'a str) -> Self {
        let (mut words, mut pairs) = (Vec::new(), BTreeMap::new());
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) => drop(pairs.insert(key, value)),
                None => words.push(word),
            }
        }
        Self { words, pairs }
    }

    fn word(&self, at: usize) -> Step<&'a str> {
        self.words
            .get(at)
            .copied()
            .ok_or(format!("word {at} is missing"))
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn number(&self, key: &str) -> Step<Option<u64>> {
        let parse = |value: &&str| {
            value
                .parse()
                .map_err(|_| format!("{key}={value} is no number"))
        };
        self.pairs.get(key).map(parse).transpose()
    }

    fn millis(&self, key: &str) -> Step<Option<Millis>> {
        self.pairs.get(key).map(|value| millis(value)).transpose()
    }
}

fn millis(text: &str) -> Step<Millis> {
    let (digits, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (_, Some(digits)) => (digits, 1_000),
        _ => match (text.strip_suffix('m'), text.strip_suffix('h')) {
            (Some(digits), _) => (digits, 60_000),
            (_, Some(digits)) => (digits, 3_600_000),
            _ => return Err(format!("`{text}` is no time")),
        },
    };
    let count: u64 = digits.parse().map_err(|_| format!("`{text}` is no time"))?;
    Ok(Millis(count * factor))
}

fn lease(text: &str) -> Step<LeaseName> {
    LeaseName::parse(text).map_err(|wrong| wrong.to_string())
}

fn token(value: u64) -> Step<FencingToken> {
    FencingToken::new(value).ok_or(format!("{value} is no token"))
}

fn number(value: u64) -> Step<RequestNumber> {
    RequestNumber::new(value).ok_or(format!("{value} is no request number"))
}

/// 16 bytes made of a text.
fn sixteen(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes
        .iter_mut()
        .zip(text.bytes())
        .for_each(|(to, from)| *to = from);
    bytes
}

impl Story {
    pub(crate) fn new() -> Self {
        Self {
            machine: StateMachine::new(),
            index: 0,
            term: 0,
            time: 0,
            people: BTreeMap::new(),
            names: Names::default(),
        }
    }

    /// Carries out one step and tells what came of it.
    pub(crate) fn step(&mut self, line: &str) -> Step<String> {
        let args = Args::parse(line);
        match args.word(0)? {
            "clock" => {
                self.time = millis(args.word(1)?)?.0;
                Ok(String::new())
            }
            "in-term" => {
                self.term = args.word(1)?.parse().map_err(|_| "no term")?;
                Ok(String::new())
            }
            "get" => Ok(self.names.tell_lease(&self.machine, &lease(args.word(1)?)?)),
            "check" => {
                let token = token(args.word(2)?.parse().map_err(|_| "no token")?)?;
                let verdict = self.machine.check(&lease(args.word(1)?)?, token);
                Ok(format!("{verdict:?}\n"))
            }
            "rights" if rights::change(&self.machine, &args).is_err() => {
                let malformed = rights::change(&self.machine, &args);
                Ok(format!("malformed: {}\n", malformed.unwrap_err()))
            }
            "audit" => Ok(rights::audit(&self.machine)),
            "may" => rights::may(&self.machine, &args),
            "past" => Ok(past::tell(&self.machine)),
            "state" => Ok(self.names.tell_state(&self.machine)),
            _ => {
                let command = self.command(&args)?;
                let command = rights::called(command, &args)?;
                self.apply(command, &args)
            }
        }
    }

    fn apply(&mut self, command: Command, args: &Args<'_>) -> Step<String> {
        self.index += 1;
        let time = ClusterTime(self.time);
        let wall = WallTime(1_000_000 + self.time);
        let opening = matches!(command.bare(), Command::Open(_));
        let entry = Entry {
            index: self.index,
            term: self.term,
            time,
            wall,
            command,
        };
        let mut events = Vec::new();
        let outcome = self.machine.apply(&entry, &mut events);
        if let (true, Outcome::Opened(opened)) = (opening, &outcome) {
            let name = args.word(1)?.to_string();
            self.names.add(opened.session, &name);
            let secret = Secret::new(sixteen(&name));
            let next = if args.pairs.contains_key("acquire") {
                2
            } else {
                1
            };
            self.people.entry(name).or_insert(Person {
                session: opened.session,
                secret,
                next,
            });
        }
        let restored = StateMachine::restore(self.machine.records())
            .map_err(|bad| format!("the state cannot be restored: {bad}"))?;
        if !restored.records().eq(self.machine.records()) {
            return Err("the restored state differs".into());
        }
        if restored.next_deadline() != self.machine.next_deadline() {
            return Err("the restored state waits for another time".into());
        }
        self.machine = restored;
        Ok(self.names.tell(&outcome, &events))
    }

    fn command(&mut self, args: &Args<'_>) -> Step<Command> {
        Ok(match args.word(0)? {
            "term" => {
                self.term = args.word(1)?.parse().map_err(|_| "no term")?;
                Command::TermStart {
                    unix_seconds: args.number("unix")?,
                }
            }
            "form" | "restore" => Command::Form(past::form(args, args.word(0)? == "restore")?),
            "seed" => past::seed(args)?,
            "pod-ended" => past::pod_ended(args)?,
            "configure" => Command::Configure(Configure {
                based_on: args
                    .number("based-on")?
                    .unwrap_or(self.machine.settings_set_at()),
                settings: settings(args)?,
            }),
            "tick" => {
                self.time = millis(args.word(1)?)?.0;
                Command::Tick
            }
            "open" => Command::Open(open(args)?),
            "close" => {
                let (session, secret) = self.credentials(args.word(1)?, args)?;
                Command::Close { session, secret }
            }
            "renew" => {
                let sessions = args.words[1..].iter().map(|name| self.person(name));
                let sessions = sessions.collect::<Step<Vec<_>>>()?;
                Command::Renew(Renew {
                    sessions,
                    acknowledged: Vec::new(),
                })
            }
            "ack" => {
                let session = self.person(args.word(1)?)?;
                let token = token(args.number("token")?.ok_or("token= is missing")?)?;
                let (sessions, acknowledged) = (vec![session], vec![(session, token)]);
                Command::Renew(Renew {
                    sessions,
                    acknowledged,
                })
            }
            "revoke" => Command::Revoke(Revoke {
                name: lease(args.word(1)?)?,
                token: self.token_for(args)?,
                now: args.has("now"),
                reason: "drill".into(),
                operator: "olga".into(),
            }),
            "evict" => Command::Evict(Evict {
                session: self.person(args.word(1)?)?,
                reason: "drill".into(),
                operator: "olga".into(),
            }),
            "rights" => rights::change(&self.machine, args)?,
            "adopt" => {
                let (session, secret) = self.credentials(args.word(1)?, args)?;
                Command::Adopt { session, secret }
            }
            "draw-node-id" => Command::DrawNodeId,
            "level" => Command::RaiseLevel {
                level: args.word(1)?.parse().map_err(|_| "no level")?,
            },
            "acquire" | "cancel" | "release" | "transfer" => self.request(args)?,
            other => return Err(format!("`{other}` is no step")),
        })
    }

    fn request(&mut self, args: &Args<'_>) -> Step<Command> {
        let by = *args.pairs.get("by").ok_or("by= is missing")?;
        let ask = match args.word(0)? {
            "acquire" => Ask::Acquire(acquire(args.word(1)?, args)?),
            "cancel" => Ask::Cancel {
                number: number(args.word(1)?.parse().map_err(|_| "no number")?)?,
            },
            "release" => Ask::Release {
                name: lease(args.word(1)?)?,
                token: self.token_for(args)?,
                close: args.has("close"),
            },
            _ => Ask::Transfer {
                name: lease(args.word(1)?)?,
                token: self.token_for(args)?,
                to: args.pairs.get("to").map(|to| self.person(to)).transpose()?,
            },
        };
        let (session, secret) = self.credentials(by, args)?;
        let person = self.people.get_mut(by).ok_or("nobody of that name")?;
        let n = args.number("n")?.unwrap_or(person.next);
        person.next = person.next.max(n + 1);
        let lowest = number(args.number("low")?.unwrap_or(1))?;
        Ok(Command::Request(Request {
            session,
            secret,
            number: number(n)?,
            lowest,
            ask,
        }))
    }

    /// A client's session; or a number, whether there is such a session or not.
    fn person(&self, name: &str) -> Step<SessionId> {
        if let Ok(number) = name.parse() {
            return SessionId::new(number).ok_or("0 is no session".into());
        }
        let person = self
            .people
            .get(name)
            .ok_or(format!("nobody is called {name}"))?;
        Ok(person.session)
    }

    fn credentials(&self, name: &str, args: &Args<'_>) -> Step<(SessionId, Secret)> {
        let person = self
            .people
            .get(name)
            .ok_or(format!("nobody is called {name}"))?;
        let secret = match args.pairs.get("secret") {
            Some(other) => Secret::new(sixteen(other)),
            None => person.secret,
        };
        Ok((person.session, secret))
    }

    /// `token=`, or the floor of the lease.
    fn token_for(&self, args: &Args<'_>) -> Step<FencingToken> {
        if let Some(value) = args.number("token")? {
            return token(value);
        }
        let floor = self
            .machine
            .get(&lease(args.word(1)?)?)
            .and_then(|lease| lease.floor);
        floor.ok_or("the lease was never granted: say token=".into())
    }
}

fn open(args: &Args<'_>) -> Step<Open> {
    let name = args.word(1)?;
    let ask = args
        .pairs
        .get("acquire")
        .map(|lease| acquire(lease, args))
        .transpose()?;
    Ok(Open {
        id: OpenId::new(sixteen(args.pairs.get("id").unwrap_or(&name))),
        secret: Secret::new(sixteen(args.pairs.get("secret").unwrap_or(&name))),
        seen: args.millis("seen")?.map(|seen| ClusterTime(seen.0)),
        ttl: args.millis("ttl")?.unwrap_or(Millis(15_000)),
        identity: Identity::parse(name).map_err(|wrong| wrong.to_string())?,
        acquire: ask,
    })
}

fn acquire(name: &str, args: &Args<'_>) -> Step<Acquire> {
    Ok(Acquire {
        name: lease(name)?,
        wait: args.millis("wait")?,
        data: HolderData::new(args.pairs.get("data").unwrap_or(&"").as_bytes()).unwrap(),
        lock_delay: args.millis("lock-delay")?.unwrap_or(Millis(0)),
    })
}

fn settings(args: &Args<'_>) -> Step<Settings> {
    let standard = Settings::STANDARD;
    let leases = args
        .number("session-leases")?
        .unwrap_or(standard.session_leases_max.into());
    let waiters = args
        .number("lease-waiters")?
        .unwrap_or(standard.lease_waiters_max.into());
    Ok(Settings {
        ttl_min: args.millis("ttl-min")?.unwrap_or(standard.ttl_min),
        ttl_max: args.millis("ttl-max")?.unwrap_or(standard.ttl_max),
        idle_retention: args.millis("idle")?.unwrap_or(standard.idle_retention),
        session_leases_max: leases.try_into().map_err(|_| "too many")?,
        lease_waiters_max: waiters.try_into().map_err(|_| "too many")?,
        leases_max: args.number("leases")?.unwrap_or(standard.leases_max),
        sessions_max: args.number("sessions")?.unwrap_or(standard.sessions_max),
        ..standard
    })
}
