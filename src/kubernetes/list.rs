//! Paged lists: one page of raw objects at a time, so that a damaged object does not hide the
//! others and the peak of memory is a page, not the cluster. A page has a bound in bytes too, which
//! objects of any size keep.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{KubeClient, KubeReply, KubeRequest, MAX_BODY};
use super::error::KubeError;
use super::wire;
use crate::model::foreign::ForeignText;

/// Objects per page at most; keeps the peak near the resident size (a page of pods is mostly below 1 MiB).
pub(super) const PAGE: usize = 100;
/// Pages per list: 20,000 objects of the largest size, two million of a usual one; no etcd holds either.
/// Stops a server that always has more.
const MAX_PAGES: usize = 20_000;
/// A list that is told 410 in its middle is begun anew, so often in all: the API server keeps a version
/// for five minutes at least.
const MAX_TRIES: u32 = 3;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListPage<'a> {
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

/// One object of a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListItem<'r> {
    /// The whole object.
    Whole(&'r RawValue),
    /// Only the object's metadata: the object is larger than what is read of any answer ([`MAX_BODY`]).
    TooLarge(&'r RawValue),
}

impl ListItem<'_> {
    /// Reads the object; an error is a sentence that names it.
    pub(super) fn object<T: serde::de::DeserializeOwned>(self) -> Result<T, UnreadableObject> {
        match self {
            ListItem::Whole(raw) => object(raw),
            ListItem::TooLarge(raw) => Err(too_large(raw)),
        }
    }
}

/// What is said of an object that is larger than what is read.
pub(super) fn too_large(metadata: &RawValue) -> UnreadableObject {
    let bare: wire::MetadataOnly = serde_json::from_str(metadata.get()).unwrap_or_default();
    UnreadableObject {
        message: format!(
            "it is larger than {} MiB and was not read: nothing is known of it but its name",
            MAX_BODY >> 20
        )
        .into(),
        meta: Box::new(bare.metadata),
    }
}

/// A list that is read page by page. Whoever may make objects decides how large a page is, so one that
/// is too large is asked for again with half as many objects, down to one; and of one that is too large
/// by itself the metadata is asked for alone. After that pages grow again.
#[derive(Debug)]
struct Pages<'a> {
    listing: Listing<'a>,
    /// Where the next page begins; empty for the first.
    token: String,
    /// Objects of the next page at most.
    limit: usize,
}

impl Pages<'_> {
    fn request(&self) -> KubeRequest {
        let listing = self.listing;
        let mut request = KubeRequest::new("list", listing.kind, "", listing.path.to_owned())
            .query("limit", self.limit.to_string())
            .expect_refusals(&[410]);
        if !listing.field_selector.is_empty() {
            request = request.query("fieldSelector", listing.field_selector);
        }
        if !self.token.is_empty() {
            request = request.query("continue", self.token.as_str());
        }
        request
    }

    /// The next page, and whether its objects are there as they are and not with their metadata alone.
    async fn next(&mut self, client: &KubeClient) -> Result<(KubeReply, bool), KubeError> {
        loop {
            if let Some(reply) = client.call_unless_large(self.request()).await? {
                if reply.body.len() <= MAX_BODY / 2 {
                    self.limit = (self.limit * 2).min(PAGE);
                }
                return Ok((reply, true));
            }
            if self.limit == 1 {
                return Ok((client.call(self.request().names_only()).await?, false));
            }
            self.limit /= 2;
            tracing::debug!(
                kind = self.listing.kind,
                limit = self.limit,
                "a page of a list is too large: asking for fewer objects"
            );
        }
    }
}

impl KubeClient {
    /// Lists everything, consistently (no `resourceVersion`: not from a cache that lags), calling
    /// `each` for every object. Returns the list's resourceVersion. After an error, 410 in the middle
    /// of the list too, what `each` saw is part of no list.
    pub(super) async fn list(
        &self,
        listing: Listing<'_>,
        mut each: impl FnMut(ListItem<'_>),
    ) -> Result<String, KubeError> {
        let unknown = |message: String| KubeError::Unknown {
            call: KubeRequest::new("list", listing.kind, "", String::new()).call,
            code: None,
            message: message.into(),
        };
        let mut pages = Pages {
            listing,
            token: String::new(),
            limit: PAGE,
        };
        for _ in 0..MAX_PAGES {
            let (reply, whole) = pages.next(self).await?;
            let page: ListPage<'_> = serde_json::from_slice(&reply.body)
                .map_err(|error| unknown(format!("the list cannot be read: {error}")))?;
            for item in page.items.iter().flatten() {
                each(if whole {
                    ListItem::Whole(item)
                } else {
                    ListItem::TooLarge(item)
                });
            }
            match page.metadata.token.filter(|token| !token.is_empty()) {
                Some(next) if next == pages.token => {
                    return Err(unknown(
                        "the list does not go on: each page names itself as the next".to_owned(),
                    ));
                }
                Some(next) => pages.token = next,
                None => return Ok(page.metadata.resource_version.unwrap_or_default()),
            }
        }
        Err(unknown(format!(
            "the list did not end after {MAX_PAGES} pages"
        )))
    }

    /// Lists everything into a value. Begins anew, with a new value, when the API server has
    /// forgotten the list's version before its last page (410).
    pub(super) async fn gather<T: Default>(
        &self,
        listing: Listing<'_>,
        each: impl Fn(&mut T, ListItem<'_>),
    ) -> Result<T, KubeError> {
        let mut tries = 1;
        loop {
            let mut found = T::default();
            match self.list(listing, |item| each(&mut found, item)).await {
                Ok(_) => return Ok(found),
                Err(error) if error.code() == Some(410) && tries < MAX_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads one object; an error is a sentence that names it.
pub(super) fn object<T: serde::de::DeserializeOwned>(
    raw: &RawValue,
) -> Result<T, UnreadableObject> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let bare: wire::MetadataOnly = serde_json::from_str(raw.get()).unwrap_or_default();
        UnreadableObject {
            message: error.to_string().into(),
            meta: Box::new(bare.metadata),
        }
    })
}

/// An object that could not be read.
#[derive(Debug)]
pub(super) struct UnreadableObject {
    pub(super) message: ForeignText,
    /// The object's metadata, where at least that could be read.
    pub(super) meta: Box<wire::Meta>,
}
