//! Paged lists: one page of raw objects at a time, so that a damaged object does not hide the
//! others and the peak of memory is a page, not the cluster.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Client, Request};
use super::error::Error;
use super::wire;
use crate::model::foreign::ForeignText;

/// Objects per page; keeps the peak near the resident size (a page of pods is below 1 MiB).
pub(super) const PAGE: usize = 100;
/// Pages per list: two million objects, which no etcd holds. Stops a server that always has more.
const MAX_PAGES: usize = 20_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    token: Option<String>,
}

/// What is listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing<'a> {
    /// Plural resource.
    pub(super) kind: &'static str,
    /// `/api/v1/pods`.
    pub(super) path: &'a str,
    /// A field selector, or nothing.
    pub(super) field_selector: &'a str,
}

impl Client {
    /// Lists everything, consistently (no `resourceVersion`: not from a cache that lags), calling
    /// `each` for every object. Returns the list's resourceVersion.
    pub(super) async fn list(
        &self,
        listing: Listing<'_>,
        mut each: impl FnMut(&RawValue),
    ) -> Result<String, Error> {
        let mut token = String::new();
        for _ in 0..MAX_PAGES {
            let mut request = Request::new("list", listing.kind, "", listing.path.to_owned())
                .query("limit", PAGE.to_string());
            if !listing.field_selector.is_empty() {
                request = request.query("fieldSelector", listing.field_selector);
            }
            if !token.is_empty() {
                request = request.query("continue", token.as_str());
            }
            let call = request.call.clone();
            let reply = self.call(request).await?;
            let page: Page<'_> =
                serde_json::from_slice(&reply.body).map_err(|error| Error::Unknown {
                    call: call.clone(),
                    code: None,
                    message: format!("the list cannot be read: {error}").into(),
                })?;
            for item in page.items.iter().flatten() {
                each(item);
            }
            match page.metadata.token.filter(|token| !token.is_empty()) {
                Some(next) => token = next,
                None => return Ok(page.metadata.resource_version.unwrap_or_default()),
            }
        }
        Err(Error::Unknown {
            call: Request::new("list", listing.kind, "", String::new()).call,
            code: None,
            message: format!("the list did not end after {MAX_PAGES} pages").into(),
        })
    }
}

/// Reads one object; an error is a sentence that names it.
pub(super) fn object<T: serde::de::DeserializeOwned>(raw: &RawValue) -> Result<T, Unreadable> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let bare: wire::Bare = serde_json::from_str(raw.get()).unwrap_or_default();
        Unreadable {
            message: error.to_string().into(),
            meta: Box::new(bare.metadata),
        }
    })
}

/// An object that could not be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) message: ForeignText,
    /// Its metadata where at least that could be read.
    pub(super) meta: Box<wire::Meta>,
}
