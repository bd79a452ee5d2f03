//! cluster-autoscaler's flags by our names of the same knobs: whoever knows its flags writes them as
//! they are.

use super::value::{CaseError, CaseValue};

/// What follows `scale-down-` or `scale-up-`, or a flag as a whole, and our name where it differs.
const FLAGS: [(&str, &str); 20] = [
    ("max_scale_down_parallelism", "max_parallel"),
    ("max_parallelism", "max_parallel"),
    ("max_empty_bulk_delete", "max_parallel"),
    ("max_drain_parallelism", "max_parallel_drain"),
    ("ok_total_unready_count", "ok_total_unready"),
    ("max_total_unready_percentage", "max_total_unready_percent"),
    ("skip_nodes_with_system_pods", "skip_system_pods"),
    ("skip_nodes_with_local_storage", "skip_local_storage"),
    (
        "skip_nodes_with_custom_controller_pods",
        "skip_custom_controllers",
    ),
    ("ignore_daemonsets_utilization", "ignore_daemonsets"),
    ("ignore_mirror_pods_utilization", "ignore_mirrors"),
    ("bsp_disruption_timeout", "system_pod_timeout"),
    ("expendable_pods_priority_cutoff", "expendable_priority"),
    ("new_pod_scale_up_delay", "new_pod_delay"),
    ("max_node_provision_time", "max_provision_time"),
    ("initial_node_group_backoff_duration", "backoff_first"),
    ("max_node_group_backoff_duration", "backoff_max"),
    ("node_group_backoff_reset_timeout", "backoff_reset"),
    ("batch_idle_duration", "batch_idle"),
    ("batch_max_duration", "batch_max"),
];

/// Our name of a knob that may be written as a flag.
pub(super) fn knob(name: &str) -> String {
    let name = name.trim_start_matches("--").replace('-', "_");
    let known = |name: &str| FLAGS.iter().find(|(flag, _)| *flag == name);
    let short = ["scale_down_", "scale_up_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(&name);
    match known(&name).or_else(|| known(short)) {
        Some((_, ours)) => (*ours).to_owned(),
        None => short.to_owned(),
    }
}

/// `--cores-total` and `--memory-total` (in GiB): `MIN:MAX`.
pub(super) fn range(value: &CaseValue) -> Result<(i64, i64), CaseError> {
    let number = |text: &str| text.trim().parse::<u32>().ok().map(i64::from);
    let both = value.scalar().and_then(|text| text.split_once(':'));
    both.and_then(|(least, most)| Some((number(least)?, number(most)?)))
        .ok_or_else(|| value.expected("two whole numbers as MIN:MAX, such as \"0:64\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_they_are_written() {
        for (flag, ours) in [
            ("scale-down-unneeded-time", "unneeded_time"),
            ("--scale-down-delay-after-add", "delay_after_add"),
            ("max-nodes-total", "max_nodes_total"),
            ("max-scale-down-parallelism", "max_parallel"),
            ("skip-nodes-with-local-storage", "skip_local_storage"),
            ("unneeded_time", "unneeded_time"),
        ] {
            assert_eq!(knob(flag), ours, "{flag}");
        }
    }
}
