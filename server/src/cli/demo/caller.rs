//! How workers speak with the store.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::cli::{Failure, exit};

/// How long the store may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A connection to the store.
pub(super) struct Store {
    requests: OwnedWriteHalf,
    answers: Lines<BufReader<OwnedReadHalf>>,
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is stored: the balance is now this.
    Done(i64),
    /// The guard has seen a greater token.
    Stale { offered: u64, mark: u64 },
}

impl Store {
    /// Connects to the store.
    ///
    /// # Errors
    /// If it does not answer.
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|cause| failed(&cause.to_string()))?;
        let (answers, requests) = stream.into_split();
        Ok(Self {
            requests,
            answers: BufReader::new(answers).lines(),
        })
    }

    /// Advances the guard to `fence`. Returns the mark, or nothing if there is no guard.
    ///
    /// # Errors
    /// If the store refuses or fails.
    pub(super) async fn advance(&mut self, fence: &str) -> Result<Option<u64>, Failure> {
        let answer = self.ask(&format!("advance {fence}")).await?;
        match words(&answer)[..] {
            ["unguarded"] => Ok(None),
            ["advanced", mark] => Ok(Some(number(mark)?)),
            _ => Err(failed(&answer)),
        }
    }

    /// Reads the balance.
    ///
    /// # Errors
    /// If the store fails.
    pub(super) async fn read(&mut self) -> Result<i64, Failure> {
        let answer = self.ask("read").await?;
        match words(&answer)[..] {
            ["balance", amount] => number(amount),
            _ => Err(failed(&answer)),
        }
    }

    /// Sets the balance.
    ///
    /// # Errors
    /// If the store fails; a refusal by its guard is no error.
    pub(super) async fn write(&mut self, fence: &str, amount: i64) -> Result<Written, Failure> {
        let answer = self.ask(&format!("write {fence} {amount}")).await?;
        match words(&answer)[..] {
            ["written", amount] => Ok(Written::Done(number(amount)?)),
            ["refused", "STALE_TOKEN", offered, mark] => Ok(Written::Stale {
                offered: number(offered)?,
                mark: number(mark)?,
            }),
            _ => Err(failed(&answer)),
        }
    }

    async fn ask(&mut self, request: &str) -> Result<String, Failure> {
        let asked = async {
            self.requests
                .write_all(format!("{request}\n").as_bytes())
                .await?;
            self.answers.next_line().await
        };
        match tokio::time::timeout(ANSWER_LIMIT, asked).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(failed("it closed the connection")),
            Ok(Err(cause)) => Err(failed(&cause.to_string())),
            Err(_) => Err(failed("no answer in time")),
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, Failure> {
    word.parse()
        .map_err(|_| failed(&format!("{word} is no number")))
}

fn failed(why: &str) -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        "FAULT",
        format!("the demo's store: {why}"),
    )
}
