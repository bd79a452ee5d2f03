//! The form of an answer that a caller takes, by its Accept header. This server writes JSON alone; the real one writes protobuf too,
//! which client-go asks for first, with JSON behind it.

use std::sync::Arc;

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::events;
use super::resources::Res;
use super::status::Status;

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectForm {
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl ObjectForm {
    /// The form that the caller likes best of those that there are. As the API server chooses it: by the order in the header, those of a
    /// higher `q` first; where there is no header, JSON.
    ///
    /// # Errors
    /// The caller takes none of them.
    pub(super) fn asked(headers: &HeaderMap) -> Result<ObjectForm, Status> {
        let accept = headers.get(header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        let Some(accept) = accept.filter(|accept| !accept.is_empty()) else {
            return Ok(ObjectForm::Whole);
        };
        let mut clauses: Vec<AcceptClause<'_>> = accept.split(',').map(AcceptClause::of).collect();
        clauses.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        let form = clauses.iter().find_map(AcceptClause::form);
        form.ok_or_else(Status::not_acceptable)
    }

    /// An object as this caller sees it.
    pub(super) fn of(self, res: Res, object: &Arc<Value>) -> Arc<Value> {
        if self == ObjectForm::Metadata {
            return Arc::new(json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            }));
        }
        events::outward(res, object).map_or_else(|| Arc::clone(object), Arc::new)
    }
}

/// A media type in an Accept header.
#[derive(Debug)]
struct AcceptClause<'a> {
    media: &'a str,
    /// What objects are to be shown as, such as `Table`; `None`: as they are.
    shown_as: Option<&'a str>,
    /// From 0 to 1; 1 where nothing is said.
    quality: f32,
}

impl<'a> AcceptClause<'a> {
    fn of(text: &'a str) -> AcceptClause<'a> {
        let mut parts = text.split(';').map(str::trim);
        let mut clause = AcceptClause {
            media: parts.next().unwrap_or_default(),
            shown_as: None,
            quality: 1.0,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "as" => clause.shown_as = Some(value),
                "q" => clause.quality = value.parse().unwrap_or(1.0),
                _ => {}
            }
        }
        clause
    }

    /// The form that it means; `None`: there is none such.
    fn form(&self) -> Option<ObjectForm> {
        if !["application/json", "application/*", "*/*"].contains(&self.media) {
            return None;
        }
        match self.shown_as {
            None => Some(ObjectForm::Whole),
            // Of a list it is `PartialObjectMetadataList`.
            Some(form) if form.starts_with("PartialObjectMetadata") => Some(ObjectForm::Metadata),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What others send: our own daemon, client-go with protobuf, its metadata client, kubectl, curl, a browser.
    #[test]
    fn the_form_is_the_first_that_there_is() {
        let asked = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("a header"));
            ObjectForm::asked(&headers).map_err(|status| status.code)
        };
        let metadata = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let list = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        for (accept, form) in [
            ("", Ok(ObjectForm::Whole)),
            ("*/*", Ok(ObjectForm::Whole)),
            ("application/json", Ok(ObjectForm::Whole)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Ok(ObjectForm::Whole),
            ),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Ok(ObjectForm::Whole),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Ok(ObjectForm::Whole),
            ),
            (
                "text/html,application/xml;q=0.9,*/*;q=0.8",
                Ok(ObjectForm::Whole),
            ),
            (
                &*format!("application/json;{metadata}"),
                Ok(ObjectForm::Metadata),
            ),
            (
                &*format!(
                    "application/vnd.kubernetes.protobuf;{list},application/json;{list},application/json"
                ),
                Ok(ObjectForm::Metadata),
            ),
            (
                &*format!("application/json;q=0.1,application/json;{metadata};q=0.5"),
                Ok(ObjectForm::Metadata),
            ),
            (
                &*format!("application/json,application/json;{metadata}"),
                Ok(ObjectForm::Whole),
            ),
            ("application/vnd.kubernetes.protobuf", Err(406)),
            ("application/yaml;q=0.5,text/html", Err(406)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", Err(406)),
        ] {
            assert_eq!(asked(accept), form, "{accept}");
        }
        assert_eq!(
            ObjectForm::asked(&HeaderMap::new()).ok(),
            Some(ObjectForm::Whole)
        );
    }
}
