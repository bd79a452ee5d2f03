//! Interrupts of devices that VFIO gives to guests, as `/proc/interrupts` names them: `vfio-msix[2](0000:01:00.0)`.

use std::path::{Path, PathBuf};

/// The interrupts of these devices.
pub(super) fn of(proc: &Path, devices: &[String]) -> Result<Vec<u32>, String> {
    let path = proc.join("interrupts");
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let of_them = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let mut words = rest.split_whitespace();
        let name = words.find(|word| word.starts_with("vfio-"))?;
        let address = name.rsplit_once('(')?.1.strip_suffix(')')?;
        devices
            .iter()
            .any(|device| device == address)
            .then_some(number)
    };
    Ok(text.lines().filter_map(of_them).collect())
}

/// Where it stands which CPUs get an interrupt.
pub(super) fn path(proc: &Path, number: u32) -> PathBuf {
    proc.join(format!("irq/{number}/smp_affinity_list"))
}
