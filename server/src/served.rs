//! What clients are served, at the client port and at the admin socket, and what stands before it.

use std::sync::Arc;

use ringfence_proto::FILE_DESCRIPTOR_SET;
use ringfence_proto::v1::access_server::AccessServer;
use ringfence_proto::v1::cluster_server::ClusterServer;
use ringfence_proto::v1::connection_server::ConnectionServer;
use ringfence_proto::v1::leases_server::LeasesServer;
use ringfence_proto::v1::sessions_server::SessionsServer;
use ringfence_proto::wire::MESSAGE_BYTES_MAX;
use ringfence_rest::Rest;
use ringfence_services::{
    AccessService, Client, ClusterService, ConnectionService, Context, LeaseService, MeteredLayer,
    Pool, SessionService, name_malformed,
};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::layer::util::{Identity, Stack};
use tower::util::MapResponseLayer;

use crate::identify::IdentifyLayer;
use crate::lease_api::LeaseApi;
use crate::limits::{
    CANCELLED_UNSEEN_MAX, CONNECTION_WINDOW_BYTES, HEADER_BYTES_MAX, PING_INTERVAL, PING_TIMEOUT,
    STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION_MAX,
};
use crate::otlp::TraceLayer;

/// The gRPC server of clients with its limits.
fn server() -> Server {
    Server::builder()
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_pending_accept_reset_streams(Some(CANCELLED_UNSEEN_MAX))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .accept_http1(true)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
}

/// Why server reflection cannot fail to start.
const DESCRIPTORS: &str = "the descriptors were made by this build";

/// Server reflection, so that tools need no `.proto` files. Python's client and older grpcurl ask
/// for v1alpha, so that both versions are served.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// What stands before the services, the innermost first.
type Layers = Stack<
    MapResponseLayer<fn(Answered) -> Answered>,
    Stack<MeteredLayer, Stack<TraceLayer, Stack<IdentifyLayer, Identity>>>,
>;

type Answered = tonic::codegen::http::Response<Body>;

/// The Lease endpoint, with what stands before it. On HTTP/2 a client notices a dead node later than an
/// elector may wait, so it is served by HTTP/1.1 alone.
pub(crate) fn lease_api(
    context: &Context,
    identify: IdentifyLayer,
    pool: &Arc<Pool>,
) -> Router<Layers> {
    let spans = TraceLayer::new(context.spans(), "https");
    let api = axum::Router::new().fallback_service(LeaseApi::new(context));
    server()
        .layer(identify)
        .layer(spans)
        .layer(MeteredLayer::new(Arc::clone(pool)))
        .layer(MapResponseLayer::new(
            name_malformed as fn(Answered) -> Answered,
        ))
        .add_routes(Routes::from(api))
}

/// All that clients are served, with what stands before it.
pub(crate) fn services(
    context: &Context,
    identify: IdentifyLayer,
    pool: &Arc<Pool>,
    health: HealthServer<impl Health>,
    scheme: &'static str,
) -> Router<Layers> {
    let leases = Arc::new(LeaseService::new(context.clone()));
    let sessions = Arc::new(SessionService::new(context.clone()));
    let stray = Client::new(context.new_account());
    let rest = Rest::new(Arc::clone(&leases), Arc::clone(&sessions), stray);
    let mut routes = Routes::builder();
    routes
        .add_service(health.max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(
            (reflection().build_v1().expect(DESCRIPTORS))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            (reflection().build_v1alpha().expect(DESCRIPTORS))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(LeasesServer::from_arc(leases).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(
            SessionsServer::from_arc(sessions).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            ClusterServer::new(ClusterService::new(context.clone()))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            AccessServer::new(AccessService::new(context.clone()))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            ConnectionServer::new(ConnectionService::new(context.clone()))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        );
    // What no gRPC service takes is a call in JSON, or nothing that is served.
    let routes = routes.routes().into_axum_router().fallback_service(rest);
    server()
        .layer(identify)
        .layer(TraceLayer::new(context.spans(), scheme))
        .layer(MeteredLayer::new(Arc::clone(pool)))
        .layer(MapResponseLayer::new(
            name_malformed as fn(Answered) -> Answered,
        ))
        .add_routes(Routes::from(routes))
}
