//! `[template.NAME.build]`: how a template is built.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hardware::NicModel;
use crate::config::scalar::{Duration, Size, VmidRange};
use crate::config::storage_names::StorageNames;
use crate::model::time::Span;

/// The chipset of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Chipset {
    /// PCI Express, which passed-through devices need.
    #[default]
    Q35,
    /// The older one.
    Pc,
}

/// What a VM boots by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// Legacy BIOS: the fastest.
    #[default]
    Seabios,
    /// UEFI, with an EFI disk.
    Ovmf,
}

/// The SCSI controller of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScsiController {
    /// One for each disk, with a thread of its own.
    #[default]
    VirtioScsiSingle,
    /// One for all disks.
    VirtioScsiPci,
}

/// What machines of a built template are joined by: `method` of `[pool.NAME.join]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BuildMethod {
    /// containerd, kubelet and kubeadm are installed.
    #[default]
    Kubeadm,
    /// The k3s program and the unit of its agent, which is not started.
    K3s,
    /// Nothing of Kubernetes: `commands` install it (RKE2, a distribution of your own).
    Command,
}

impl BuildMethod {
    /// Whether it is the default.
    // Serde asks by reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_kubeadm(&self) -> bool {
        *self == BuildMethod::Kubeadm
    }
}

/// What PVE asks of the guest agent by itself. Machines have it from their template. The agent is switched on in any case, by `virtio`, where
/// images listen: the build speaks to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BuildAgent {
    /// After a disk was moved to another storage, or the VM to another host, PVE lets the guest give back what it does not use
    /// (`fstrim_cloned_disks`).
    pub fstrim_cloned_disks: bool,
    /// PVE lets the guest freeze its file systems while a backup begins (`freeze-fs-on-backup`, which newer releases call `freeze-fs`). With
    /// `false` no write waits for that, and what is restored is as after a power cut.
    pub freeze_fs_on_backup: bool,
}

impl Default for BuildAgent {
    fn default() -> BuildAgent {
        BuildAgent {
            fstrim_cloned_disks: true,
            freeze_fs_on_backup: true,
        }
    }
}

/// A further network card that the template is built with: the first of the list is `net1`, the next one `net2`. Machines have it from
/// their template, as it is or as `[[template.NAME.nic]]` changes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BuildNic {
    /// The card's bridge, or a virtual network.
    pub bridge: Option<String>,
    /// The card's VLAN tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// Whether it passes through PVE's firewall; machines have that from their template, unless their own key says otherwise. Default:
    /// it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// What it looks like to the guest. Default: `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<NicModel>,
    /// The card's MTU; 1 for the bridge's. PVE starts no VM whose MTU is above its bridge's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65520))]
    pub mtu: Option<u16>,
    /// Cloud-init's `ipconfig` of it, such as `ip=dhcp`; no fixed address, since machines have it from their template. Default: it has no
    /// address while the template is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipconfig: Option<String>,
}

/// How a template is built by `pve-autoscaler template build`: on each host that needs one, from a cloud image, with everything
/// installed that a node needs. Debian, Ubuntu and images like Rocky's (dnf) are known. A template that is built needs no `vmid`,
/// `vm_name` or `tags`: its VM is called `pve-autoscaler-NAME` unless `vm_name` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Build {
    /// VMIDs that built templates get; outside the region's `vmids`. Two for each host are enough, more while clones need old
    /// ones.
    pub vmids: Option<VmidRange>,
    /// The URL of a cloud image in qcow2 or raw format, which PVE downloads; this or `volume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Required with `image`: its checksum, such as `sha512:0123…` (`md5`, `sha1`, `sha224`, `sha256`, `sha384` or `sha512`): an image that was
    /// changed on its way is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// An image that lies on a storage already, such as `local:import/debian-13.qcow2`; instead of `image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The storage of the template's disks, or a list of storages: each host's template lies on the first of it that the host has, enabled,
    /// available and with the content type `images`.
    pub storage: StorageNames,
    /// The storage that `image` is downloaded to, or a list of storages: each host takes the first of it that it has, enabled, available and with
    /// the content type `import` (PVE 8.4 and newer).
    pub image_storage: StorageNames,
    /// The storage where the first boot's cloud-init data is put, or a list of storages: each host takes the first of it that it has, enabled,
    /// available and with the content type `snippets`.
    pub snippet_storage: StorageNames,
    /// The hosts that get a template. Default: all that a pool of this template may use (without such a pool, all of the region) and that have
    /// `storage`, or one of its list; of hosts for which that is the same shared storage the first that is online.
    pub hosts: Vec<String>,
    /// What machines of it are joined by, as `method` of `[pool.NAME.join]`: what is installed for that.
    #[serde(skip_serializing_if = "BuildMethod::is_kubeadm")]
    pub method: BuildMethod,
    /// The Kubernetes version that is installed: a minor such as `1.34`, of which the newest patch is taken, or a patch such as
    /// `1.34.1`, for k3s `1.34.1+k3s1`. With `method = "command"` there is none.
    pub kubernetes: String,
    /// A mirror of what is installed for Kubernetes. For kubeadm the URL above `v1.34/deb` and `v1.34/rpm`, by default
    /// `https://pkgs.k8s.io/core:/stable:`; for k3s the URL above `v1.34.1+k3s1/k3s`, by default k3s' releases on GitHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Where the images of `pull_images` come from, and pods' pause image: the cluster's `imageRepository`, if it has one. For
    /// kubeadm alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_repository: Option<String>,
    /// The HTTP proxy on the way to mirrors and registries, such as `http://proxy.example.com:3128`. It stays in the template: machines' packages
    /// and the images of their pods come by it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Names, addresses and networks that are reached without `proxy`, such as a registry of your own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_proxy: Vec<String>,
    /// Further packages, by their names in the distribution.
    pub packages: Vec<String>,
    /// Pull the images that every node needs, so that no machine waits for them: pause, and for kubeadm kube-proxy.
    pub pull_images: bool,
    /// Further container images that are pulled, such as the network plugin's; not with `method = "command"`.
    pub images: Vec<String>,
    /// Commands that are run as root at the end, each by `sh -c`.
    pub commands: Vec<String>,
    /// The size of the template's disk. Default: the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
    /// Cores while it is built.
    #[schemars(range(min = 1, max = 4096))]
    pub cores: u32,
    /// Memory while it is built.
    pub memory: Size,
    /// The chipset.
    pub machine: Chipset,
    /// What it boots by.
    pub bios: Firmware,
    /// Microsoft's keys are in the EFI disk, and the firmware starts nothing that they did not sign. Needs `bios = "ovmf"`. Machines have it
    /// from their template. Default: they are not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub secure_boot: bool,
    /// A virtual TPM 2.0.
    pub tpm: bool,
    /// The SCSI controller.
    pub scsi_controller: ScsiController,
    /// The CPU model, such as `host`. Machines have the one of `[template.NAME]`, if that names one.
    pub cpu_type: String,
    /// What PVE asks of the guest agent by itself. Default: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<BuildAgent>,
    /// The bridge of its first network card, `net0`.
    pub bridge: String,
    /// The VLAN tag of its first network card.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// Whether `net0` passes through PVE's firewall; machines have that from their template, unless their own key says otherwise. Default:
    /// it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// The MTU of `net0`, a `virtio` card; 1 for the bridge's. PVE starts no VM whose MTU is above its bridge's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65520))]
    pub mtu: Option<u16>,
    /// What `net0` looks like to the guest. Default: `virtio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic_model: Option<NicModel>,
    /// Further network cards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub nic: Vec<BuildNic>,
    /// The PVE resource pool that the template's VM is put into: one on which an API token may clone. With an API token it is not that of the
    /// machines: the token may change and destroy what is in that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_pool: Option<String>,
    /// PVE tags of the template's VM, beside `pve-autoscaler-template`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The screen: `serial0` for the serial console, or `std`, `virtio` …
    pub vga: String,
    /// Cloud-init's `ipconfig0` while it is built: it must reach the package mirrors. A fixed address is the build's alone: the template
    /// has `ip=dhcp` (`ip6=auto`) in its place.
    pub ipconfig: String,
    /// Name servers while it is built, separated by spaces. Default: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nameserver: Option<String>,
    /// The longest that one step may take: the download, the import, the installation.
    pub timeout: Duration,
}

impl Build {
    /// What goes into a template: where it is built, and how long that may take, is left out, and what says no more than the defaults. Of the
    /// storages that only the build needs the first stands for the list: a further host's storage behind it builds no template anew.
    #[must_use]
    pub fn contents(&self) -> Build {
        let agent = self.agent.clone();
        let nic = self.nic.iter().map(|nic| BuildNic {
            firewall: nic.firewall.filter(|passes| *passes),
            ..nic.clone()
        });
        Build {
            vmids: None,
            hosts: Vec::new(),
            image_storage: self.image_storage.first().into(),
            snippet_storage: self.snippet_storage.first().into(),
            agent: agent.filter(|agent| *agent != BuildAgent::default()),
            firewall: self.firewall.filter(|passes| *passes),
            nic_model: self.nic_model.filter(|model| *model != NicModel::Virtio),
            nic: nic.collect(),
            timeout: Build::default().timeout,
            ..self.clone()
        }
    }
}

impl Default for Build {
    fn default() -> Build {
        Build {
            vmids: None,
            image: None,
            checksum: None,
            volume: None,
            storage: StorageNames::default(),
            image_storage: "local".into(),
            snippet_storage: "local".into(),
            hosts: Vec::new(),
            method: BuildMethod::Kubeadm,
            kubernetes: String::new(),
            repository: None,
            image_repository: None,
            proxy: None,
            no_proxy: Vec::new(),
            packages: Vec::new(),
            pull_images: true,
            images: Vec::new(),
            commands: Vec::new(),
            disk: None,
            cores: 2,
            memory: Size(2 << 30),
            machine: Chipset::Q35,
            bios: Firmware::Seabios,
            secure_boot: false,
            tpm: false,
            scsi_controller: ScsiController::VirtioScsiSingle,
            cpu_type: "x86-64-v2-AES".to_owned(),
            agent: None,
            bridge: "vmbr0".to_owned(),
            vlan: None,
            firewall: None,
            mtu: None,
            nic_model: None,
            nic: Vec::new(),
            resource_pool: None,
            tags: Vec::new(),
            vga: "serial0".to_owned(),
            ipconfig: "ip=dhcp".to_owned(),
            nameserver: None,
            timeout: Duration(Span::minutes(30)),
        }
    }
}
