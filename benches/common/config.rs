//! The configuration of the simulated clusters' user.

/// One pool of small machines, at most `most` of them. All the rest is the default.
pub(crate) fn small_machines(most: usize) -> String {
    format!(
        "version = 1
[kubernetes]
name = \"bench\"
[proxmox]
vmids = \"9100-9999\"
[template.debian]
vmid = 9000
[instance_type.small]
cores = 2
memory = \"4GiB\"
disk = \"20GiB\"
[pool.general]
template = \"debian\"
instance_types = [\"small\"]
min = 0
max = {}
",
        most.max(1)
    )
}
