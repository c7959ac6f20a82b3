//! Service `ringfence.v1.Leases`.

use std::pin::Pin;
use std::sync::Arc;

use ringfence_core::ClusterId;
use ringfence_proto::v1;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::list::Listings;
use super::{Context, deadline, list, watch};
use crate::caller::Who;
use crate::metrics::Call;

/// Service `ringfence.v1.Leases`.
pub struct LeaseService {
    context: Context,
    listings: Arc<Listings>,
}

impl LeaseService {
    /// The service of this node.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self {
            context,
            listings: Arc::default(),
        }
    }

    /// A page of leases out of the present state. `page_token` is the name behind which it begins, and
    /// `next_page_token` the last name of the page, if there are more.
    ///
    /// For readers that look at the same page again and again: the node keeps no list for them, which
    /// would displace those of others.
    ///
    /// # Errors
    /// As `Leases.List`, but never `COMPACTED`.
    pub async fn list_present(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let (metadata, _, request) = request.into_parts();
        // Boxed, as the methods of the trait are: the compiler follows futures in each other only so far.
        let work = Box::pin(list::present_page(&self.context, &account, &who, request));
        let answer = deadline::within(&metadata, work).await;
        let answer = self.context.answered(Call::List, answer);
        Ok(answer?.response())
    }

    /// The cluster that this node belongs to; `None` before it is formed.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.context.node.read(|machine| machine.cluster())
    }
}

#[tonic::async_trait]
impl v1::leases_server::Leases for LeaseService {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let (metadata, _, request) = request.into_parts();
        let acquired = async {
            self.context.is_meant(&metadata)?;
            self.context.acquire(&who, &account, request).await
        };
        let answer = deadline::within(&metadata, acquired).await;
        let answer = self.context.answered(Call::Acquire, answer);
        Ok(Response::new(answer?))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        self.context.call(request).await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        self.context.call(request).await
    }

    async fn transfer(
        &self,
        request: Request<v1::TransferRequest>,
    ) -> Result<Response<v1::TransferResponse>, Status> {
        self.context.call(request).await
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        self.context.call(request).await
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        self.context.query(request).await
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let (metadata, _, request) = request.into_parts();
        let work = self.listings.page(&self.context, &account, &who, request);
        let answer = deadline::within(&metadata, work).await;
        let answer = self.context.answered(Call::List, answer);
        Ok(answer?.response())
    }

    async fn check(
        &self,
        request: Request<v1::CheckRequest>,
    ) -> Result<Response<v1::CheckResponse>, Status> {
        self.context.query(request).await
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let answer = watch::leases(&self.context, account, who, request.into_inner());
        let answer = self.context.answered(Call::Watch, answer);
        Ok(Response::new(Box::pin(answer?)))
    }

    type WatchFloorsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchFloorsResponse, Status>> + Send>>;

    async fn watch_floors(
        &self,
        request: Request<v1::WatchFloorsRequest>,
    ) -> Result<Response<Self::WatchFloorsStream>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let answer = watch::floors(&self.context, account, who, request.into_inner());
        let answer = self.context.answered(Call::WatchFloors, answer);
        Ok(Response::new(Box::pin(answer?)))
    }

    async fn history(
        &self,
        request: Request<v1::HistoryRequest>,
    ) -> Result<Response<v1::HistoryResponse>, Status> {
        let (account, who) = (self.context.account(&request), Who::of(&request));
        let (metadata, _, request) = request.into_parts();
        let work = self.context.history(&account, &who, request);
        let answer = deadline::within(&metadata, work).await;
        let answer = self.context.answered(Call::History, answer);
        Ok(answer?.response())
    }
}
