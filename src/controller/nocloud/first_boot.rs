//! The script by which cloud-init joins a machine at its first boot. Pure.
//!
//! Nobody could ask the guest which kubeadm or agent it has: the script carries a payload for each version that wants another one,
//! asks the guest itself, and hands the right one to the same script that the guest agent is given.

use std::fmt::Write as _;

use secrecy::{ExposeSecret as _, SecretString};

use crate::controller::guest;

/// Where cloud-init looks whether it is switched off.
const DISABLED: &str = "/etc/cloud/cloud-init.disabled";
/// Ends the texts within the script; no line of a payload or of our own script is this.
const END: &str = "END-OF-PVE-AUTOSCALER";

/// What a machine gets that the guest agent joins: its drive goes once its node is Ready, and later boots must not take it for
/// another machine for that, with other keys and no addresses.
pub const ONCE: &str = "#!/bin/sh
# pve-autoscaler guest script: first-boot
# The drive that cloud-init read goes; later boots do without.
: >/etc/cloud/cloud-init.disabled
";

/// A join at the first boot.
#[derive(Debug)]
pub struct FirstBoot<'a> {
    /// The guest's program whose version decides, such as `kubeadm`; none where it does not matter.
    pub program: Option<&'a str>,
    /// From which minor version on which payload is right, or why there is none, in ascending order.
    pub payloads: Vec<(u32, Result<SecretString, String>)>,
    /// The public part of the machine's bootstrap token: what follows it is blotted out of what is printed.
    pub token: &'a str,
}

/// The script. It holds a secret.
pub fn script(join: &FirstBoot<'_>) -> SecretString {
    let version = match join.program {
        None => "minor=0\n".to_owned(),
        Some("kubeadm") => asked("kubeadm", "kubeadm version -o short"),
        Some(program) => asked(program, &format!("{program} --version")),
    };
    let mut chosen = String::new();
    for (number, (from, payload)) in join.payloads.iter().rev().enumerate() {
        let branch = if number == 0 { "if" } else { "elif" };
        let _ = writeln!(chosen, "  {branch} [ \"$minor\" -ge {from} ]; then");
        match payload {
            Ok(payload) => {
                let text = payload.expose_secret();
                let _ = writeln!(chosen, "    cat <<'{END}'\n{}\n{END}", text.trim_end());
            }
            Err(why) => {
                let why: String = why.chars().filter(|c| *c != '\'').collect();
                let _ = writeln!(chosen, "    echo 'error: {why}' >&2\n    return 1");
            }
        }
    }
    let last = "  else\n    echo \"error: version $version is too old\" >&2\n    return 1\n  fi\n";
    let (joins, token) = (guest::JOIN.trim_end(), join.token);
    SecretString::from(format!(
        r#"#!/bin/sh
# pve-autoscaler guest script: first-boot
# cloud-init runs it once, at the first boot. The token in it is this machine's alone, and is deleted once it has joined.
umask 077
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
dir=/run/pve-autoscaler
{version}payload() {{
{chosen}{last}}}
join() {{
  cat <<'{END}'
{joins}
{END}
}}
mkdir -p "$dir" && chmod 0700 "$dir" || exit 1
payload >"$dir/payload" || exit 1
sh -c "$(join)" pve-autoscaler <"$dir/payload" >"$dir/said" 2>&1
code=$?
rm -f "$dir/payload"
[ "$code" -eq 0 ] || {{ cat "$dir/said" >&2; exit 1; }}
until [ -s "$dir/exit" ]; do sleep 1; done
sed 's/{token}\.[a-z0-9]*/{token}.<redacted>/g' "$dir/log"
code=$(cat "$dir/exit")
[ "$code" -eq 0 ] || exit "$code"
# The drive that cloud-init read goes; later boots do without.
: >{DISABLED}
"#
    ))
}

/// Asks the guest for a program's version.
fn asked(program: &str, command: &str) -> String {
    format!(
        r#"program={program}
if ! command -v "$program" >/dev/null 2>&1; then
  echo "error: the guest has no $program: install it in the template" >&2
  exit 1
fi
version=$({command} 2>/dev/null | head -n 1)
minor=$(printf '%s\n' "$version" | sed -n 's/.*v1\.\([0-9][0-9]*\).*/\1/p')
minor=${{minor:-0}}
"#
    )
}
