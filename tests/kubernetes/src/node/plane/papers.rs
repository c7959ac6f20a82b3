//! Certificates, tokens and kubeconfigs of one run.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
};

use super::{API_PORT, NODE};
use crate::inside::ADDRESS;

/// The names by which Pods, the node and this process reach the API server; the second is the first
/// address of Services.
const SERVER_NAMES: [&str; 7] = [
    ADDRESS,
    "10.0.0.1",
    "127.0.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Who speaks to the API server, under which name and in which group.
pub(super) const WHO: [(&str, &str, &str); 5] = [
    ("admin", "admin", "system:masters"),
    ("manager", "manager", "system:masters"),
    ("scheduler", "system:kube-scheduler", "system:authenticated"),
    ("names", "names", "system:masters"),
    ("node", "system:node:node", "system:nodes"),
];

/// A folder of them.
pub(super) struct Papers(PathBuf);

impl Papers {
    /// Makes them.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let made = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(made)?;
        let own = Self(folder.to_owned());
        own.certificates().map_err(|error| error.to_string())?;
        assert_eq!(
            WHO[4].1,
            format!("system:node:{NODE}"),
            "the node has its name"
        );
        let tokens =
            WHO.map(|(who, name, group)| format!("{who}-token,{name},{who},\"{group}\"\n"));
        own.write("tokens.csv", &tokens.concat());
        for (who, _, _) in WHO {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
                 clusters: [{{name: it, cluster: {{server: 'https://{ADDRESS}:{API_PORT}', certificate-authority: '{}'}}}}]\n\
                 users: [{{name: it, user: {{token: {who}-token}}}}]\n\
                 contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n",
                own.file("ca.crt")
            );
            own.write(&format!("{who}.kubeconfig"), &text);
        }
        Ok(own)
    }

    fn certificates(&self) -> Result<(), rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = key()?;
        self.write("ca.crt", &authority.self_signed(&authority_key)?.pem());
        let issuer = Issuer::new(authority, authority_key);

        let names = SERVER_NAMES.map(str::to_owned).to_vec();
        let server_key = key()?;
        let server = CertificateParams::new(names)?.signed_by(&server_key, &issuer)?;
        self.write("server.crt", &server.pem());
        self.write("server.key", &server_key.serialize_pem());

        // The API server calls the kubelet for logs and for commands in Pods.
        let mut caller = CertificateParams::new(Vec::new())?;
        let name = &mut caller.distinguished_name;
        name.push(DnType::CommonName, "kube-apiserver");
        name.push(DnType::OrganizationName, "system:masters");
        let caller_key = key()?;
        let signed = caller.signed_by(&caller_key, &issuer)?;
        self.write("caller.crt", &signed.pem());
        self.write("caller.key", &caller_key.serialize_pem());

        let accounts = key()?;
        self.write("accounts.pub", &accounts.public_key_pem());
        self.write("accounts.key", &accounts.serialize_pem());
        Ok(())
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a folder that was just made can be written");
    }

    /// The path of one.
    pub(super) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The kubeconfig of one user.
    pub(super) fn kubeconfig(&self, who: &str) -> PathBuf {
        self.0.join(format!("{who}.kubeconfig"))
    }
}

fn key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}
