//! In which form an answer is wanted: the header `Accept`.

use crate::status::Failure;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Objects as JSON.
    Json,
    /// A Table of `meta.k8s.io/v1` as JSON, for people.
    Table,
}

/// The one type of every answer.
pub const CONTENT_TYPE: &str = "application/json";

/// The form that the client likes best of those that are here; JSON if it says nothing. `tables`:
/// whether the answer can be a Table. 406 if it takes none of them.
pub fn form(accept: Option<&str>, tables: bool) -> Result<Form, Failure> {
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
        return Ok(Form::Json);
    };
    let mut best: Option<(u32, Form)> = None;
    for range in accept.split(',') {
        let Some((weight, form)) = read(range, tables) else {
            continue;
        };
        // Of equals the first counts.
        if weight > 0 && best.is_none_or(|(heaviest, _)| weight > heaviest) {
            best = Some((weight, form));
        }
    }
    let form = best.map(|(_, form)| form);
    form.ok_or_else(|| Failure::not_acceptable(&[CONTENT_TYPE]))
}

/// One range with its weight in thousandths; `None` if nothing here fits it.
fn read(range: &str, tables: bool) -> Option<(u32, Form)> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    if !matches!(media.as_str(), "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut kind, mut group, mut version) = ("", "", "");
    let mut weight = 1_000;
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim().trim_matches('"');
        match name.trim() {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            "q" => weight = thousandths(value)?,
            _ => {}
        }
    }
    match (kind, group, version) {
        ("", _, _) => Some((weight, Form::Json)),
        ("Table", "meta.k8s.io", "v1") if tables => Some((weight, Form::Table)),
        _ => None,
    }
}

/// `0` to `1` with at most three decimals.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let fine = matches!(whole, "0" | "1") && decimals.len() <= 3;
    let digits = decimals.bytes().all(|byte| byte.is_ascii_digit());
    if !fine || !digits {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let decimals: u32 = format!("{decimals:0<3}").parse().ok()?;
    Some((whole * 1_000 + decimals).min(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                           application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    #[test]
    fn clients_get_what_they_take() {
        let json = |accept| assert_eq!(form(accept, true), Ok(Form::Json), "{accept:?}");
        json(None);
        json(Some(""));
        json(Some("*/*"));
        json(Some("application/vnd.kubernetes.protobuf,application/json"));
        json(Some(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
        ));
        json(Some("application/json;stream=watch"));
        json(Some(
            "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1,application/json;q=0.2",
        ));
        assert_eq!(form(Some(KUBECTL), true), Ok(Form::Table));
        assert_eq!(form(Some(KUBECTL), false), Ok(Form::Json));
    }

    #[test]
    fn a_client_that_takes_no_json_is_refused() {
        for accept in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/json;q=0",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            ";;=,",
        ] {
            assert_eq!(
                form(Some(accept), true).unwrap_err().code(),
                406,
                "{accept}"
            );
        }
    }
}
