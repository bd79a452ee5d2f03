//! Short forms of what Kubernetes writes at length: taints, tolerations, selectors, affinity terms,
//! spread constraints. Each comes out as Kubernetes' own JSON, so that one translation serves both.

use serde_json::{Map, Value as Json, json};

use super::fields::CaseFields;
use super::scalars::{label_key, several, text, texts, truth, whole};
use super::value::{CaseError, CaseValue};

/// In place of a selector: the labels of the pod itself.
const OWN: &str = "own";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// `key=value:Effect`, `key:Effect`, or Kubernetes' form.
pub(super) fn taint(value: &CaseValue) -> Result<Json, CaseError> {
    if value.map().is_some() {
        let mut fields = CaseFields::of(value, "a taint")?;
        let key = text(fields.need("key")?)?;
        let effect = fields.with("effect", text)?.unwrap_or("NoSchedule");
        let taint_value = fields.with("value", text)?.unwrap_or_default();
        let since = fields.with("timeAdded", text)?;
        fields.done()?;
        known_effect(value, effect)?;
        return Ok(json!({"key": key, "value": taint_value, "effect": effect, "timeAdded": since}));
    }
    let written = text(value)?;
    let (left, effect) = written.rsplit_once(':').unwrap_or((written, "NoSchedule"));
    known_effect(value, effect)?;
    let (key, of) = left.split_once('=').unwrap_or((left, ""));
    Ok(json!({"key": key, "value": of, "effect": effect}))
}

fn known_effect(value: &CaseValue, effect: &str) -> Result<(), CaseError> {
    if EFFECTS.contains(&effect) {
        return Ok(());
    }
    Err(value.expected("a taint as key=value:NoSchedule (or PreferNoSchedule, NoExecute)"))
}

/// `key=value:Effect` (Equal), `key:Effect` (Exists), `key=value` and `key` (every effect), `*`
/// (everything), or Kubernetes' form.
pub(super) fn toleration(value: &CaseValue) -> Result<Json, CaseError> {
    if value.map().is_some() {
        let mut fields = CaseFields::of(value, "a toleration")?;
        let all = ["key", "operator", "value", "effect", "tolerationSeconds"]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), fields.take(key)?.json())))
            .collect();
        fields.done()?;
        return Ok(Json::Object(all));
    }
    let written = text(value)?;
    if written == "*" {
        return Ok(json!({"operator": "Exists"}));
    }
    let (left, effect) = match written.rsplit_once(':') {
        Some((left, effect)) => {
            known_effect(value, effect)?;
            (left, Some(effect))
        }
        None => (written, None),
    };
    let mut toleration = match left.split_once('=') {
        Some((key, of)) => json!({"key": key, "operator": "Equal", "value": of}),
        None if left == "*" || left.is_empty() => json!({"operator": "Exists"}),
        None => json!({"key": left, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = effect.into();
    }
    Ok(toleration)
}

/// A label selector: `own`, `app=web, tier in (a, b), !old`, `{app: web}`, or Kubernetes' form.
pub(super) fn selector(value: &CaseValue, own: &Json) -> Result<Json, CaseError> {
    if value.is_null() {
        return Ok(json!({}));
    }
    if let Some(written) = value.scalar() {
        if written == OWN {
            return Ok(json!({ "matchLabels": own }));
        }
        let expressions = requirements(value, written, false)?;
        return Ok(json!({ "matchExpressions": expressions }));
    }
    if value.get("matchLabels").is_some() || value.get("matchExpressions").is_some() {
        let mut fields = CaseFields::of(value, "a label selector")?;
        let labels = fields.take("matchLabels").map(string_map).transpose()?;
        let expressions = fields.take("matchExpressions").map(CaseValue::json);
        fields.done()?;
        return Ok(json!({"matchLabels": labels, "matchExpressions": expressions}));
    }
    Ok(json!({ "matchLabels": string_map(value)? }))
}

/// `app=web,tier=a`, as the command line has it.
fn pairs(written: &str) -> Option<Map<String, Json>> {
    let parts = written.split(',').map(|part| part.trim().split_once('='));
    parts
        .map(|part| part.map(|(key, of)| (key.to_owned(), of.into())))
        .collect()
}

/// A map of texts, as JSON.
pub(super) fn string_map(value: &CaseValue) -> Result<Json, CaseError> {
    if let Some(pairs) = value.scalar().and_then(pairs) {
        return Ok(Json::Object(pairs));
    }
    let entries = value
        .map()
        .ok_or_else(|| value.expected("a map of texts, such as {app: web}"))?;
    let map = entries
        .iter()
        .map(|entry| {
            let of = if entry.value.is_null() {
                ""
            } else {
                text(&entry.value)?
            };
            Ok((entry.key.clone(), of.into()))
        })
        .collect::<Result<Map<String, Json>, CaseError>>()?;
    Ok(Json::Object(map))
}

/// A map of node labels, where short names may be used.
pub(super) fn node_map(value: &CaseValue) -> Result<Json, CaseError> {
    let Json::Object(map) = string_map(value)? else {
        return Ok(Json::Null);
    };
    Ok(map
        .into_iter()
        .map(|(key, of)| (label_key(&key).to_owned(), of))
        .collect::<Map<String, Json>>()
        .into())
}

/// Requirements as kubectl's selectors write them: `a=b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`,
/// `!a`, `a>5`, `a<5`, separated by commas.
fn requirements(value: &CaseValue, written: &str, of_nodes: bool) -> Result<Vec<Json>, CaseError> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0u32, 0);
    for (at, letter) in written.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&written[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&written[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            requirement(part, of_nodes).ok_or_else(|| {
                value.wrong(format!(
                    "expected requirements as a=b, a!=b, a in (b, c), a notin (b), a, !a, a>5, a<5; found {part:?}"
                ))
            })
        })
        .collect()
}

fn requirement(part: &str, of_nodes: bool) -> Option<Json> {
    let of = |key: &str, operator: &str, values: Vec<&str>| {
        let key = key.trim();
        let key = if of_nodes { label_key(key) } else { key };
        let plain = !key.is_empty() && !key.contains([' ', '(', ')', '=', '!', '<', '>']);
        plain.then(|| json!({"key": key, "operator": operator, "values": values}))
    };
    if let Some(key) = part.strip_prefix('!') {
        return of(key, "DoesNotExist", Vec::new());
    }
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(')?;
        let values: Vec<&str> = list
            .split(',')
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .collect();
        let (key, word) = head.trim_end().rsplit_once(char::is_whitespace)?;
        return match word.to_ascii_lowercase().as_str() {
            "in" => of(key, "In", values),
            "notin" => of(key, "NotIn", values),
            _ => None,
        };
    }
    for (sign, operator) in [
        ("!=", "NotIn"),
        ("==", "In"),
        ("=", "In"),
        (">", "Gt"),
        ("<", "Lt"),
    ] {
        if let Some((key, value)) = part.split_once(sign) {
            return of(key, operator, vec![value.trim()]);
        }
    }
    of(part, "Exists", Vec::new())
}

/// A node selector term: `zone in (z1, z2)`, `{zone: z1, disk: [ssd, nvme]}`, a list of requirements
/// that all hold, or Kubernetes' form.
pub(super) fn node_term(value: &CaseValue) -> Result<Json, CaseError> {
    if let Some(written) = value.scalar() {
        return Ok(json!({ "matchExpressions": requirements(value, written, true)? }));
    }
    if value.get("matchExpressions").is_some() || value.get("matchFields").is_some() {
        let mut fields = CaseFields::of(value, "a node selector term")?;
        let expressions = fields.with("matchExpressions", node_requirements)?;
        let on_fields = fields.take("matchFields").map(CaseValue::json);
        fields.done()?;
        return Ok(json!({"matchExpressions": expressions, "matchFields": on_fields}));
    }
    // Requirements, or one.
    if value.list().is_some() || value.get("operator").is_some() {
        return Ok(json!({ "matchExpressions": node_requirements(value)? }));
    }
    let entries = value
        .map()
        .ok_or_else(|| value.expected("a node selector term, such as \"zone in (z1, z2)\""))?;
    let expressions = entries
        .iter()
        .map(|entry| {
            Ok(json!({
                "key": label_key(&entry.key),
                "operator": "In",
                "values": texts(&entry.value)?,
            }))
        })
        .collect::<Result<Vec<Json>, CaseError>>()?;
    Ok(json!({ "matchExpressions": expressions }))
}

/// Requirements on node labels: a list of texts or of Kubernetes' `{key, operator, values}`.
pub(super) fn node_requirements(value: &CaseValue) -> Result<Json, CaseError> {
    let mut all = Vec::new();
    for item in several(value) {
        if let Some(written) = item.scalar() {
            all.extend(requirements(item, written, true)?);
            continue;
        }
        let mut fields = CaseFields::of(item, "a requirement")?;
        let key = label_key(text(fields.need("key")?)?);
        let operator = fields.with("operator", text)?.unwrap_or("In");
        let values = fields.with("values", texts)?.unwrap_or_default();
        fields.done()?;
        all.push(json!({"key": key, "operator": operator, "values": values}));
    }
    Ok(Json::Array(all))
}

/// Terms of which one must hold: a list of them, or one; a list of requirements is one term.
fn node_terms(value: &CaseValue) -> Result<Json, CaseError> {
    let of_requirements = value
        .list()
        .is_some_and(|items| items.iter().all(|item| item.get("operator").is_some()));
    let terms = if of_requirements {
        vec![node_term(value)?]
    } else {
        several(value)
            .into_iter()
            .map(node_term)
            .collect::<Result<Vec<_>, _>>()?
    };
    Ok(json!({ "nodeSelectorTerms": terms }))
}

/// `nodeAffinity`: `{required: [terms, one of which holds], preferred: [{weight, term}]}`, a term
/// alone, or Kubernetes' form.
pub(super) fn node_affinity(value: &CaseValue) -> Result<Json, CaseError> {
    let short = value.get("required").is_some() || value.get("preferred").is_some();
    let long = value.map().is_some_and(|entries| {
        entries.iter().any(|entry| {
            entry
                .key
                .ends_with("DuringSchedulingIgnoredDuringExecution")
        })
    });
    if long {
        let mut fields = CaseFields::of(value, "node affinity")?;
        let required = fields
            .with("requiredDuringSchedulingIgnoredDuringExecution", |value| {
                let mut fields = CaseFields::of(value, "required node affinity")?;
                let terms = fields.need("nodeSelectorTerms")?;
                fields.done()?;
                several(terms)
                    .into_iter()
                    .map(node_term)
                    .collect::<Result<Vec<_>, _>>()
            })?
            .map(|terms| json!({ "nodeSelectorTerms": terms }));
        let preferred = fields
            .take("preferredDuringSchedulingIgnoredDuringExecution")
            .map(CaseValue::json);
        fields.done()?;
        return Ok(affinity_of(required.as_ref(), preferred.as_ref()));
    }
    if !short {
        return Ok(affinity_of(Some(&node_terms(value)?), None));
    }
    let mut fields = CaseFields::of(value, "node affinity")?;
    let required = fields.with("required", node_terms)?;
    let preferred = fields.with("preferred", |value| {
        several(value)
            .into_iter()
            .map(|item| {
                let mut fields = CaseFields::of(item, "a preference")?;
                let weight = fields.with("weight", whole::<i32>)?.unwrap_or(1);
                let term = fields.any(&["term", "preference"]);
                let term = term.ok_or_else(|| item.wrong("a preference needs the key \"term\""))?;
                fields.done()?;
                Ok(json!({"weight": weight, "preference": node_term(term)?}))
            })
            .collect::<Result<Vec<Json>, CaseError>>()
    })?;
    fields.done()?;
    Ok(affinity_of(
        required.as_ref(),
        preferred.map(Json::Array).as_ref(),
    ))
}

fn affinity_of(required: Option<&Json>, preferred: Option<&Json>) -> Json {
    json!({
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    })
}

/// Pod affinity or anti-affinity: a key (`zone`: own labels), `{zone: {app: web}}`, `{key: zone, labels: …,
/// weight: 50}`, a list of these, `{required: […], preferred: […]}`, or Kubernetes' form.
pub(super) fn pod_affinity(value: &CaseValue, own: &Json) -> Result<Json, CaseError> {
    let long = value.map().is_some_and(|entries| {
        entries.iter().any(|entry| {
            entry
                .key
                .ends_with("DuringSchedulingIgnoredDuringExecution")
        })
    });
    if long {
        return Ok(value.json());
    }
    let (mut required, mut preferred) = (Vec::new(), Vec::new());
    let mut put = |(weight, term): Weighted| match weight {
        None => required.push(term),
        Some(weight) => preferred.push(json!({"weight": weight, "podAffinityTerm": term})),
    };
    let is_terms = |key| {
        value
            .get(key)
            .is_some_and(|terms| key == "required" || terms.scalar().is_none())
    };
    if is_terms("required") || is_terms("preferred") {
        let mut fields = CaseFields::of(value, "pod affinity")?;
        for item in fields.take("required").map(several).unwrap_or_default() {
            pod_terms(item, own)?.into_iter().for_each(&mut put);
        }
        for item in fields.take("preferred").map(several).unwrap_or_default() {
            preferred_terms(item, own)?.into_iter().for_each(&mut put);
        }
        fields.done()?;
    } else {
        for item in several(value) {
            pod_terms(item, own)?.into_iter().for_each(&mut put);
        }
    }
    Ok(affinity_of(
        Some(&Json::Array(required)),
        Some(&Json::Array(preferred)),
    ))
}

type Weighted = (Option<i32>, Json);

/// What stands under `preferred`: a term, with `weight` (1) in it or beside it.
fn preferred_terms(value: &CaseValue, own: &Json) -> Result<Vec<Weighted>, CaseError> {
    let inner = ["term", "podAffinityTerm"].map(|key| value.get(key));
    if inner.iter().all(Option::is_none) {
        let terms = pod_terms(value, own)?.into_iter();
        return Ok(terms.map(|(w, term)| (w.or(Some(1)), term)).collect());
    }
    let mut fields = CaseFields::of(value, "a preference")?;
    let weight = fields.with("weight", whole::<i32>)?.unwrap_or(1);
    let terms = fields.any(&["term", "podAffinityTerm"]);
    fields.done()?;
    let terms = terms.map_or(Ok(Vec::new()), |terms| pod_terms(terms, own))?;
    Ok(terms.into_iter().map(|(_, t)| (Some(weight), t)).collect())
}

fn pod_terms(value: &CaseValue, own: &Json) -> Result<Vec<Weighted>, CaseError> {
    if let Some(key) = value.scalar() {
        let term = json!({"topologyKey": label_key(key), "labelSelector": {"matchLabels": own}});
        return Ok(vec![(None, term)]);
    }
    let mut fields = CaseFields::of(value, "an affinity term, such as {zone: {app: web}},")?;
    let key = fields.any(&["key", "topologyKey"]).map(text).transpose()?;
    let namespaces = fields.with("namespaces", texts)?;
    let by_label = fields.with("namespaceSelector", |value| selector(value, own))?;
    let same = fields.with("matchLabelKeys", texts)?;
    let other = fields.with("mismatchLabelKeys", texts)?;
    let weight = fields
        .any(&["weight", "preferred"])
        .map(whole)
        .transpose()?;
    let chosen = fields.any(&["labels", "selector", "labelSelector"]);
    let term = |key: &str, selector: Json| {
        json!({
            "topologyKey": label_key(key),
            "labelSelector": selector,
            "namespaces": namespaces,
            "namespaceSelector": by_label,
            "matchLabelKeys": same,
            "mismatchLabelKeys": other,
        })
    };
    if let Some(key) = key {
        fields.done()?;
        let chosen = match chosen {
            Some(value) => selector(value, own)?,
            None => json!({ "matchLabels": own }),
        };
        return Ok(vec![(weight, term(key, chosen))]);
    }
    let keys = fields.rest();
    if chosen.is_some() || keys.is_empty() && value.map().is_some_and(|all| !all.is_empty()) {
        return Err(value.wrong("an affinity term needs the key \"key\", such as zone"));
    }
    keys.into_iter()
        .map(|entry| Ok((weight, term(&entry.key, selector(&entry.value, own)?))))
        .collect()
}

/// A spread constraint: `zone`, `zone:2` (own labels, maxSkew), or a map with Kubernetes' keys or short ones.
pub(super) fn spread(value: &CaseValue, own: &Json) -> Result<Json, CaseError> {
    if let Some(written) = value.scalar() {
        let (key, skew) = match written.rsplit_once(':') {
            Some((key, skew)) => {
                let skew = skew.parse::<i32>();
                (
                    key,
                    skew.map_err(|_| value.expected("a spread as zone or zone:2"))?,
                )
            }
            None => (written, 1),
        };
        return Ok(json!({
            "topologyKey": label_key(key),
            "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": own},
        }));
    }
    let mut fields = CaseFields::of(value, "a spread constraint")?;
    let key = fields
        .any(&["key", "topologyKey"])
        .ok_or_else(|| value.wrong("a spread constraint needs the key \"key\", such as zone"))?;
    let soft = fields.with("soft", truth)?.unwrap_or(false);
    let when = fields
        .any(&["when", "whenUnsatisfiable"])
        .map(text)
        .transpose()?;
    let when = when.unwrap_or(if soft {
        "ScheduleAnyway"
    } else {
        "DoNotSchedule"
    });
    if !["DoNotSchedule", "ScheduleAnyway"].contains(&when) {
        return Err(value.wrong(format!(
            "expected whenUnsatisfiable DoNotSchedule or ScheduleAnyway, found {when:?}"
        )));
    }
    let chosen = match fields.any(&["selector", "labelSelector", "labels"]) {
        Some(value) => selector(value, own)?,
        None => json!({ "matchLabels": own }),
    };
    let skew = fields
        .any(&["maxSkew", "skew"])
        .map(whole::<i32>)
        .transpose()?;
    let constraint = json!({
        "topologyKey": label_key(text(key)?),
        "maxSkew": skew.unwrap_or(1),
        "whenUnsatisfiable": when,
        "labelSelector": chosen,
        "minDomains": fields.with("minDomains", whole::<i32>)?,
        "matchLabelKeys": fields.with("matchLabelKeys", texts)?,
        "nodeAffinityPolicy": fields.with("nodeAffinityPolicy", text)?,
        "nodeTaintsPolicy": fields.with("nodeTaintsPolicy", text)?,
    });
    fields.done()?;
    Ok(constraint)
}
