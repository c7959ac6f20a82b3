//! Asks the nodes and the cluster, again and again.

use std::time::Duration;

use ringfence_client::unstable;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::{
    HistoryRecord, HistoryRequest, HistoryResponse, Lease, ListRequest, ListResponse, ReadOptions,
};
use ringfence_services::since_epoch;
use tokio::sync::{mpsc, watch};
use tokio::time;

use crate::cli::context::Context;
use crate::cli::doctor::{self, Answer};
use crate::cli::{Failure, Global};

/// The most leases of a list.
pub(super) const LEASES_MAX: u32 = 1_000;
/// The most grants of a lease's history.
const HISTORY_MAX: u32 = 50;
/// A list that does not hold all leases is read this often: its node keeps the rest of it for a while,
/// and keeps few.
const LONG_LIST_EVERY: Duration = Duration::from_secs(15);
/// A node that lost its leader shows what it knew, so long.
const STALENESS_MAX_MS: u64 = 10_000;

/// What the screen shows beside the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Question {
    /// Leases whose names begin with it.
    pub(super) prefix: String,
    /// The lease whose history is shown.
    pub(super) opened: Option<String>,
}

/// What was found at one time.
pub(super) struct Sight {
    /// By the wall clock of this machine: for people.
    pub(super) at: Duration,
    pub(super) question: Question,
    pub(super) nodes: Vec<Answer>,
    /// `None` if the last list is young enough.
    pub(super) leases: Option<Result<Page, String>>,
    pub(super) history: Option<Result<Vec<HistoryRecord>, String>>,
}

impl Sight {
    /// Why a node refuses the credential that it was shown, if one does.
    pub(super) fn denied(&mut self) -> Option<Failure> {
        let silent = self
            .nodes
            .iter_mut()
            .filter_map(|node| node.said.as_mut().err());
        silent.filter_map(|silence| silence.denied.take()).next()
    }
}

/// The first leases behind a prefix.
pub(super) struct Page {
    pub(super) leases: Vec<Lease>,
    /// There are more than these.
    pub(super) more: bool,
}

/// The connection of the client crate, which is made with the first answer.
struct Cluster<'a> {
    global: &'a Global,
    context: Option<Context>,
}

/// Looks until no one takes what is seen.
pub(super) async fn again_and_again(
    global: Global,
    every: Duration,
    mut questions: watch::Receiver<Question>,
    sights: mpsc::Sender<Sight>,
) {
    let mut cluster = Cluster {
        global: &global,
        context: None,
    };
    // The prefix of a list that was not whole, and when it was read.
    let mut long: Option<(String, Duration)> = None;
    loop {
        let question = questions.borrow_and_update().clone();
        let listed = long.as_ref().is_some_and(|(prefix, read)| {
            let age = since_epoch().saturating_sub(*read);
            *prefix == question.prefix && age < LONG_LIST_EVERY
        });
        let nodes = doctor::ask_all(&global);
        let of_cluster = cluster.look(&question, !listed);
        let (nodes, (leases, history)) = tokio::join!(nodes, of_cluster);
        if let Some(leases) = &leases {
            let more = leases.as_ref().is_ok_and(|page| page.more);
            long = more.then(|| (question.prefix.clone(), since_epoch()));
        }
        let sight = Sight {
            at: since_epoch(),
            question,
            nodes,
            leases,
            history,
        };
        if sights.send(sight).await.is_err() {
            return;
        }
        tokio::select! {
            () = time::sleep(every) => {}
            changed = questions.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

type Found = (
    Option<Result<Page, String>>,
    Option<Result<Vec<HistoryRecord>, String>>,
);

impl Cluster<'_> {
    async fn look(&mut self, question: &Question, list: bool) -> Found {
        let context = match &self.context {
            Some(context) => context,
            None => match Context::connect(self.global).await {
                Ok(context) => self.context.insert(context),
                Err(failure) => return (Some(Err(failure.message)), None),
            },
        };
        let leases = async {
            match list {
                true => Some(leases(context, &question.prefix).await),
                false => None,
            }
        };
        let history = async {
            match &question.opened {
                Some(name) => Some(history(context, name).await),
                None => None,
            }
        };
        let (leases, history) = tokio::join!(leases, history);
        let said = |failure: Failure| failure.message;
        (
            leases.map(|leases| leases.map_err(said)),
            history.map(|history| history.map_err(said)),
        )
    }
}

async fn leases(context: &Context, prefix: &str) -> Result<Page, Failure> {
    let request = ListRequest {
        prefix: prefix.to_owned(),
        page_size: LEASES_MAX,
        read: Some(ReadOptions {
            max_staleness_ms: STALENESS_MAX_MS,
        }),
        ..ListRequest::default()
    };
    let ask = move |channel| {
        let request = request.clone();
        async move { LeasesClient::new(channel).list(request).await }
    };
    let page: ListResponse = unstable::unary(&context.client, ask).await?;
    Ok(Page {
        more: !page.next_page_token.is_empty(),
        leases: page.leases,
    })
}

async fn history(context: &Context, name: &str) -> Result<Vec<HistoryRecord>, Failure> {
    let request = HistoryRequest {
        name: name.to_owned(),
        token: 0,
        limit: HISTORY_MAX,
    };
    let ask = move |channel| {
        let request = request.clone();
        async move { LeasesClient::new(channel).history(request).await }
    };
    let answer: HistoryResponse = unstable::unary(&context.client, ask).await?;
    Ok(answer.records)
}
