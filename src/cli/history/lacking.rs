//! What a table of deeds lacks: why nothing was done in a time, who else led then, and which names the record knows instead of an unknown
//! one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::tz::TimeZone;

use crate::cli::CliFailure;
use crate::cli::render::one_line;
use crate::cli::times::{local, zone_name};
use crate::kubernetes::lease::host_of;
use crate::model::time::Time;
use crate::record::{Deed, DeedKind, Filter, History, IdleCause, IdleTime, LONGEST_SILENCE};

/// Deeds among which names are looked for that the record knows.
const LOOKED_AT: usize = 10_000;
/// Times in which nothing was done that are told of at most; the latest.
const TOLD: usize = 5;
/// Names that are named instead of an unknown one.
const NAMED: usize = 5;
/// How alike a name must be to an unknown one to stand for all, 1 being the same.
const ALIKE: f32 = 0.7;

/// What is read beside deeds of the time that is asked for.
pub(super) struct AskedTime<'a> {
    pub(super) filter: &'a Filter,
    /// The times in which nothing was done.
    pub(super) idle: &'a [IdleTime],
    /// Up to when something is recorded.
    pub(super) known: Option<Time>,
    pub(super) now: Time,
    pub(super) zone: &'a TimeZone,
}

impl AskedTime<'_> {
    /// What must be known beside the rows of a table: that another instance led, and what no row tells because it began before the time
    /// that is asked for, or because the rows are of one thing alone.
    pub(super) fn beside_rows(&self) -> String {
        let Filter { since, until, .. } = self.filter;
        let all = self.filter.is_open();
        let told = self.idle.iter().filter(|idle| {
            let began_before = since.is_some_and(|since| idle.from < since);
            if all {
                return began_before;
            }
            idle.holder().is_some() || (self.concerns(idle) && (since.is_some() || until.is_some()))
        });
        self.sentences(&told.collect::<Vec<_>>())
    }

    /// Why nothing was done in the time that is asked for.
    fn instead_of_rows(&self) -> String {
        let Filter { since, until, .. } = self.filter;
        let in_time = since.is_some() || until.is_some();
        let told = self.idle.iter();
        let told = told.filter(|idle| idle.holder().is_some() || (in_time && self.concerns(idle)));
        let told: Vec<&IdleTime> = told.collect();
        let mut text = self.sentences(&told);
        let end = until.unwrap_or(self.now).min(self.now);
        let ends = told
            .iter()
            .any(|idle| idle.until.is_none() && matches!(idle.cause, IdleCause::Unrecorded { .. }));
        if let Some(known) = self.known.filter(|_| in_time && !ends)
            && end.since(known) > LONGEST_SILENCE
        {
            let known = local(known, self.zone);
            let _ = writeln!(
                text,
                "Nothing is recorded after {known}: no daemon has recorded since then."
            );
        }
        text
    }

    /// Whether it may be why nothing was done with what is asked for.
    fn concerns(&self, idle: &IdleTime) -> bool {
        match (&idle.cause, &self.filter.pool) {
            (IdleCause::OnHold { scope, .. }, Some(pool)) => {
                let of_pool = scope.strip_prefix("pool ");
                of_pool.is_none_or(|of| of == pool)
            }
            _ => true,
        }
    }

    /// A sentence a time.
    fn sentences(&self, idle: &[&IdleTime]) -> String {
        let mut text = String::new();
        let more = idle.len().saturating_sub(TOLD);
        if more > 0 {
            let _ = writeln!(
                text,
                "Before these, nothing was done in {more} other times; --since and --until tell of them."
            );
        }
        for one in &idle[more..] {
            let from = local(one.from, self.zone);
            let until = one.until.map_or_else(String::new, |until| {
                format!(" until {}", local(until, self.zone))
            });
            let sentence = match (&one.cause, one.holder()) {
                (IdleCause::OnHold { .. }, Some(holder)) => {
                    let host = host_of(holder);
                    format!(
                        "From {from}{until} the instance on {host} led, and what it did is in its own record: type history on {host}."
                    )
                }
                (IdleCause::OnHold { scope, why, .. }, None) => {
                    let why = if why.is_empty() {
                        "why is not recorded"
                    } else {
                        &**why
                    };
                    format!("From {from}{until} {scope} was on hold: {why}.")
                }
                (IdleCause::Unrecorded { why }, _) => {
                    format!("From {from}{until} nothing is recorded: {why}.")
                }
            };
            let _ = writeln!(text, "{}", one_line(&sentence));
        }
        text
    }

    /// That there is nothing to tell, why, of what time the record is, and what it has instead of an unknown name.
    pub(super) fn nothing_found(&self, history: &History) -> Result<String, CliFailure> {
        let (filter, zone) = (self.filter, self.zone);
        let all = history.deeds(&Filter::default(), LOOKED_AT)?;
        let (Some(began), Some(last)) = (history.began()?, all.iter().rfind(|deed| is_done(deed)))
        else {
            return Ok("Nothing is in the record yet.\n".to_owned());
        };
        let whole = filter.since.is_none() && filter.until.is_none();
        let mut text = if whole {
            "Nothing that concerns what you ask for is in the record.\n"
        } else {
            "Nothing was done in that time that concerns what you ask for.\n"
        }
        .to_owned();
        for (what, wanted, known) in names_asked_for(history, filter, &all)? {
            if !known.contains(&wanted) {
                let known = named(&wanted, &known);
                let _ = writeln!(text, "The record knows no {what} {wanted}{known}.");
            }
        }
        text.push_str(&self.instead_of_rows());
        let _ = writeln!(
            text,
            "The record begins at {}; what was done last in it was at {} ({}).",
            local(began, zone),
            local(last.at, zone),
            zone_name(zone)
        );
        Ok(text)
    }
}

/// Whether something was done or decided.
fn is_done(deed: &Deed) -> bool {
    !matches!(
        deed.kind,
        DeedKind::OnHold { .. } | DeedKind::HoldEnded { .. } | DeedKind::Unrecorded { .. }
    )
}

/// The names that the record knows, those like an unknown one where there are any.
fn named(wanted: &str, known: &BTreeSet<String>) -> String {
    let mut named: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = similar::get_close_matches(wanted, &named, NAMED, ALIKE);
    if !near.is_empty() {
        named = near;
    }
    match named.len() {
        0 => String::new(),
        1..=NAMED => format!("; it knows {}", named.join(", ")),
        more => format!(
            "; it knows {} and {} more",
            named[..NAMED].join(", "),
            more - NAMED
        ),
    }
}

/// A kind of thing, the name that is asked for, and the names of that kind in the record.
type AskedName = (&'static str, String, BTreeSet<String>);

/// What is asked for by name, and the names of that kind in the record: of pods those that ever waited, of all else those of some deeds.
fn names_asked_for(
    history: &History,
    filter: &Filter,
    deeds: &[Deed],
) -> Result<Vec<AskedName>, CliFailure> {
    let mut known: [BTreeSet<String>; 3] = Default::default();
    for deed in deeds {
        match &deed.kind {
            DeedKind::Planned {
                machine,
                node,
                pool,
                ..
            } => {
                known[0].insert(machine.to_string());
                known[1].extend(node.as_ref().map(ToString::to_string));
                known[2].extend(pool.as_ref().map(ToString::to_string));
            }
            DeedKind::NotBegun { machine, .. } | DeedKind::Ended { machine, .. } => {
                known[0].insert(machine.to_string());
            }
            _ => {}
        }
    }
    // A machine's node has its name.
    let machines = known[0].clone();
    known[1].extend(machines);
    let wanted = [&filter.machine, &filter.node, &filter.pool];
    let kinds = ["machine", "node", "pool"].into_iter().zip(wanted);
    let all = kinds.zip(known);
    let mut all: Vec<_> = all
        .filter_map(|((kind, wanted), known)| Some((kind, wanted.clone()?, known)))
        .collect();
    if let Some(pod) = &filter.pod {
        all.push(("pod", pod.to_string(), history.pods()?));
    }
    Ok(all)
}
