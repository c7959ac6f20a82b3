//! How a write carries its fence, `LEASE#TOKEN`.

use super::refusal::Unsent;
use super::request::is_connection;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri, request};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kube::api::{Api, PostParams};

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
/// The key, with the one character escaped that no header may have.
const IMPERSONATE_EXTRA: HeaderName =
    HeaderName::from_static("impersonate-extra-ringfence.io%2ffence");

/// The content type of server-side apply.
const APPLY: &str = "application/apply-patch";

/// How writes carry their fence; the policies have to be printed for the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// In the user's extra attributes, by impersonating oneself. It goes with every kind of write,
    /// deletions, evictions, scaling and connections (exec, attach, portforward, proxy) among them, and needs the right to impersonate the own
    /// service account with this one attribute.
    Impersonate {
        /// The own user, `system:serviceaccount:NAMESPACE:NAME`.
        user: String,
    },
    /// As the name of the field manager: for creates, updates, patches and scaling. It
    /// replaces the caller's field manager. Deletions and connections carry nothing, and server-side apply is not
    /// sent: there the field manager says who owns a field.
    FieldManager,
    /// In an annotation of the object, with a number that grows from write to write: for creates,
    /// updates, patches and server-side apply of whole objects. Scaling, evictions and connections
    /// carry nothing,
    /// and a deletion is judged only by the version of the object that it names.
    Sequence,
    /// As [`Carrier::Sequence`], with the token as the object's mark beside: for policies that were
    /// printed with `--without-mutation`, as Kubernetes below 1.36 needs them. Policies that write
    /// the mark themselves admit it, too.
    SequenceWithMark,
}

impl Carrier {
    /// [`Carrier::Impersonate`] of this user; [`own_user`] finds out.
    #[must_use]
    pub fn impersonate(user: impl Into<String>) -> Self {
        Self::Impersonate { user: user.into() }
    }

    /// Puts a fence on the head of a write.
    pub(super) fn put(&self, parts: &mut request::Parts, fence: &str) -> Result<(), Unsent> {
        match self {
            Self::Impersonate { user } => {
                let name = HeaderValue::from_str(user);
                let name = name.map_err(|_| Unsent::user(user))?;
                parts.headers.insert(IMPERSONATE_USER, name);
                let fence = HeaderValue::from_str(fence);
                let fence = fence.expect("a lease name is visible ASCII");
                parts.headers.insert(IMPERSONATE_EXTRA, fence);
                Ok(())
            }
            Self::FieldManager if parts.method == Method::DELETE || is_connection(parts) => Ok(()),
            Self::FieldManager if is_apply(parts) => Err(Unsent::Apply),
            Self::FieldManager => {
                parts.uri = with_field_manager(&parts.uri, fence);
                Ok(())
            }
            Self::Sequence | Self::SequenceWithMark => Ok(()),
        }
    }
}

pub(super) fn is_apply(parts: &request::Parts) -> bool {
    let content = parts.headers.get(CONTENT_TYPE);
    content.is_some_and(|content| content.as_bytes().starts_with(APPLY.as_bytes()))
}

/// Sets one parameter of the query, and leaves the others as they are.
fn with_field_manager(uri: &Uri, fence: &str) -> Uri {
    let others = uri.query().unwrap_or_default().split('&');
    let others = others.filter(|one| !one.is_empty() && !one.starts_with("fieldManager="));
    // The one character of a fence that would end the query.
    let manager = format!("fieldManager={}", fence.replace('#', "%23"));
    let query: Vec<&str> = others.chain([manager.as_str()]).collect();
    let path = format!("{}?{}", uri.path(), query.join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(path).ok();
    // A path with a query of visible characters more is as good as before.
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Who a client is to the API server, for [`Carrier::impersonate`].
///
/// # Errors
/// Whatever the API server refuses it with, or keeps it from answering.
pub async fn own_user(client: &Client) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let asked = SelfSubjectReview::default();
    let told = reviews.create(&PostParams::default(), &asked).await?;
    let user = told.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const FENCE: &str = "k8s/demo/leader#1048577";

    fn put(carrier: &Carrier, request: request::Builder) -> Result<request::Parts, Unsent> {
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        carrier.put(&mut parts, FENCE)?;
        Ok(parts)
    }

    #[test]
    fn the_fence_goes_with_the_user_whom_one_impersonates() {
        let carrier = Carrier::impersonate("system:serviceaccount:demo:worker");
        let parts = put(&carrier, Request::delete("/api/v1/namespaces/a/pods/b")).unwrap();
        assert_eq!(
            parts.headers[IMPERSONATE_USER],
            "system:serviceaccount:demo:worker"
        );
        assert_eq!(parts.headers[IMPERSONATE_EXTRA], FENCE);
        assert_eq!(parts.uri, "/api/v1/namespaces/a/pods/b");
    }

    #[test]
    fn a_user_that_no_header_can_carry_is_not_sent() {
        let refused = put(&Carrier::impersonate("a\nb"), Request::post("/"));
        assert!(matches!(refused, Err(Unsent::User(_))));
    }

    #[test]
    fn the_fence_is_the_field_manager_and_the_only_one() {
        for (given, expected) in [
            ("/a", "/a?fieldManager=k8s/demo/leader%231048577"),
            ("/a?", "/a?fieldManager=k8s/demo/leader%231048577"),
            (
                "/a?&dryRun=All",
                "/a?dryRun=All&fieldManager=k8s/demo/leader%231048577",
            ),
            (
                "/a?&fieldManager=me&force=true",
                "/a?force=true&fieldManager=k8s/demo/leader%231048577",
            ),
        ] {
            let parts = put(&Carrier::FieldManager, Request::patch(given)).unwrap();
            assert_eq!(parts.uri, expected);
        }
        let whole = Request::put("https://127.0.0.1:6443/a");
        let parts = put(&Carrier::FieldManager, whole).unwrap();
        let expected = "https://127.0.0.1:6443/a?fieldManager=k8s/demo/leader%231048577";
        assert_eq!(parts.uri, expected);
    }

    #[test]
    fn a_field_manager_cannot_be_replaced_where_it_owns_fields() {
        let apply = Request::patch("/a?fieldManager=me");
        let apply = apply.header(CONTENT_TYPE, "application/apply-patch+yaml");
        let refused = put(&Carrier::FieldManager, apply);
        assert!(matches!(refused, Err(Unsent::Apply)));
    }
}
