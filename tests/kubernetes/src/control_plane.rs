//! etcd and an API server, started and stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ringfence_testkit::ports::Port;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::Mutex;

use crate::binaries;
use crate::certificates::Certificates;
use crate::janitor::Janitor;
use crate::process::Process;

/// How long a start may take; four seconds on a machine that does nothing else.
const START_MAX: Duration = Duration::from_secs(180);

/// Who speaks to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// The service account `ringfence` in the namespace `ringfence`: may do what a role gives it.
    Ringfence,
    /// The service account `default` in the namespace `default`: may do what a role gives it.
    Default,
}

impl User {
    const ALL: [Self; 3] = [Self::Admin, Self::Ringfence, Self::Default];

    fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin-token",
            Self::Ringfence => "ringfence-token",
            Self::Default => "default-token",
        }
    }

    /// The name under which roles know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Ringfence => "system:serviceaccount:ringfence:ringfence",
            Self::Default => "system:serviceaccount:default:default",
        }
    }

    /// The namespace of its service account.
    fn namespace(self) -> &'static str {
        match self {
            Self::Ringfence => "ringfence",
            Self::Admin | Self::Default => "default",
        }
    }

    /// A line of the API server's table of tokens.
    fn line(self) -> String {
        let groups = match self {
            Self::Admin => "system:masters",
            Self::Ringfence => "system:serviceaccounts,system:serviceaccounts:ringfence",
            Self::Default => "system:serviceaccounts,system:serviceaccounts:default",
        };
        format!(
            "{},{},{},\"{groups}\"\n",
            self.token(),
            self.name(),
            self.name()
        )
    }
}

/// A control plane; it ends with this value.
pub struct ControlPlane {
    // In the order in which they end: an API server without its etcd takes long.
    controllers: Option<Process>,
    api_server: Option<Process>,
    etcd: Process,
    janitor: Janitor,
    certificates: Certificates,
    binaries: PathBuf,
    api_server_program: PathBuf,
    ports: [Port; 3],
}

impl ControlPlane {
    /// The one that all tests of this process share, and that ends with the process; `None` if there
    /// is no Kubernetes here, which is printed. Each test takes a [namespace](Self::namespace) of
    /// its own.
    pub async fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Option<Arc<ControlPlane>>> = Mutex::const_new(None);
        let mut shared = SHARED.lock().await;
        if shared.is_none() {
            *shared = Some(Arc::new(Self::start().await?));
        }
        shared.clone()
    }

    /// One of its own, to be mistreated; `None` if there is no Kubernetes here, which is printed.
    ///
    /// # Panics
    /// If it is not ready in time.
    pub async fn start() -> Option<Self> {
        // It may have to be built first.
        let found = tokio::task::spawn_blocking(|| {
            let folder = binaries::folder()?;
            Some((folder.to_owned(), binaries::api_server(folder)?))
        });
        let found = found.await.expect("the search for binaries ends");
        let (binaries, api_server_program) = found?;
        let folder = tempfile::Builder::new()
            .prefix("ringfence-kubernetes-")
            .tempdir();
        let folder = folder.expect("a temporary folder can be made").keep();
        let mut janitor = Janitor::of(folder);
        let certificates = Certificates::make(janitor.folder()).expect("certificates can be made");
        let tokens: String = User::ALL.map(User::line).concat();
        fs::write(janitor.folder().join("tokens.csv"), tokens).expect("a folder of our own");

        let ports = [Port::any(), Port::any(), Port::any()];
        let log = janitor.folder().join("etcd.log");
        let arguments = etcd_arguments(janitor.folder(), &ports);
        let etcd = Process::start(&binaries.join("etcd"), &arguments, log);
        janitor.watch_over(etcd.id());
        let mut plane = Self {
            api_server: None,
            controllers: None,
            etcd,
            janitor,
            certificates,
            binaries,
            api_server_program,
            ports,
        };
        plane.start_api_server().await;
        // Where the floors of fenced leases stand.
        plane.make_namespace(User::Ringfence.namespace()).await;
        Some(plane)
    }

    /// Starts the API server, at the address that it always has, and waits until it is ready.
    ///
    /// # Panics
    /// If it runs already, or is not ready in time.
    pub async fn start_api_server(&mut self) {
        assert!(self.api_server.is_none(), "the API server runs already");
        let log = self.janitor.folder().join("kube-apiserver.log");
        let arguments = self.api_server_arguments(&self.ports[2]);
        let api_server = Process::start(&self.api_server_program, &arguments, log);
        self.janitor.watch_over(api_server.id());
        self.api_server = Some(api_server);
        let ready = tokio::time::timeout(START_MAX, self.wait_until_ready()).await;
        if ready.is_err() {
            panic!("not ready within {START_MAX:?}\n{}", self.last_lines());
        }
    }

    /// Starts another API server on the same etcd, as control planes without a single point of
    /// failure have it.
    ///
    /// # Panics
    /// If it is not ready in time.
    pub async fn second_api_server(&mut self) -> SecondApiServer {
        let port = Port::any();
        let log = self.janitor.folder().join("second-kube-apiserver.log");
        let process = Process::start(
            &self.api_server_program,
            &self.api_server_arguments(&port),
            log,
        );
        self.janitor.watch_over(process.id());
        let second = SecondApiServer { process, port };
        let client = self.client_at(User::Admin, &second.address()).await;
        let ready = async {
            while !answers(&client).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(START_MAX, ready).await.is_err() {
            panic!(
                "not ready within {START_MAX:?}\n{}",
                second.process.last_lines()
            );
        }
        second
    }

    /// Ends the API server at once, as a power cut would.
    pub fn kill_api_server(&mut self) {
        // Dropped, it is killed and waited for.
        drop(self.api_server.take());
    }

    /// Stops the API server where it stands: connections stay open, and nothing is answered.
    pub fn pause_api_server(&self) {
        self.signal_api_server(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume_api_server(&self) {
        self.signal_api_server(Signal::CONT);
    }

    fn signal_api_server(&self, signal: Signal) {
        if let Some(api_server) = &self.api_server {
            api_server.signal(signal);
        }
    }

    /// A client for a user.
    ///
    /// # Panics
    /// If it cannot be made of what was made here.
    pub async fn client(&self, user: User) -> Client {
        Client::try_from(self.config(user).await).expect("the configuration is whole")
    }

    /// The same by the API server at this address.
    ///
    /// # Panics
    /// If it cannot be made of what was made here.
    pub async fn client_at(&self, user: User, address: &str) -> Client {
        let config = self.config_at(user, address).await;
        Client::try_from(config).expect("the configuration is whole")
    }

    /// What a client of a user is made of.
    ///
    /// # Panics
    /// If the kubeconfig made here is none.
    pub async fn config(&self, user: User) -> Config {
        self.config_at(user, &self.address()).await
    }

    async fn config_at(&self, user: User, address: &str) -> Config {
        let text = self.kubeconfig_text(user, address);
        let kubeconfig = Kubeconfig::from_yaml(&text).expect("it was made here");
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("it was made here")
    }

    /// Where the API server is reached, as `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[2].number())
    }

    /// A kubeconfig of a user as a file, in which the API server is at `address`.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn kubeconfig(&self, user: User, address: &str) -> PathBuf {
        let name = format!("{}-{}.kubeconfig", user.token(), address.replace(':', "-"));
        let path = self.janitor.folder().join(&name);
        // Another test's kubectl may be reading it: a file that is half written names no server.
        static HALVES: AtomicUsize = AtomicUsize::new(0);
        let half = HALVES.fetch_add(1, Ordering::Relaxed);
        let half = self.janitor.folder().join(format!("{name}.{half}"));
        fs::write(&half, self.kubeconfig_text(user, address)).expect("a folder of our own");
        fs::rename(&half, &path).expect("a folder of our own");
        path
    }

    fn kubeconfig_text(&self, user: User, address: &str) -> String {
        let authority = base64(self.certificates.authority.as_bytes());
        // JSON is YAML.
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": authority,
            }}],
            "users": [{"name": "test", "user": {"token": user.token()}}],
        })
        .to_string()
    }

    /// Starts the controllers of namespaces: only with them is a namespace ever gone. They end with the
    /// control plane. `None` where the components lie in a folder without them, which is printed.
    pub fn start_namespace_controller(&mut self) -> Option<()> {
        let program = self.binaries.join("kube-controller-manager");
        if !program.is_file() {
            eprintln!("\nNOT TESTED: no kube-controller-manager beside the API server\n");
            return None;
        }
        let kubeconfig = self.kubeconfig(User::Admin, &self.address());
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--controllers=namespace-controller".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let log = self.janitor.folder().join("kube-controller-manager.log");
        let process = Process::start(&program, &arguments, log);
        self.janitor.watch_over(process.id());
        self.controllers = Some(process);
        Some(())
    }

    /// A new namespace with a name that begins so.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn namespace(&self, begins: &str) -> String {
        let api: Api<Namespace> = Api::all(self.client(User::Admin).await);
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{begins}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = api.create(&PostParams::default(), &namespace).await;
        let made = made.expect("an admin can make a namespace");
        made.metadata.name.expect("it was given one")
    }

    /// A namespace of this name, if there is none yet.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn make_namespace(&self, name: &str) {
        let api: Api<Namespace> = Api::all(self.client(User::Admin).await);
        // As `kubectl apply` leaves it, so that a test which applies it hears no warning.
        let applied = json!({"apiVersion": "v1", "kind": "Namespace",
                             "metadata": {"annotations": {}, "name": name}});
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                annotations: Some([(key.to_owned(), applied.to_string())].into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = api.create(&PostParams::default(), &namespace).await;
        match made {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made.expect("an admin can make a namespace")),
        }
    }

    async fn wait_until_ready(&mut self) {
        let client = self.client(User::Admin).await;
        loop {
            if answers(&client).await {
                return;
            }
            let api_server = self.api_server.as_mut().and_then(Process::ended);
            if let Some(how) = api_server.or_else(|| self.etcd.ended()) {
                panic!("a component has ended: {how}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn last_lines(&self) -> String {
        let etcd = self.etcd.last_lines();
        let api_server = self.api_server.as_ref().map(Process::last_lines);
        format!(
            "--- etcd\n{etcd}\n--- kube-apiserver\n{}",
            api_server.unwrap_or_default()
        )
    }

    fn api_server_arguments(&self, port: &Port) -> Vec<String> {
        let certificates = &self.certificates;
        let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
        vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports[0].number()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            file("cert-dir", self.janitor.folder()),
            file("tls-cert-file", &certificates.server),
            file("tls-private-key-file", &certificates.server_key),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            file("service-account-key-file", &certificates.accounts),
            file(
                "service-account-signing-key-file",
                &certificates.accounts_key,
            ),
            file("token-auth-file", &self.janitor.folder().join("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // It waits for the controller that makes accounts, which need not run here.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ]
    }
}

/// An API server beside the first; it ends with this value.
pub struct SecondApiServer {
    process: Process,
    port: Port,
}

impl SecondApiServer {
    /// Where it is reached, as `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// Stops it where it stands: connections stay open, and nothing is answered.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }
}

/// Whether an API server is ready, and lets an admin do what roles allow: it may say the one before
/// the other.
async fn answers(client: &Client) -> bool {
    let probe = http::Request::get("/readyz").body(Vec::new());
    let asked = client.request_text(probe.expect("a constant request"));
    let ready = tokio::time::timeout(Duration::from_secs(5), asked).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    matches!(ready, Ok(Ok(_))) && matches!(namespaces.get_opt("default").await, Ok(Some(_)))
}

fn etcd_arguments(folder: &Path, [client, peer, _]: &[Port; 3]) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", client.number());
    let peer = format!("http://127.0.0.1:{}", peer.number());
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // No test is about the loss of power.
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// What a kubeconfig carries certificates in.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let digit = (bits >> (18 - 6 * place)) as usize & 63;
            let used = place <= chunk.len();
            text.push(if used { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_as_everybody_writes_it() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
