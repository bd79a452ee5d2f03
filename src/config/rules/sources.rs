//! Where the machines of a pool come from: one template, or one of each of several regions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Problems;
use super::regions::{ResolvedRegions, region_of};
use crate::config::file;
use crate::config::place::KeyPath;
use crate::config::settings::TemplateSettings;

/// A region of a pool, with the template of its machines there.
pub(super) struct PoolSource<'a> {
    pub(super) region: Option<Arc<str>>,
    pub(super) template: Option<(&'a Arc<str>, &'a TemplateSettings)>,
}

/// The sources of a pool; at least one, even if the file does not say a good one.
pub(super) fn of_pool<'a>(
    pool: &file::Pool,
    regions: &ResolvedRegions,
    templates: &'a BTreeMap<Arc<str>, TemplateSettings>,
    path: &KeyPath,
    problems: &mut Problems,
) -> Vec<PoolSource<'a>> {
    let list = path.at("templates");
    if pool.templates.is_empty() {
        return vec![the_one(pool, regions, templates, path, problems)];
    }
    problems.unless(pool.template.is_none(), &path.at("template"), || {
        "expected either template or templates".to_owned()
    });
    problems.unless(pool.region.is_none(), &path.at("region"), || {
        "is that of the template; templates have their own, expected one of the two".to_owned()
    });
    let mut known: BTreeMap<&Arc<str>, &str> = BTreeMap::new();
    let mut sources = Vec::new();
    for (position, named) in pool.templates.iter().enumerate() {
        let at = list.at(&position);
        let Some((name, template)) = find(named, templates, &at, problems) else {
            continue;
        };
        if let Some(other) = known.get(&template.region) {
            let region = &template.region;
            let why = if *other == &**named {
                "is there twice".to_owned()
            } else {
                format!(
                    "is in the region {region}, as {other} is; expected one template of each region: machines of one pool and region are alike (another pool may have {named})"
                )
            };
            problems.add(&at, why);
            continue;
        }
        known.insert(&template.region, named);
        sources.push(PoolSource {
            region: Some(template.region.clone()),
            template: Some((name, template)),
        });
    }
    if sources.is_empty() {
        sources.push(PoolSource {
            region: None,
            template: None,
        });
    }
    sources
}

/// The only source of a pool with `template`.
fn the_one<'a>(
    pool: &file::Pool,
    regions: &ResolvedRegions,
    templates: &'a BTreeMap<Arc<str>, TemplateSettings>,
    path: &KeyPath,
    problems: &mut Problems,
) -> PoolSource<'a> {
    let at = path.at("template");
    let named = pool.template.as_deref();
    let named = problems.require(named, &at, "a template's name");
    let template = named.and_then(|named| find(named, templates, &at, problems));
    let region = match (&pool.region, template) {
        (None, Some((_, template))) => Some(template.region.clone()),
        (named, _) => region_of(named.as_deref(), regions, &path.at("region"), problems),
    };
    if let (Some(region), Some((name, template))) = (&region, template) {
        problems.unless(template.region == *region, &at, || {
            format!(
                "template {name} is in region {}, the pool in {region}",
                template.region
            )
        });
    }
    PoolSource { region, template }
}

fn find<'a>(
    named: &str,
    templates: &'a BTreeMap<Arc<str>, TemplateSettings>,
    at: &KeyPath,
    problems: &mut Problems,
) -> Option<(&'a Arc<str>, &'a TemplateSettings)> {
    let found = templates.get_key_value(named);
    problems.unless(found.is_some(), at, || {
        format!("there is no table [template.{named}]")
    });
    found
}
