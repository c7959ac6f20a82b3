//! `ringfence access token …`: cluster tokens.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use ringfence_access::{BearerToken, TokenSecret, now_unix};
use ringfence_core::Principal;
use ringfence_proto::v1::access_change::Change;
use ringfence_proto::v1::{self, NewToken};
use serde_json::{Value, json};

use super::change::{change, read, remind_of_mode};
use crate::cli::context::Context;
use crate::cli::output::Table;
use crate::cli::{Failure, exit, view};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a token is valid unless it is said.
const TTL_STANDARD: &str = "90d";
/// The longest that may be said: ten years.
const TTL_MAX: Duration = Duration::from_secs(3_650 * DAY.as_secs());

/// The commands about cluster tokens.
#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Make a token that proves its bearer to be token:NAME, and print it, this once
///
/// The cluster keeps only a digest of it.
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  (umask 077; ringfence access token create deploy > deploy.token)
  ringfence access grant token:deploy acquire 'deploy/*'
  ringfence lease acquire deploy/web --token-file deploy.token")]
pub(crate) struct Create {
    /// What follows `token:` in the principal
    #[arg(value_parser = token_principal, value_name = "NAME")]
    principal: Principal,
    /// How long it is valid, up to 3650d
    #[arg(long, default_value = TTL_STANDARD, value_name = "DURATION", value_parser = ttl)]
    ttl: Duration,
}

/// List the cluster tokens, without their secrets
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access token list")]
pub(crate) struct List {}

/// End all tokens of a name at once
#[derive(clap::Args, Debug)]
#[command(after_help = r"Example:
  ringfence access token revoke deploy")]
pub(crate) struct Revoke {
    /// What follows `token:` in the principal
    #[arg(value_parser = token_principal, value_name = "NAME")]
    principal: Principal,
}

impl TokenCommand {
    pub(crate) async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(command) => command.run(context).await,
            Self::List(command) => command.run(context).await,
            Self::Revoke(command) => command.run(context).await,
        }
    }
}

/// The principal of a token with this name, with or without `token:` before it.
fn token_principal(raw: &str) -> Result<Principal, String> {
    let name = raw.strip_prefix("token:").unwrap_or(raw);
    Principal::parse(&format!("token:{name}")).map_err(|why| why.to_string())
}

/// A duration of days too, which other commands have no use for.
fn ttl(raw: &str) -> Result<Duration, String> {
    let days = raw.strip_suffix('d').map(str::parse::<u32>);
    let ttl = match days {
        Some(Ok(days)) => DAY.saturating_mul(days),
        Some(Err(_)) | None => crate::duration::parse(raw)
            .map_err(|_| "expected a whole number and d, h, m or s, as in 90d".to_owned())?,
    };
    match (Duration::from_secs(1)..=TTL_MAX).contains(&ttl) {
        true => Ok(ttl),
        false => Err("a token is valid for 1s to 3650d".to_owned()),
    }
}

/// Until when it is valid, for people.
pub(super) fn expiry(token: &v1::ClusterToken) -> String {
    match token.expires_unix {
        0 => "never expires".to_owned(),
        expires => format!("expires {}", view::wall(expires.saturating_mul(1_000))),
    }
}

/// A token as programs read it.
pub(super) fn token_object(token: &v1::ClusterToken) -> Value {
    json!({
        "id": token.id,
        "principal": token.principal,
        "expires_unix": (token.expires_unix != 0).then_some(token.expires_unix),
    })
}

impl Create {
    async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let before = read(context).await?;
        let secret = TokenSecret::generate();
        let expires = now_unix().saturating_add(self.ttl.as_secs());
        let token = NewToken {
            principal: self.principal.as_str().into(),
            digest: secret.sha256().to_vec().into(),
            expires_unix: expires,
        };
        let made = change(context, &before, vec![Change::AddToken(token)]).await?;
        let made = v1::ClusterToken {
            id: made.token_id,
            principal: self.principal.as_str().into(),
            expires_unix: expires,
        };
        let text = BearerToken {
            id: made.id,
            secret,
        };
        let text = text.to_text();
        let mut object = token_object(&made);
        object["token"] = text.as_str().into();
        // Without a reader it would be valid, and no program would have it.
        let printed = context
            .output
            .receipt(&object, &text, std::future::pending());
        if let Err(failure) = printed.await {
            let name = self.principal.as_str().trim_start_matches("token:");
            return Err(failure.hint(format!(
                "token {} was made and not printed: `ringfence access token revoke {name}`",
                made.id
            )));
        }
        context.output.remark(format!(
            "token {} of {}, {}; it is not shown again, and nothing is allowed to it without a rule",
            made.id,
            made.principal,
            expiry(&made)
        ));
        remind_of_mode(context, before.mode());
        Ok(ExitCode::SUCCESS)
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let access = read(context).await?;
        let mut table = Table::new(&["ID", "PRINCIPAL", "EXPIRES"]);
        for token in &access.tokens {
            let expires = match token.expires_unix {
                0 => "never".to_owned(),
                expires => view::wall(expires.saturating_mul(1_000)),
            };
            table.row(vec![token.id.to_string(), token.principal.clone(), expires]);
        }
        let objects: Vec<Value> = access.tokens.iter().map(token_object).collect();
        context.output.list(&objects, &table, "no cluster tokens")?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Revoke {
    async fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let before = read(context).await?;
        let of = self.principal.as_str();
        let tokens = before.tokens.iter().filter(|token| token.principal == of);
        let ids: Vec<u64> = tokens.map(|token| token.id).collect();
        if ids.is_empty() {
            let message = format!("there is no token of {of}");
            return Err(Failure::new(exit::NEGATIVE, "NOT_FOUND", message)
                .hint("`access token list` shows those that are valid"));
        }
        let changed = change(context, &before, vec![Change::RemoveTokens(of.into())]).await?;
        let object = json!({ "principal": of, "ids": ids, "index": changed.access_index });
        let text = format!("{of}: {} of its tokens revoked", ids.len());
        context.output.result(&object, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_token_may_be_said_in_days_and_has_an_end() {
        assert_eq!(ttl("90d"), Ok(DAY * 90));
        assert_eq!(ttl("1h"), Ok(Duration::from_secs(3_600)));
        for raw in ["0s", "3651d", "d", "-1d", "soon", "99999999999d"] {
            assert!(ttl(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_token_is_named_with_and_without_its_kind() {
        let named = |raw| token_principal(raw).map(|principal| principal.to_string());
        assert_eq!(named("deploy"), Ok("token:deploy".to_owned()));
        assert_eq!(named("token:deploy"), Ok("token:deploy".to_owned()));
        assert!(named("").is_err());
        assert!(named("two words").is_err());
    }
}
