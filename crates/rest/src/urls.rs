//! Session handles in a URL: refused before anything else is looked at, since a URL ends up in the
//! logs of proxies, and a refusal that repeats it in those of callers.

use http::Uri;
use ringfence_proto::Refusal;
use ringfence_proto::v1::Reason;

use crate::handle;
use crate::query::decoded;

/// The fields of bodies that hold a secret.
const SECRETS: [&str; 2] = ["session", "secret"];

/// That no secret stands in this URL: no handle as a whole segment of its path, as a parameter or in
/// one, and no parameter that is to hold one.
pub(crate) fn without_secrets(uri: &Uri) -> Result<(), Refusal> {
    let query = uri.query().unwrap_or_default();
    let names = query
        .split('&')
        .filter_map(|part| part.split('=').next().map(plain));
    let parts = uri.path().split('/').chain(query.split(['&', '=']));
    let mut parts = parts.map(plain);
    let is_secret = |text: &str| text.split('/').any(|part| handle::parse(part).is_ok());
    if parts.any(|part| is_secret(&part)) || names.into_iter().any(is_name_of_one) {
        return Err(refused());
    }
    Ok(())
}

/// The path of a URL, for a trace; `None` if there is a secret in the URL.
#[must_use]
pub fn path_to_show(uri: &Uri) -> Option<&str> {
    without_secrets(uri).ok().map(|()| uri.path())
}

fn is_name_of_one(name: String) -> bool {
    SECRETS.contains(&name.as_str())
}

/// A part of a URL as its reader takes it.
fn plain(raw: &str) -> String {
    decoded(raw, "URL").unwrap_or_else(|_| raw.to_owned())
}

fn refused() -> Refusal {
    let message = "session: it stands in the URL, and URLs end up in logs; send a handle in the body \
                   of a POST alone, and close a session whose handle may have been logged";
    Refusal::new(Reason::InvalidArgument, message)
        .with("field", "session")
        .with("offered", "a handle in the URL")
        .with("allowed", "a handle in a body")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_refused_wherever_it_stands_in_a_url_and_never_repeated() {
        let secret = "0b0102030405060708090a0b0c0d0e0f";
        for url in [
            "/v1/leases/17.SECRET",
            "/v1/nothing/17.SECRET/x",
            "/v1/leases/jobs%2F17.SECRET",
            "/v1/leases/1%37%2eSECRET",
            "/v1/leases?17.SECRET",
            "/v1/leases?17.SECRET=x",
            "/v1/leases?prefix=17.SECRET",
            "/v1/leases?prefix=jobs/17.SECRET",
            "/v1/leases?session=1",
            "/v1/leases?limit=1&%73ession=x",
            "/v1/sessions?secret=SECRET",
        ] {
            let uri: Uri = url.replace("SECRET", secret).parse().unwrap();
            let refused = format!("{:?}", without_secrets(&uri).unwrap_err());
            assert!(!refused.contains(secret), "{refused}");
        }
        for url in [
            "/v1/leases/bank/x",
            "/v1/leases/v1.SECRET",
            "/v1/leases/SECRET",
            "/v1/leases/17.SECRET0",
            "/v1/leases?prefix=session",
            "/v1/watch?from=SECRET.8.0.1",
            "/v1/leases/%ff",
        ] {
            let uri: Uri = url.replace("SECRET", secret).parse().unwrap();
            without_secrets(&uri).unwrap();
        }
    }
}
