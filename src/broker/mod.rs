//! The root process between the daemon and Proxmox VE.
