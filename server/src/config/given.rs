//! What was said, by flag, variable or file: each setting declared once for all three.
// Over 500 lines because each setting stands here once, with its help, and one list is easier to search than two.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ringfence_access::CertificateKind;
use serde::Deserialize;

/// Run a node of a cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = r"Examples:
  ringfence serve --name n1 --data-dir /var/lib/ringfence \
    --initial-cluster n1=10.0.0.1:7421,n2=10.0.0.2:7421,n3=10.0.0.3:7421 --access enforced
  ringfence serve --name n4 --join 10.0.0.1:7421 --access enforced   # a further node, see `cluster promote`")]
pub(crate) struct ServeArgs {
    /// A TOML file with these settings, keys spelled as the flags without `--`; flags and
    /// variables win over it
    #[arg(long, env = "RINGFENCE_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) given: Given,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

/// Whether nodes may do without TLS between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PeerTlsMode {
    /// They may not.
    Required,
    /// Those without TLS are let in, and connected to, as well: while a cluster gets TLS.
    Permissive,
}

impl PeerTlsMode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Permissive => "permissive",
        }
    }
}

/// Which name of a client certificate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CertificatePrincipal {
    /// The only URI among its alternative names.
    Uri,
    /// The only DNS name among its alternative names.
    Dns,
    /// The only email address among its alternative names.
    Email,
    /// Its common name.
    Cn,
}

impl From<CertificatePrincipal> for CertificateKind {
    fn from(kind: CertificatePrincipal) -> Self {
        match kind {
            CertificatePrincipal::Uri => Self::Uri,
            CertificatePrincipal::Dns => Self::Dns,
            CertificatePrincipal::Email => Self::Email,
            CertificatePrincipal::Cn => Self::CommonName,
        }
    }
}

/// Every setting, said or not.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Given {
    /// This node's name, unique in the cluster [default: n1]
    #[arg(long, env = "RINGFENCE_NAME")]
    pub(super) name: Option<String>,
    /// Where log, vote, snapshots and history are kept [default: ringfence-data]
    #[arg(long, env = "RINGFENCE_DATA_DIR", value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// Name and peer address of every first member, this node included; a cluster is formed once
    /// all of them answer and all are empty [default: this node alone]
    #[arg(
        long,
        env = "RINGFENCE_INITIAL_CLUSTER",
        value_name = "n1=HOST:PORT,…",
        value_delimiter = ','
    )]
    pub(super) initial_cluster: Vec<String>,
    /// Peer addresses of members of a cluster that this node shall join. While one of them is silent
    /// it forms none
    #[arg(
        long,
        env = "RINGFENCE_JOIN",
        value_name = "HOST:PORT,…",
        value_delimiter = ','
    )]
    pub(super) join: Vec<String>,
    /// Where clients are served [default: port 7420 of every interface]
    #[arg(long, env = "RINGFENCE_LISTEN_CLIENT", value_name = "IP:PORT")]
    pub(super) listen_client: Option<String>,
    /// Where other nodes are served [default: port 7421 of every interface]
    #[arg(long, env = "RINGFENCE_LISTEN_PEER", value_name = "IP:PORT")]
    pub(super) listen_peer: Option<String>,
    /// Where /livez, /readyz and /metrics are served; where rights are enforced, /metrics needs the
    /// right to observe ringfence/metrics [default: port 7422 of every interface]
    #[arg(long, env = "RINGFENCE_LISTEN_HTTP", value_name = "IP:PORT")]
    pub(super) listen_http: Option<String>,
    /// Where the Lease endpoint is served: coordination.k8s.io/v1 for electors of Kubernetes, with the
    /// certificate of the client port; usually port 7425 [default: nowhere]
    #[arg(long, env = "RINGFENCE_LISTEN_LEASE_API", value_name = "IP:PORT")]
    pub(super) listen_lease_api: Option<String>,
    /// How long a JWT that has expired renews, at the Lease endpoint, what its caller holds there; it is
    /// granted nothing with it [default: 24h]
    #[arg(long, env = "RINGFENCE_LEASE_API_TOKEN_GRACE", value_name = "DURATION")]
    pub(super) lease_api_token_grace: Option<String>,
    /// Principals that one process has at a time, the same on every node: at the Lease endpoint they
    /// release what they hold, as Pods do [default: none]
    #[arg(
        long,
        env = "RINGFENCE_LEASE_API_SINGLE_PROCESS",
        value_name = "PRINCIPALS,…",
        value_delimiter = ','
    )]
    pub(super) lease_api_single_process: Vec<String>,
    /// The most connections of clients at a time; fewer if the process may not have so many files open
    /// [default: 10000]
    #[arg(long, env = "RINGFENCE_CLIENT_CONNECTIONS_MAX", value_name = "N")]
    pub(super) client_connections_max: Option<u64>,
    /// The address advertised to clients [default: the host of --advertise-peer with the port of
    /// --listen-client]
    #[arg(long, env = "RINGFENCE_ADVERTISE_CLIENT", value_name = "HOST:PORT")]
    pub(super) advertise_client: Option<String>,
    /// The address advertised to other nodes [default: as in --initial-cluster, else
    /// --listen-peer]
    #[arg(long, env = "RINGFENCE_ADVERTISE_PEER", value_name = "HOST:PORT")]
    pub(super) advertise_peer: Option<String>,
    /// The certificate of the client port, with those that signed it: a PEM file, read again when
    /// it changes [default: the port has no TLS]
    #[arg(long, env = "RINGFENCE_CERT_FILE", value_name = "FILE")]
    pub(super) cert_file: Option<PathBuf>,
    /// The key of --cert-file, not encrypted: a PEM file
    #[arg(long, env = "RINGFENCE_KEY_FILE", value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Who signs the certificates of clients: a PEM file; a certificate that a client shows has to
    /// be good
    #[arg(long, env = "RINGFENCE_TRUSTED_CA_FILE", value_name = "FILE")]
    pub(super) trusted_ca_file: Option<PathBuf>,
    /// Turn away clients that show no certificate
    #[arg(
        long,
        env = "RINGFENCE_CLIENT_CERT_AUTH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) client_cert_auth: Option<bool>,
    /// The certificate of the HTTP port, with those that signed it: a PEM file, read again when it
    /// changes [default: the port has no TLS]
    #[arg(long, env = "RINGFENCE_HTTP_CERT_FILE", value_name = "FILE")]
    pub(super) http_cert_file: Option<PathBuf>,
    /// The key of --http-cert-file, not encrypted: a PEM file
    #[arg(long, env = "RINGFENCE_HTTP_KEY_FILE", value_name = "FILE")]
    pub(super) http_key_file: Option<PathBuf>,
    /// Who signs the certificates that callers of the HTTP port may show: a PEM file; none has to
    /// show one, since probes cannot
    #[arg(long, env = "RINGFENCE_HTTP_TRUSTED_CA_FILE", value_name = "FILE")]
    pub(super) http_trusted_ca_file: Option<PathBuf>,
    /// Which name of a client certificate is the caller's: cert:uri:…, cert:dns:…, cert:email:… or
    /// cert:cn:… [default: a certificate names no caller]
    #[arg(long, env = "RINGFENCE_CLIENT_CERT_PRINCIPAL", value_name = "KIND")]
    pub(super) client_cert_principal: Option<CertificatePrincipal>,
    /// An issuer of bearer tokens (JWT) that prove jwt:ALIAS:SUBJECT, or sa:ALIAS:NAMESPACE/NAME with
    /// kind=kubernetes. Its public keys stand in FILE, which is read again when it changes; may be
    /// given several times
    #[arg(
        long,
        env = "RINGFENCE_JWT_ISSUER",
        value_name = "ALIAS=ISSUER,audience=AUDIENCE,jwks=FILE[,kind=kubernetes]",
        value_delimiter = ' '
    )]
    pub(super) jwt_issuer: Vec<String>,
    /// The --jwt-issuer of the Kubernetes whose Pods --kube-pods watches: a session is bound to a Pod
    /// only by that Pod's own token [default: the only one with kind=kubernetes]
    #[arg(long, env = "RINGFENCE_KUBE_PODS_ISSUER", value_name = "ALIAS")]
    pub(super) kube_pods_issuer: Option<String>,
    /// A secret that the nodes of the cluster alone have: 32 random bytes or more, as they are, in
    /// hexadecimal digits or in base64. From it each node makes a CA and its own certificate
    /// for TLS between nodes. Given twice, the CA of each is trusted, and the first signs
    /// [default: the certificate of --peer-cert-file]
    #[arg(
        long,
        env = "RINGFENCE_CLUSTER_SECRET_FILE",
        value_name = "FILE",
        value_delimiter = ','
    )]
    pub(super) cluster_secret_file: Vec<PathBuf>,
    /// Whether other nodes may do without TLS: required or permissive. Permissive, for the time in
    /// which a cluster gets TLS, protects nothing [default: required, if there is TLS between nodes]
    #[arg(long, env = "RINGFENCE_PEER_TLS_MODE", value_name = "MODE")]
    pub(super) peer_tls_mode: Option<PeerTlsMode>,
    /// This node's certificate towards other nodes, with those that signed it, for the host of
    /// --advertise-peer: a PEM file, read again when it changes [default: no TLS between nodes]
    #[arg(long, env = "RINGFENCE_PEER_CERT_FILE", value_name = "FILE")]
    pub(super) peer_cert_file: Option<PathBuf>,
    /// The key of --peer-cert-file, not encrypted: a PEM file
    #[arg(long, env = "RINGFENCE_PEER_KEY_FILE", value_name = "FILE")]
    pub(super) peer_key_file: Option<PathBuf>,
    /// Who signs the certificates of nodes: a PEM file, of one CA or of several
    #[arg(long, env = "RINGFENCE_PEER_TRUSTED_CA_FILE", value_name = "FILE")]
    pub(super) peer_trusted_ca_file: Option<PathBuf>,
    /// Reject at the peer port a peer that shows no certificate of --peer-trusted-ca-file
    #[arg(
        long,
        env = "RINGFENCE_PEER_CLIENT_CERT_AUTH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) peer_client_cert_auth: Option<bool>,
    /// Whose certificates are nodes': a DNS name, an IP address, or `*.` and a domain, of which the
    /// certificate that a peer shows must have one; implies --peer-client-cert-auth [default: every
    /// certificate of --peer-trusted-ca-file is a node's]
    #[arg(
        long,
        env = "RINGFENCE_PEER_TLS_NAME",
        value_name = "NAME,…",
        value_delimiter = ','
    )]
    pub(super) peer_tls_name: Vec<String>,
    /// While this node leads, show leases named PREFIX/NAMESPACE/NAME as Lease objects of Kubernetes
    #[arg(
        long,
        env = "RINGFENCE_KUBE_MIRROR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) kube_mirror: Option<bool>,
    /// Watch the Pods that sessions are bound to, and end these with them; without it no session
    /// can be bound to a Pod
    #[arg(
        long,
        env = "RINGFENCE_KUBE_PODS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) kube_pods: Option<bool>,
    /// How the API server is reached, by the current context of this file [default: by the service
    /// account of the Pod that the node runs in]
    #[arg(long, env = "RINGFENCE_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Mirror to this namespace alone, so that a role in it, and in the one of --kube-floors, is enough
    /// [default: to all]
    #[arg(long, env = "RINGFENCE_KUBE_NAMESPACE", value_name = "NAMESPACE")]
    pub(super) kube_namespace: Option<String>,
    /// The namespace of the floors of fenced leases: the one that Ringfence is installed in
    /// [default: ringfence]
    #[arg(long, env = "RINGFENCE_KUBE_FLOORS", value_name = "NAMESPACE")]
    pub(super) kube_floors: Option<String>,
    /// What the names of mirrored leases begin with [default: k8s]
    #[arg(long, env = "RINGFENCE_KUBE_PREFIX", value_name = "PREFIX")]
    pub(super) kube_prefix: Option<String>,
    /// With an empty data directory, take the place of the member of this name, whose data are
    /// lost
    #[arg(
        long,
        env = "RINGFENCE_REPLACE_ON_DATA_LOSS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) replace_on_data_loss: Option<bool>,
    /// Ask for a vote as soon as this node has caught up, if it joined a cluster; else an operator
    /// promotes it. Never the vote of another member of its name
    #[arg(
        long,
        env = "RINGFENCE_JOIN_AS_VOTER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) join_as_voter: Option<bool>,
    /// As the Pod --name of a StatefulSet: when asked to stop, leave the cluster first and clear
    /// the data directory if the StatefulSet has become too small for this Pod
    #[arg(
        long,
        env = "RINGFENCE_KUBE_LEAVE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) kube_leave: Option<bool>,
    /// When forming: tokens start above this number instead of at the wall clock, for the
    /// cluster's whole life; such a cluster must not stand before a lasting store
    #[arg(long, env = "RINGFENCE_TOKEN_FLOOR", value_name = "N")]
    pub(super) token_floor: Option<u64>,
    /// When forming, of the founder (the first name of --initial-cluster): how much rights bind: off,
    /// permissive or enforced; first members with --restore need the same. Later `access mode` sets
    /// that. At a restart the founder's value still becomes the mode while the rights of the cluster
    /// were never changed and its log has at most 1000 entries; else the node warns that it does not
    /// count, and serves no other machine while the mode is off [default: off; with --restore: as in
    /// the backup]
    #[arg(long, env = "RINGFENCE_ACCESS", value_name = "MODE")]
    pub(super) access: Option<String>,
    /// Serve clients of other machines although every client may do anything
    #[arg(
        long,
        env = "RINGFENCE_ALLOW_ANONYMOUS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) allow_anonymous: Option<bool>,
    /// Write each act of an operator that this node applies, and samples of what it refuses, to this
    /// file as lines of JSON; `-` is stdout. The file is only appended to, and opened again on SIGHUP
    #[arg(long, env = "RINGFENCE_AUDIT_LOG", value_name = "FILE")]
    pub(super) audit_log: Option<PathBuf>,
    /// In the mode `enforced`: the most requests of one principal to this node in a second;
    /// keep-alives do not count [default: 10000]
    #[arg(long, env = "RINGFENCE_PRINCIPAL_REQUESTS_MAX", value_name = "N")]
    pub(super) principal_requests_max: Option<u64>,
    /// In the mode `enforced`: the most bytes of one principal's requests and answers in a second;
    /// beyond it requests are refused [default: 67108864]
    #[arg(long, env = "RINGFENCE_PRINCIPAL_BYTES_MAX", value_name = "BYTES")]
    pub(super) principal_bytes_max: Option<u64>,
    /// In the mode `enforced`: the most connections of one principal to this node [default: 5000]
    #[arg(long, env = "RINGFENCE_PRINCIPAL_CONNECTIONS_MAX", value_name = "N")]
    pub(super) principal_connections_max: Option<u64>,
    /// In the mode `enforced`: the most failed proofs in a second from one address, or one IPv6 /64,
    /// ten times as many at once; beyond it credentials from there are not looked at [default: 10]
    #[arg(long, env = "RINGFENCE_FAILED_PROOFS_MAX", value_name = "N")]
    pub(super) failed_proofs_max: Option<u64>,
    /// When forming: the shortest TTL a session may ask for [default: 1s]
    #[arg(long, env = "RINGFENCE_TTL_MIN", value_name = "DURATION")]
    pub(super) ttl_min: Option<String>,
    /// When forming: the longest TTL a session may ask for [default: 5m]
    #[arg(long, env = "RINGFENCE_TTL_MAX", value_name = "DURATION")]
    pub(super) ttl_max: Option<String>,
    /// Between two heartbeats of the leader, the same on every node [default: 50]
    #[arg(long, env = "RINGFENCE_HEARTBEAT_MS", value_name = "MS")]
    pub(super) heartbeat_ms: Option<u64>,
    /// The election timeout is drawn from this range, the same on every node [default: 200..300]
    #[arg(long, env = "RINGFENCE_ELECTION_MS", value_name = "MIN..MAX")]
    pub(super) election_ms: Option<String>,
    /// The size of a log segment [default: 67108864]
    #[arg(long, env = "RINGFENCE_WAL_SEGMENT_BYTES", value_name = "BYTES")]
    pub(super) wal_segment_bytes: Option<u64>,
    /// How much log grows between two snapshots [default: 268435456]
    #[arg(long, env = "RINGFENCE_SNAPSHOT_LOG_BYTES", value_name = "BYTES")]
    pub(super) snapshot_log_bytes: Option<u64>,
    /// Threads that serve requests, beside those for the log and the history; one is fastest where
    /// several nodes share two cores [default: one per core]
    #[arg(long, env = "RINGFENCE_WORKER_THREADS", value_name = "N")]
    pub(super) worker_threads: Option<u64>,
    /// What is logged: error, warn, info, debug or trace, per target if wished [default:
    /// info,openraft=error]
    #[arg(long, env = "RINGFENCE_LOG", value_name = "FILTER")]
    pub(super) log: Option<String>,
    /// How it is logged, to stderr [default: text]
    #[arg(long, env = "RINGFENCE_LOG_FORMAT", value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
    /// Where this node keeps backups that it takes on its own: a directory that no other node uses, on
    /// another disk than --data-dir, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX,
    /// with credentials in the variables that the store's own tools take [default: it takes none]
    #[arg(long, env = "RINGFENCE_BACKUP_DIR", value_name = "DIR|URL")]
    pub(super) backup_dir: Option<PathBuf>,
    /// How often it takes one; 1m to 168h [default: 1h]
    #[arg(long, env = "RINGFENCE_BACKUP_EVERY", value_name = "DURATION")]
    pub(super) backup_every: Option<String>,
    /// How many of them a directory keeps; the oldest of this cluster go first. A bucket has lifecycle
    /// rules of its own [default: 48]
    #[arg(long, env = "RINGFENCE_BACKUP_KEEP", value_name = "N")]
    pub(super) backup_keep: Option<u64>,
    /// Form the cluster from this backup: all first members are empty, and all name one digest. A node
    /// that belongs to a cluster ignores it, with a warning; see deploy/RECOVERY.md#all-disks-are-lost
    #[arg(long, env = "RINGFENCE_RESTORE", value_name = "FILE|URL")]
    pub(super) restore: Option<PathBuf>,
    /// The digest of --restore, as `ringfence backup` printed it
    #[arg(long, env = "RINGFENCE_DIGEST", value_name = "DIGEST")]
    pub(super) digest: Option<String>,
    /// With --restore: rules in TOML, as `access apply` takes them, instead of those of the backup
    #[arg(long, env = "RINGFENCE_RULES", value_name = "FILE")]
    pub(super) rules: Option<PathBuf>,
    /// For how long a cluster that is formed grants nothing, since holders of an earlier one may still
    /// work; up to 24h. A restored one waits for its longest TTL at least; only --drill leaves it out [default: 0s]
    #[arg(long, env = "RINGFENCE_QUIET_TIME", value_name = "DURATION")]
    pub(super) quiet_time: Option<String>,
    /// With --restore: a rehearsal on loopback, with tokens from 1 and without quiet time; no store
    /// admits its tokens
    #[arg(
        long,
        env = "RINGFENCE_DRILL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub(super) drill: Option<bool>,
    /// The OpenTelemetry collector that traces and metrics are exported to by OTLP over gRPC: http:// or
    /// https://HOST:PORT. The variables OTEL_* that OPERATE.md lists count too [default: none]
    #[arg(long, env = "RINGFENCE_OTLP_ENDPOINT", value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,
    /// Which share of the traces that begin at this node is recorded; callers decide of theirs
    /// [default: 0.01]
    #[arg(long, env = "RINGFENCE_TRACE_SAMPLE", value_name = "0..1")]
    pub(super) trace_sample: Option<f64>,
}

impl Given {
    /// What is said here, completed by what `lower` says.
    pub(super) fn over(self, lower: Self) -> Self {
        fn list<T>(upper: Vec<T>, lower: Vec<T>) -> Vec<T> {
            if upper.is_empty() { lower } else { upper }
        }
        Self {
            name: self.name.or(lower.name),
            data_dir: self.data_dir.or(lower.data_dir),
            initial_cluster: list(self.initial_cluster, lower.initial_cluster),
            join: list(self.join, lower.join),
            listen_client: self.listen_client.or(lower.listen_client),
            listen_peer: self.listen_peer.or(lower.listen_peer),
            listen_http: self.listen_http.or(lower.listen_http),
            listen_lease_api: self.listen_lease_api.or(lower.listen_lease_api),
            lease_api_token_grace: self.lease_api_token_grace.or(lower.lease_api_token_grace),
            lease_api_single_process: list(
                self.lease_api_single_process,
                lower.lease_api_single_process,
            ),
            client_connections_max: self.client_connections_max.or(lower.client_connections_max),
            advertise_client: self.advertise_client.or(lower.advertise_client),
            advertise_peer: self.advertise_peer.or(lower.advertise_peer),
            cert_file: self.cert_file.or(lower.cert_file),
            key_file: self.key_file.or(lower.key_file),
            trusted_ca_file: self.trusted_ca_file.or(lower.trusted_ca_file),
            client_cert_auth: self.client_cert_auth.or(lower.client_cert_auth),
            http_cert_file: self.http_cert_file.or(lower.http_cert_file),
            http_key_file: self.http_key_file.or(lower.http_key_file),
            http_trusted_ca_file: self.http_trusted_ca_file.or(lower.http_trusted_ca_file),
            client_cert_principal: self.client_cert_principal.or(lower.client_cert_principal),
            jwt_issuer: list(self.jwt_issuer, lower.jwt_issuer),
            kube_pods_issuer: self.kube_pods_issuer.or(lower.kube_pods_issuer),
            cluster_secret_file: list(self.cluster_secret_file, lower.cluster_secret_file),
            peer_tls_mode: self.peer_tls_mode.or(lower.peer_tls_mode),
            peer_cert_file: self.peer_cert_file.or(lower.peer_cert_file),
            peer_key_file: self.peer_key_file.or(lower.peer_key_file),
            peer_trusted_ca_file: self.peer_trusted_ca_file.or(lower.peer_trusted_ca_file),
            peer_client_cert_auth: self.peer_client_cert_auth.or(lower.peer_client_cert_auth),
            peer_tls_name: list(self.peer_tls_name, lower.peer_tls_name),
            kube_mirror: self.kube_mirror.or(lower.kube_mirror),
            kube_pods: self.kube_pods.or(lower.kube_pods),
            kubeconfig: self.kubeconfig.or(lower.kubeconfig),
            kube_namespace: self.kube_namespace.or(lower.kube_namespace),
            kube_floors: self.kube_floors.or(lower.kube_floors),
            kube_prefix: self.kube_prefix.or(lower.kube_prefix),
            replace_on_data_loss: self.replace_on_data_loss.or(lower.replace_on_data_loss),
            join_as_voter: self.join_as_voter.or(lower.join_as_voter),
            kube_leave: self.kube_leave.or(lower.kube_leave),
            token_floor: self.token_floor.or(lower.token_floor),
            access: self.access.or(lower.access),
            allow_anonymous: self.allow_anonymous.or(lower.allow_anonymous),
            audit_log: self.audit_log.or(lower.audit_log),
            principal_requests_max: self.principal_requests_max.or(lower.principal_requests_max),
            principal_bytes_max: self.principal_bytes_max.or(lower.principal_bytes_max),
            principal_connections_max: self
                .principal_connections_max
                .or(lower.principal_connections_max),
            failed_proofs_max: self.failed_proofs_max.or(lower.failed_proofs_max),
            ttl_min: self.ttl_min.or(lower.ttl_min),
            ttl_max: self.ttl_max.or(lower.ttl_max),
            heartbeat_ms: self.heartbeat_ms.or(lower.heartbeat_ms),
            election_ms: self.election_ms.or(lower.election_ms),
            wal_segment_bytes: self.wal_segment_bytes.or(lower.wal_segment_bytes),
            snapshot_log_bytes: self.snapshot_log_bytes.or(lower.snapshot_log_bytes),
            worker_threads: self.worker_threads.or(lower.worker_threads),
            log: self.log.or(lower.log),
            log_format: self.log_format.or(lower.log_format),
            backup_dir: self.backup_dir.or(lower.backup_dir),
            backup_every: self.backup_every.or(lower.backup_every),
            backup_keep: self.backup_keep.or(lower.backup_keep),
            restore: self.restore.or(lower.restore),
            digest: self.digest.or(lower.digest),
            rules: self.rules.or(lower.rules),
            quiet_time: self.quiet_time.or(lower.quiet_time),
            drill: self.drill.or(lower.drill),
            otlp_endpoint: self.otlp_endpoint.or(lower.otlp_endpoint),
            trace_sample: self.trace_sample.or(lower.trace_sample),
        }
    }
}
