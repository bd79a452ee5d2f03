//! Downloads, uploads, imports and templates.

use super::{Rule, log, say};

const REACH: &str = "{host} does not reach the server of `image`: see to its DNS and routes, or set a proxy (Datacenter, Options, HTTP proxy)";
const TRUST: &str = "{host} does not trust the certificate of the server of `image`: see to its clock and to ca-certificates";
const DOWNLOADED: &str = "{host} cannot write the file: see how full the storage of the download is (`image_storage` in the template's build table; `pvesm status`)";
const PVE_SSH: &str = "PVE brings an upload to {host} by ssh from the host that is asked, and that does not work: `pvecm updatecerts` on {host} puts keys and known hosts right, and `pvesm status` there shows whether it runs";
const EXTRACT: &str = "add `images` to the content of {storage} (Datacenter, Storage), and take a storage of files: what is in an archive is unpacked there";
const IMPORTED: &str = "correct `image` in the template's build table: it is a volume with the content `import` (`pvesm list STORAGE --content import`), or a URL";
const DAMAGED: &str = "what lies at `image` of the template's build table is no disk image that QEMU can read, or was damaged: `qemu-img info FILE` on {host} says what it is; take it away (`pvesm free VOLUME`) and let it be downloaded anew";

/// The rows.
pub(super) const RULES: &[Rule] = &[
    // pve-common src/PVE/Tools.pm, `download_file_from_url`: the last line of wget 1.21 or newer, or, where that is empty, its exit code.
    say(
        "download failed: exit code 8",
        "the server has no such file, or refuses it: correct `image` in the template's build table (`curl -I URL` shows what it answers)",
    ),
    say("download failed: exit code 4", REACH),
    say(
        "download failed: wget: unable to resolve host address",
        REACH,
    ),
    say("download failed: Connecting to {*} failed: ", REACH),
    say("download failed: exit code 5", TRUST),
    say("download failed: ERROR: The certificate of", TRUST),
    say("download failed: ERROR: cannot verify", TRUST),
    say("download failed: To connect to {*} insecurely", TRUST),
    say(
        "download failed: The certificate's owner does not match",
        "the certificate of the server of `image` is another's: correct the name in `image` of the template's build table",
    ),
    say(
        "download failed: Unable to establish SSL connection",
        "the server of `image` speaks no TLS at that port, or none that {host} knows: correct `image` in the template's build table (`curl -I URL` on {host} says more), or set a proxy (Datacenter, Options, HTTP proxy)",
    ),
    say("download failed: exit code 3", DOWNLOADED),
    say("download failed: Cannot write to", DOWNLOADED),
    say(
        "checksum mismatch: got '{*}' != expect '{*}', aborting",
        "a file of that name lies on the storage already and is another: `pvesm list STORAGE --content import` on {host} shows it, `pvesm free VOLUME` removes it (or `checksum` in the template's build table is not that of the file behind `image`)",
    ),
    say(
        "checksum mismatch: got '{*}' != expect",
        "correct `checksum` in the template's build table: the file behind `image` is another now",
    ),
    say(
        "refusing to override existing file",
        "a file of that name lies on the storage already: `pvesm list STORAGE --content import` on {host} shows it, `pvesm free VOLUME` removes it; or give a `checksum` in the template's build table, by which PVE knows the file again",
    ),
    say(
        "failed to verify file: ",
        "what the server sends is no image of the kind that its name says: `curl -I URL` shows what it is (a page that says something?); correct `image` in the template's build table",
    ),
    // pve-storage src/PVE/API2/Storage/Status.pm, `upload`.
    say(
        "can't activate storage '{storage}' on node '{host}'",
        PVE_SSH,
    ),
    say("command '/usr/bin/scp {*}' failed", PVE_SSH),
    say("command '/usr/bin/ssh {*}' failed", PVE_SSH),
    log("Host key verification failed", PVE_SSH),
    // qemu-server src/PVE/API2/Qemu.pm, `check_storage_access` and `import_from_volid`; pve-storage src/PVE/Storage.pm, `check_volume_access`, and
    // src/PVE/Storage/Plugin.pm, `file_size_info`.
    say(
        "has wrong type '{*}' - needs to be 'images' or 'import'",
        IMPORTED,
    ),
    say(
        "unable to use volume {*} - content type needs to be",
        IMPORTED,
    ),
    say(
        "import working storage '{storage}' does not support",
        EXTRACT,
    ),
    say(
        "missing privileges to access",
        "give the API token and its user Datastore.Allocate on /storage/ and the volume's storage (`pveum acl modify`): what is no disk, ISO or image of a VM's wants it; or name another volume in {template_table}",
    ),
    say(
        "cannot import from '{*}' - full clone feature is not supported",
        "the storage of that image does not let it be copied: bring the image to another storage with the content `import`",
    ),
    say("could not get size of", DAMAGED),
    log("failed to query file information with qemu-img", DAMAGED),
    log("Image is not in {*} format", DAMAGED),
    log(
        "backing file not allowed for untrusted image",
        "the image leans on another file, which PVE does not follow: make one that stands alone (`qemu-img convert`), and name that as `image` in the template's build table",
    ),
    // qemu-server src/PVE/API2/Qemu.pm, `template`; src/PVE/QemuServer.pm, `start_swtpm` and drives of a volume chain.
    say(
        "unable to create template, because VM contains snapshots",
        "`qm listsnapshot {vmid}` on {host} shows the snapshots, and `qm delsnapshot {vmid} NAME` removes one",
    ),
    say(
        "is configured for snapshots as a volume chain",
        "let the template's VM have a `machine` of version 10.0 or newer, or none (`qm config`, `qm set`), or its disks on another storage",
    ),
    say(
        "command 'swtpm_setup {*}' failed",
        "see on {host} whether swtpm is whole (`apt install --reinstall swtpm swtpm-tools`) and /var/lib/swtpm-localca can be written",
    ),
];
