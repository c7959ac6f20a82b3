//! What a hostile client may be answered, by the model's rights: never a success outside of its rules,
//! never data of hidden names, never a list that leaves out what it may not show.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use ringfence_core::Verb;
use ringfence_proto::Refusal;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::{self, Reason};
use tonic::Status;

use super::bandit::Bandit;
use super::calls::Answer;
use super::known::{HIDDEN, Known, UNSEEN};

/// A request that was sent, and who sent it.
pub(super) struct Asked<'a> {
    pub(super) bandit: &'a Bandit,
    pub(super) known: &'a Known,
    /// `Leases/Acquire`.
    pub(super) rpc: &'a str,
    /// The messages that were sent.
    pub(super) sent: &'a [Bytes],
}

/// What is wrong with an answer.
type Judged = Result<(), String>;

impl Asked<'_> {
    /// The answer in a word, for figures.
    pub(super) fn word(answer: &Answer) -> String {
        match &answer.end {
            None if answer.messages.is_empty() => "left".to_owned(),
            None | Some(Ok(())) => "answered".to_owned(),
            Some(Err(status)) => match Refusal::from_status(status) {
                Some(refusal) => format!("{:?}", refusal.reason),
                None => format!("{:?}", status.code()),
            },
        }
    }

    /// Judges all that came.
    pub(super) fn judge(&self, answer: &Answer) -> Judged {
        for message in &answer.messages {
            self.shows_nothing(message)?;
            match self.rpc {
                "Connection/Stream" => self.frames(message)?,
                _ => self.answered(self.rpc, self.sent, message)?,
            }
        }
        match &answer.end {
            Some(Err(status)) => self.ended(status),
            _ => Ok(()),
        }
    }

    /// What is hidden stands in an answer only if the caller has said it.
    fn shows_nothing(&self, bytes: &[u8]) -> Judged {
        for word in [HIDDEN, UNSEEN] {
            let said = self.sent.iter().any(|sent| contains(sent, word));
            if contains(bytes, word) && !said {
                let text = String::from_utf8_lossy(bytes).into_owned();
                return Err(format!("an answer shows {word}: {text:?}"));
            }
        }
        // The identity of a holder is never said.
        match contains(bytes, UNSEEN) {
            true => Err("an answer shows who holds a hidden lease".to_owned()),
            false => Ok(()),
        }
    }

    fn ended(&self, status: &Status) -> Judged {
        self.shows_nothing(status.message().as_bytes())?;
        self.shows_nothing(status.details())?;
        for header in status.metadata().iter() {
            self.shows_nothing(format!("{header:?}").as_bytes())?;
        }
        match Refusal::from_status(status) {
            Some(refusal) => self.refused(self.rpc, self.sent, refusal.reason, &refusal.message),
            None => Ok(()),
        }
    }

    /// A refusal must not tell whether there is what is hidden.
    fn refused(&self, rpc: &str, sent: &[Bytes], reason: Reason, message: &str) -> Judged {
        if reason == Reason::Fault {
            return Err(format!("a node has a fault: {message}"));
        }
        let tells = matches!(
            reason,
            Reason::Held
                | Reason::Queued
                | Reason::LockDelay
                | Reason::Revoking
                | Reason::NotFound
                | Reason::NotWaiting
        );
        let of_lease = rpc.starts_with("Leases/");
        let hidden = sent.iter().any(|sent| {
            let name = name_of(rpc, sent);
            name.is_some_and(|name| !name.is_empty() && !self.bandit.may_read(&name))
        });
        match tells && of_lease && hidden {
            true => Err(format!("{reason:?} tells of a hidden name: {message}")),
            false => Ok(()),
        }
    }

    fn frames(&self, message: &Bytes) -> Judged {
        let reply = v1::ServerMessage::decode(message.clone())
            .map_err(|error| format!("no message of the server: {error}"))?;
        let asked = asked_frames(self.sent);
        for frame in reply.frames {
            let bodies = asked.get(&frame.id);
            let Some(body) = frame.body else { continue };
            let (answer, refusal) = match body {
                Reply::Greeting(_) | Reply::GoingAway(_) => match self.bandit.is_barred() {
                    true => return Err("a barred caller has a stream".to_owned()),
                    false => continue,
                },
                Reply::Refusal(refusal) => (Bytes::new(), Some(refusal)),
                other => (encoded(&other), None),
            };
            // Of several requests under one number it is unknown which is answered.
            let mut judged = Err(format!("frame {} was not asked", frame.id));
            for (rpc, sent) in bodies.into_iter().flatten() {
                let sent = std::slice::from_ref(sent);
                let one = match &refusal {
                    Some(refusal) => self.refused(rpc, sent, refusal.reason(), &refusal.message),
                    None => self.answered(rpc, sent, &answer),
                };
                judged = one;
                if judged.is_ok() {
                    break;
                }
            }
            // What is refused without a look at its body has no number.
            if refusal.is_none() || bodies.is_some() {
                judged?;
            }
        }
        Ok(())
    }

    /// A message that is no refusal.
    fn answered(&self, rpc: &str, sent: &[Bytes], answer: &Bytes) -> Judged {
        let bandit = self.bandit;
        if bandit.is_barred() {
            return Err(format!("{} was answered: {}", bandit.name, shown(answer)));
        }
        let sent_one = || sent.first().cloned().unwrap_or_default();
        let undue = |why: &str| Err(format!("{why}: {}", shown(answer)));
        let name = name_of(rpc, &sent_one()).unwrap_or_default();
        match rpc {
            "Access/GetAccess" | "Access/ChangeAccess" | "Access/ListActs" => {
                match bandit.may_to_cluster(Verb::Admin) {
                    true => Ok(()),
                    false => undue("no right to administer"),
                }
            }
            "Access/TestAccess" => {
                let principal = parse::<v1::TestAccessRequest>(&sent_one())?.principal;
                match principal.is_empty() || self.is_me(&principal) {
                    true => Ok(()),
                    false => undue("the rights of another"),
                }
            }
            "Access/WhoAmI" => {
                let principal = parse::<v1::WhoAmIResponse>(answer)?.principal;
                match self.is_me(&principal) {
                    true => Ok(()),
                    false => undue("taken for another"),
                }
            }
            "Cluster/Status" | "Cluster/ListMembers" => Ok(()),
            "Cluster/Configure" => match bandit.may_to_cluster(Verb::Configure) {
                true => Ok(()),
                false => undue("no right to configure"),
            },
            "Cluster/Backup" => match bandit.may_to_cluster(Verb::Backup) {
                true => Ok(()),
                false => undue("no right to back up"),
            },
            _ if rpc.starts_with("Cluster/") => match bandit.may_to_cluster(Verb::Operate) {
                true => Ok(()),
                false => undue("no right to operate"),
            },
            "Leases/Acquire" => self.acquired(&parse(&sent_one())?, &parse(answer)?),
            "Leases/Cancel" => {
                let result = parse::<v1::CancelResponse>(answer)?;
                match result.name.is_empty() || bandit.may(Verb::Acquire, &result.name) {
                    true => self.own(parse::<v1::CancelRequest>(&sent_one())?.session),
                    false => undue("a cancel shows a hidden name"),
                }
            }
            "Leases/Release" => self.own(parse::<v1::ReleaseRequest>(&sent_one())?.session),
            "Leases/Transfer" => match bandit.may(Verb::Acquire, &name) {
                true => self.own(parse::<v1::TransferRequest>(&sent_one())?.session),
                false => undue("no right to acquire"),
            },
            "Leases/Revoke" => match bandit.may(Verb::Revoke, &name) {
                true => Ok(()),
                false => undue("no right to revoke"),
            },
            "Leases/Get" | "Leases/Check" => match bandit.may_read(&name) {
                true => Ok(()),
                false => undue("no right to read"),
            },
            "Leases/List" => {
                let leases = parse::<v1::ListResponse>(answer)?.leases;
                self.listed(
                    &prefix_of(rpc, &sent_one()),
                    leases.iter().map(|l| &*l.name),
                )
            }
            "Leases/Watch" => self.watched(&prefix_of(rpc, &sent_one()), &parse(answer)?),
            "Leases/WatchFloors" => {
                let floors = parse::<v1::WatchFloorsResponse>(answer)?.floors;
                self.listed(
                    &prefix_of(rpc, &sent_one()),
                    floors.iter().map(|f| &*f.name),
                )
            }
            "Leases/History" => {
                let records = parse::<v1::HistoryResponse>(answer)?.records;
                let grants = records.iter().filter_map(|record| record.grant.as_ref());
                let mut names = grants.map(|grant| &*grant.name);
                match names.all(|name| bandit.may_read(name))
                    && (name.is_empty() || bandit.may_read(&name))
                {
                    true => Ok(()),
                    false => undue("no right to read"),
                }
            }
            "Sessions/Open" => self.opened(&parse(&sent_one())?, &parse(answer)?),
            "Sessions/KeepAlive" => self.kept(sent, &parse(answer)?),
            // One that the honest keep alive has not ended, and is not shown to end.
            "Sessions/Close" => {
                let closed = parse::<v1::CloseRequest>(&sent_one())?.session;
                let closed = closed.unwrap_or_default().session;
                match self.known.is_honest(closed) {
                    true => undue("another's session was closed"),
                    false => Ok(()),
                }
            }
            "Sessions/Evict" => undue("no right to revoke anything"),
            "Sessions/Get" => {
                let session = parse::<v1::GetSessionRequest>(&sent_one())?.session;
                let shown = parse::<v1::GetSessionResponse>(answer)?.session;
                // Its own, too, if the answer that opened it was lost: no other client opens one under
                // its name.
                let unheard = self.known.owner(session).is_none()
                    && !self.known.is_honest(session)
                    && shown.is_some_and(|shown| shown.identity == bandit.name);
                match unheard || self.known.owner(session) == Some(bandit.name) {
                    true => Ok(()),
                    false => undue("the session of another"),
                }
            }
            "Sessions/List" => undue("the sessions of others"),
            _ => undue("an RPC that no rule is known for"),
        }
    }

    fn is_me(&self, principal: &str) -> bool {
        let own = self.bandit.principal.as_ref();
        own.map_or("anonymous", |own| own.as_str()) == principal
    }

    /// Success in the name of a session is for its owner.
    fn own(&self, session: Option<v1::SessionHandle>) -> Judged {
        let session = session.unwrap_or_default().session;
        match self.known.owner(session) {
            Some(owner) if owner == self.bandit.name => Ok(()),
            owner => Err(format!("done for session {session} of {owner:?}")),
        }
    }

    fn acquired(&self, asked: &v1::AcquireRequest, answer: &v1::AcquireResponse) -> Judged {
        if let Some(opened) = &answer.opened {
            let open = asked.open.clone().unwrap_or_default();
            self.opened(&open, opened)?;
        } else {
            self.own(asked.session.clone())?;
        }
        let grant = answer.grant.clone().unwrap_or_default();
        self.known.token(grant.token);
        // A repeat is answered with its grant; rights do not change during a hunt.
        match self.bandit.may(Verb::Acquire, &grant.name) && grant.name == asked.name {
            true => Ok(()),
            false => Err(format!("was granted {grant:?} for {}", asked.name)),
        }
    }

    fn opened(&self, asked: &v1::OpenRequest, answer: &v1::OpenResponse) -> Judged {
        if self.known.is_honest(answer.session) {
            return Err(format!("opened session {} of another", answer.session));
        }
        if asked.pod.is_some() {
            return Err("opened a session for a Pod".to_owned());
        }
        if !self.bandit.may_open() {
            return Err("opened a session without a right to any lease".to_owned());
        }
        let (by, secret) = (self.bandit.name, asked.secret.clone());
        self.known.opened(by, answer.session, secret);
        Ok(())
    }

    fn listed<'n>(&self, prefix: &str, names: impl Iterator<Item = &'n str>) -> Judged {
        if !self.bandit.may_read_all(prefix) {
            return Err(format!("{prefix:?} was listed, in whole or in part"));
        }
        for name in names {
            if !name.starts_with(prefix) || !self.bandit.may_read(name) {
                return Err(format!("{name:?} stands in the list of {prefix:?}"));
            }
        }
        Ok(())
    }

    fn watched(&self, prefix: &str, answer: &v1::WatchResponse) -> Judged {
        use v1::watch_event::Kind;
        let names = answer.events.iter().map(|event| match &event.kind {
            Some(Kind::Granted(grant)) => &*grant.name,
            Some(Kind::Ended(ended)) => &ended.name,
            Some(Kind::Present(lease)) => &lease.name,
            None => "",
        });
        self.listed(prefix, names)
    }

    /// No session of another is among those that a keep-alive has renewed, and none of its losses is
    /// shown.
    fn kept(&self, sent: &[Bytes], answer: &v1::KeepAliveResponse) -> Judged {
        if let Some(refusal) = &answer.refusal {
            return self.refused(
                "Sessions/KeepAlive",
                sent,
                refusal.reason(),
                &refusal.message,
            );
        }
        for lost in &answer.lost {
            if self.known.owner(lost.session) != Some(self.bandit.name) {
                return Err(format!("losses of session {} are shown", lost.session));
            }
        }
        let requests = sent
            .iter()
            .filter_map(|sent| parse::<v1::KeepAliveRequest>(sent).ok());
        let mut answered = requests
            .filter(|request| request.id == answer.id)
            .peekable();
        if answered.peek().is_none() {
            return Err(format!("keep-alive {} was not sent", answer.id));
        }
        let renewed = |request: &v1::KeepAliveRequest| {
            let sessions = request.sessions.iter().map(|handle| handle.session);
            let mut foreign = sessions.filter(|session| self.known.is_honest(*session));
            foreign.find(|session| {
                !answer.ended.iter().any(|ended| ended.session == *session)
                    && !answer.untold.contains(session)
            })
        };
        // Several may have the same number.
        let judged: Vec<Option<u64>> = answered.map(|request| renewed(&request)).collect();
        match judged.iter().all(Option::is_some) {
            true => Err(format!("session {:?} of another was renewed", judged[0])),
            false => Ok(()),
        }
    }
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn parse<M: Message + Default>(bytes: &[u8]) -> Result<M, String> {
    M::decode(bytes).map_err(|error| format!("what cannot be read was answered: {error}"))
}

/// The lease that a request names.
fn name_of(rpc: &str, sent: &[u8]) -> Option<String> {
    Some(match rpc {
        "Leases/Acquire" => v1::AcquireRequest::decode(sent).ok()?.name,
        "Leases/Release" => v1::ReleaseRequest::decode(sent).ok()?.name,
        "Leases/Transfer" => v1::TransferRequest::decode(sent).ok()?.name,
        "Leases/Revoke" => v1::RevokeRequest::decode(sent).ok()?.name,
        "Leases/Get" => v1::GetRequest::decode(sent).ok()?.name,
        "Leases/Check" => v1::CheckRequest::decode(sent).ok()?.name,
        "Leases/History" => v1::HistoryRequest::decode(sent).ok()?.name,
        _ => return None,
    })
}

fn prefix_of(rpc: &str, sent: &[u8]) -> String {
    match rpc {
        "Leases/List" => v1::ListRequest::decode(sent).map(|asked| asked.prefix),
        "Leases/Watch" => v1::WatchRequest::decode(sent).map(|asked| asked.prefix),
        _ => v1::WatchFloorsRequest::decode(sent).map(|asked| asked.prefix),
    }
    .unwrap_or_default()
}

/// The requests of a stream by the numbers of their frames, each as the RPC that it is.
fn asked_frames(sent: &[Bytes]) -> HashMap<u64, Vec<(&'static str, Bytes)>> {
    let mut frames: HashMap<u64, Vec<_>> = HashMap::new();
    let messages = sent
        .iter()
        .filter_map(|sent| v1::ClientMessage::decode(sent.clone()).ok());
    for frame in messages.flat_map(|message| message.frames) {
        let Some(body) = frame.body else { continue };
        let (rpc, bytes) = match body {
            Ask::Open(asked) => ("Sessions/Open", asked.encode_to_vec()),
            Ask::KeepAlive(asked) => ("Sessions/KeepAlive", asked.encode_to_vec()),
            Ask::Close(asked) => ("Sessions/Close", asked.encode_to_vec()),
            Ask::Acquire(asked) => ("Leases/Acquire", asked.encode_to_vec()),
            Ask::Cancel(asked) => ("Leases/Cancel", asked.encode_to_vec()),
            Ask::Release(asked) => ("Leases/Release", asked.encode_to_vec()),
            Ask::Transfer(asked) => ("Leases/Transfer", asked.encode_to_vec()),
            Ask::Get(asked) => ("Leases/Get", asked.encode_to_vec()),
            Ask::Check(asked) => ("Leases/Check", asked.encode_to_vec()),
        };
        frames
            .entry(frame.id)
            .or_default()
            .push((rpc, bytes.into()));
    }
    frames
}

fn encoded(reply: &Reply) -> Bytes {
    let bytes = match reply {
        Reply::Open(answer) => answer.encode_to_vec(),
        Reply::KeepAlive(answer) => answer.encode_to_vec(),
        Reply::Close(answer) => answer.encode_to_vec(),
        Reply::Acquire(answer) => answer.encode_to_vec(),
        Reply::Cancel(answer) => answer.encode_to_vec(),
        Reply::Release(answer) => answer.encode_to_vec(),
        Reply::Transfer(answer) => answer.encode_to_vec(),
        Reply::Get(answer) => answer.encode_to_vec(),
        Reply::Check(answer) => answer.encode_to_vec(),
        Reply::Greeting(_) | Reply::GoingAway(_) | Reply::Refusal(_) => Vec::new(),
    };
    bytes.into()
}
