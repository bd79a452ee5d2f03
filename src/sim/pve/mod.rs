//! The fake Proxmox VE API.
