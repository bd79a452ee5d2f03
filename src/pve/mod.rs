//! The Proxmox VE client: only the calls we use.
