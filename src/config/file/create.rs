//! `[template.NAME.create]`: VMs that PVE makes of settings, without a template to clone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::{Chipset, Firmware, ScsiController};
use crate::config::storage_names::StorageNames;

/// What a VM boots from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BootDevice {
    /// The VM's disk, `scsi0`.
    Disk,
    /// The ISO in its CD drive.
    Cdrom,
    /// The VM's first network card: PXE, iPXE.
    Network,
}

/// What machines are made of where no template is cloned: PVE makes each VM anew of these settings, with a disk that is empty or
/// imported from an image, and it boots from that, from an ISO, or from the network: see
/// [machines without a template](no-template.md). The template's own keys (`bridge`, `cpu_type`, `cloud_init` …) hold as well;
/// those that say which VM is cloned, and how, do not stand beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Create {
    /// The storage of the disk `scsi0`, of the EFI disk, of the TPM's state and of PVE's cloud-init drive, or a list of storages: a machine is
    /// made on the first of it that its host has and that has room. The disk is as large as the instance type's `disk` says.
    pub storage: StorageNames,
    /// The image that the disk is imported from, such as `local:import/talos-nocloud-amd64.qcow2`: a volume of content type
    /// `import` (PVE 8.3 and newer) on every host of the pools. Default: the disk is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// An ISO that lies in the CD drive `ide2`, such as `local:iso/metal-amd64.iso`. Default: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso: Option<String>,
    /// What it boots from, in this order. Default: the disk, then the ISO if there is one, and the network where there is
    /// neither image nor ISO.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub boot: Vec<BootDevice>,
    /// The chipset.
    pub machine: Chipset,
    /// The firmware: SeaBIOS, or OVMF (UEFI) with an EFI disk.
    pub bios: Firmware,
    /// Microsoft's keys are in the EFI disk, and the firmware starts nothing that they did not sign. Needs `bios = "ovmf"`.
    pub secure_boot: bool,
    /// A virtual TPM 2.0, its state on `storage`.
    pub tpm: bool,
    /// The SCSI controller.
    pub scsi_controller: ScsiController,
    /// The VM has a guest agent: the image has `qemu-guest-agent`, or its like.
    pub agent: bool,
    /// PVE's own cloud-init drive, with the host name, the user, the keys and the addresses. With `[template.NAME.cloud_init]` its
    /// ISO takes the place.
    pub cloud_init_drive: bool,
}

impl Default for Create {
    fn default() -> Create {
        Create {
            storage: StorageNames::default(),
            image: None,
            iso: None,
            boot: Vec::new(),
            machine: Chipset::Q35,
            bios: Firmware::Seabios,
            secure_boot: false,
            tpm: false,
            scsi_controller: ScsiController::VirtioScsiSingle,
            agent: true,
            cloud_init_drive: true,
        }
    }
}
