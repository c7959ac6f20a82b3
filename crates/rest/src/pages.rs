//! Which web pages may ask: the console, and no other.

use std::net::Ipv4Addr;

use http::header::{ACCEPT_LANGUAGE, HOST, HeaderName, HeaderValue, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Response, StatusCode, Uri};
use ringfence_proto::Refusal;
use ringfence_services::problem::problem_as;
use serde_json::Map;
use tonic::body::Body;

use crate::heads::values;

const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Web pages are refused: a page of any site could have the browser of a developer or operator call
/// a node that this machine reaches, and a node without rights would answer.
///
/// Of a page whose own name leads to the node (DNS rebinding) a browser says neither `Origin` nor
/// `Sec-Fetch-Site` if it reads, without TLS. It does say which languages it accepts, and a page can
/// change what it says but not leave it out. Programs hardly ever say it. Node.js does, and says
/// `Sec-Fetch-Mode` as well, which no page can set and no browser says without `Sec-Fetch-Site`.
///
/// # Errors
/// What is allowed in place of it; nothing was done.
pub fn refuse_page(headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let names_languages = || headers.contains_key(ACCEPT_LANGUAGE) && !headers.contains_key(MODE);
    let is_rebound = || names_languages() && has_a_public_name(headers, uri);
    let by_a_page =
        headers.contains_key(ORIGIN) || site.map_or_else(is_rebound, |site| site != b"none");
    if !by_a_page {
        return Ok(());
    }
    let allowed = "requests of programs; a page's server has to ask for it";
    Err(Refusal::invalid(
        "Origin",
        "a request of a web page",
        allowed,
    ))
}

/// The answer to a web page. The console is the one page that may ask, where [`admit_console`] has
/// looked.
pub(crate) fn by_a_page(head: &Parts) -> Option<Response<Body>> {
    if head.extensions.get::<ByConsole>().is_some() {
        return None;
    }
    let refusal = refuse_page(&head.headers, &head.uri).err()?;
    Some(problem_as(StatusCode::FORBIDDEN, &refusal, Map::new()))
}

/// Marks a request of the console, which [`admit_console`] has looked at.
#[derive(Clone, Copy, Debug)]
struct ByConsole;

/// The header of each request of the console. A page of another site can set it only after the browser
/// has asked the node, which allows it to no site.
pub const CONSOLE_HEADER: HeaderName = HeaderName::from_static("ringfence-console");

/// Lets the console read: a page that this node has served itself. `is_proven` says whether the request
/// came by TLS, or with a credential that holds.
///
/// A page of another site is refused by the header that it cannot set, and by what a browser says of it.
/// A page whose own name leads to the node (DNS rebinding) looks like the console. It has no
/// credential and no certificate for its name: so a name that a site of the Internet could have
/// needs TLS or a credential.
///
/// # Errors
/// What such a request lacks.
pub fn admit_console(head: &mut Parts, is_proven: bool) -> Result<(), Refusal> {
    let headers = &head.headers;
    let is_own = || {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        site.is_none_or(|site| site == b"same-origin")
    };
    let has_header = || headers.contains_key(CONSOLE_HEADER);
    if !has_header() || headers.contains_key(ORIGIN) || !is_own() {
        let allowed = "a request of the console that this node serves at /console/; programs read at \
                       the client port, see /v1/openapi.json there";
        return Err(Refusal::invalid("Origin", "another request", allowed));
    }
    if !is_proven && has_a_public_name(&head.headers, &head.uri) {
        let allowed = "a token, TLS (--http-cert-file), or an address or a name without dots in place \
                       of this name, since a page of a site with this name would look the same";
        return Err(Refusal::invalid(
            "Host",
            "a name of the Internet, or one that cannot be read, without TLS and without a credential \
             that holds",
            allowed,
        ));
    }
    head.extensions.insert(ByConsole);
    Ok(())
}

/// Whether a site of the Internet could have this name: no address, no name of this machine, and no
/// name without a dot. One that cannot be read could be any: a browser may resolve what this does not
/// understand. A request that names several hosts has such a name if one of them is.
fn has_a_public_name(headers: &HeaderMap, uri: &Uri) -> bool {
    let named = values(headers, &HOST).filter(|host| !host.is_empty());
    let named = named.map(|host| Authority::try_from(host.as_bytes()).ok());
    let asked = uri.authority().cloned().map(Some);
    named.chain(asked).any(|host| host.is_none_or(is_public))
}

fn is_public(host: Authority) -> bool {
    let host = host.host().to_ascii_lowercase();
    let is_here = host == "localhost" || host.ends_with(".localhost");
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    host.contains('.') && !is_address && !is_here
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::tests::head;

    #[test]
    fn a_browser_under_a_public_name_is_a_page_and_a_program_or_an_address_is_none() {
        let languages = ("accept-language", "en");
        for host in [
            "evil.example",
            "Evil.Example:7420",
            "127.0.0.1.evil.example",
            "10.0.0.1.",
            "u@a.b",
            // What is not understood here may lead a browser here all the same.
            "evil.example:7420:1",
            "evil example",
            "[::1",
            "127.0.0.1/",
        ] {
            assert!(
                by_a_page(&head(&[("host", host), languages])).is_some(),
                "{host}"
            );
            assert!(by_a_page(&head(&[("host", host)])).is_none(), "{host}");
            let any = [("host", host), ("accept-language", "*")];
            assert!(by_a_page(&head(&any)).is_some(), "{host}");
            let node_js = [any[0], any[1], ("sec-fetch-mode", "cors")];
            assert!(by_a_page(&head(&node_js)).is_none(), "{host}");
            let typed = [("host", host), languages, ("sec-fetch-site", "none")];
            assert!(by_a_page(&head(&typed)).is_none(), "{host}");
        }
        for host in [
            "127.0.0.1:7420",
            "[::1]:7420",
            "localhost:7420",
            "a.localhost",
            "node",
            "node:7420",
            "",
        ] {
            assert!(
                by_a_page(&head(&[("host", host), languages])).is_none(),
                "{host}"
            );
        }
    }

    #[test]
    fn the_console_reads_and_a_page_that_looks_like_it_needs_tls_or_a_credential() {
        let own = ("ringfence-console", "1");
        let may = |headers: &[(&str, &str)], is_proven| {
            let mut head = head(headers);
            let admitted = admit_console(&mut head, is_proven).is_ok();
            assert_eq!(by_a_page(&head).is_none() && admitted, admitted);
            admitted
        };
        let here = ("host", "127.0.0.1:7422");
        let same = ("sec-fetch-site", "same-origin");
        assert!(may(&[here, own, same], false));
        assert!(may(&[here, own], false));
        assert!(!may(&[here, same], false), "without the header");
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(
                !may(&[here, own, ("sec-fetch-site", site)], false),
                "{site}"
            );
        }
        let other = ("origin", "http://evil.example");
        assert!(!may(&[here, own, other], true));

        let rebound = ("host", "evil.example:7422");
        assert!(!may(&[rebound, own, same], false));
        let token = ("authorization", "Bearer rft_1_x");
        assert!(
            !may(&[rebound, own, same, token], false),
            "it proves nothing"
        );
        assert!(may(&[rebound, own, same], true));

        for host in ["evil.example:7422:1", "evil example", "[::1"] {
            assert!(!may(&[("host", host), own, same], false), "{host}");
            assert!(may(&[("host", host), own, same], true), "{host}");
        }
        assert!(!may(&[here, rebound, own, same], false), "two hosts");
    }
}
