//! What a guest gets, for each kubeadm.

use base64::Engine as _;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::*;

/// The files of a payload by path, and its script.
fn read(payload: &SecretString) -> (BTreeMap<String, String>, String) {
    let decoded = |text: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text);
        String::from_utf8(bytes.expect("base64")).expect("text")
    };
    let (mut files, mut script) = (BTreeMap::new(), String::new());
    let text = payload.expose_secret();
    assert!(text.is_ascii() && text.ends_with('\n'));
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["file", mode, path, content] => {
                assert!(["0600", "0644"].contains(&mode), "{line}");
                files.insert(path.to_owned(), decoded(content));
            }
            ["run", content] => script = decoded(content),
            _ => panic!("{line}"),
        }
    }
    (files, script)
}

type Made = (Value, Option<Value>);

fn made_with(kubeadm: &str, kubelet: &Value) -> Result<Made, JoinError> {
    let labels: Labels = [
        ("pve-autoscaler.io/pool", "small"),
        ("topology.kubernetes.io/zone", "pve1"),
        ("node-role.kubernetes.io/worker", ""),
    ]
    .into_iter()
    .map(|(k, v)| (Arc::from(k), Arc::from(v)))
    .collect();
    let secret = SecretString::from("0123456789abcdef".to_owned());
    let payload = payload(&JoinInput {
        version: kubeadm,
        node_name: "small-abcde",
        endpoint: "10.0.0.1:6443",
        trust: JoinTrust::Keys(("abcdef", &secret), &["sha256:00".to_owned()]),
        labels: &labels,
        taints: &[Taint::no_schedule("gpu", "yes")],
        provider_id: Some("proxmox://home/9001"),
        kubelet: kubelet.as_object().expect("an object"),
        settings: &JoinSettings::default(),
    })?;
    let (files, script) = read(&payload);
    assert_eq!(
        script,
        "kubeadm join --config /run/pve-autoscaler/files/join.json\n"
    );
    let json = |path: &str| {
        files
            .get(path)
            .map(|text| serde_json::from_str(text).expect("json"))
    };
    let patch = json("/etc/kubernetes/pve-autoscaler-patches/kubeletconfiguration+merge.json");
    let join = json("/run/pve-autoscaler/files/join.json").expect("a configuration");
    assert_eq!(files.len(), 1 + usize::from(patch.is_some()));
    Ok((join, patch))
}

fn made(kubeadm: &str) -> Result<Value, JoinError> {
    made_with(kubeadm, &json!({})).map(|(join, patch)| {
        assert_eq!((patch, join.get("patches")), (None, None));
        join
    })
}

#[test]
fn each_kubeadm_gets_its_own_api_version() {
    let new = made("v1.36.2").expect("made");
    assert_eq!(new["apiVersion"], "kubeadm.k8s.io/v1beta4");
    assert_eq!(
        new["nodeRegistration"]["kubeletExtraArgs"],
        json!([
            {"name": "node-labels", "value": "pve-autoscaler.io/pool=small,topology.kubernetes.io/zone=pve1"},
            {"name": "provider-id", "value": "proxmox://home/9001"},
        ])
    );
    let old = made("v1.29.0").expect("made");
    assert_eq!(old["apiVersion"], "kubeadm.k8s.io/v1beta3");
    assert!(old["nodeRegistration"]["kubeletExtraArgs"]["node-labels"].is_string());
    assert_eq!(
        new["nodeRegistration"]["taints"],
        json!([
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": STARTUP_TAINT, "value": "", "effect": "NoSchedule"},
        ])
    );
    assert_eq!(made(""), Err(JoinError::NoKubeadm));
    assert!(matches!(made("v1.19.0"), Err(JoinError::Version(_))));
    assert!(matches!(made("oops"), Err(JoinError::Version(_))));
}

#[test]
fn settings_of_the_kubelet_are_a_patch_where_kubeadm_takes_one() {
    let kubelet =
        json!({"maxPods": 50, "failSwapOn": false, "memorySwap": {"swapBehavior": "NoSwap"}});
    let (join, patch) = made_with("v1.34.1", &kubelet).expect("made");
    assert_eq!(
        join["patches"]["directory"],
        "/etc/kubernetes/pve-autoscaler-patches"
    );
    assert_eq!(patch, Some(kubelet.clone()));
    // A kubelet of that age refuses the word.
    let (_, patch) = made_with("v1.29.3", &kubelet).expect("made");
    assert_eq!(patch, Some(json!({"maxPods": 50, "failSwapOn": false})));
    let old = made_with("v1.24.9", &kubelet);
    assert_eq!(old, Err(JoinError::Kubelet("v1.24.9".to_owned())));
    assert!(made("v1.24.9").is_ok());
}

fn agent(
    method: JoinMethod,
    version: &str,
    kubelet: &Value,
) -> Result<(BTreeMap<String, String>, String), JoinError> {
    let labels: Labels = [("pool", "small"), ("node-role.kubernetes.io/worker", "")]
        .map(|(k, v)| (Arc::from(k), Arc::from(v)))
        .into();
    let secret = SecretString::from("0123456789abcdef".to_owned());
    let settings = JoinSettings {
        method,
        kubelet_args: [("v", "2"), ("node-ip", "192.0.2.10, 2001:db8::10")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..JoinSettings::default()
    };
    payload(&JoinInput {
        version,
        node_name: "small-abcde",
        endpoint: "10.0.0.1:6443",
        trust: JoinTrust::Bundle(("abcdef", &secret), "00ff"),
        labels: &labels,
        taints: &[Taint::no_schedule("gpu", "yes")],
        provider_id: Some("proxmox://home/9001"),
        kubelet: kubelet.as_object().expect("an object"),
        settings: &settings,
    })
    .map(|payload| read(&payload))
}

#[test]
fn an_agent_gets_a_drop_in_and_a_token_that_goes() {
    let (files, script) =
        agent(JoinMethod::K3s, "v1.33.3+k3s1", &json!({"maxPods": 50})).expect("made");
    let json = |path: &str| -> Value { serde_json::from_str(&files[path]).expect("json") };
    assert_eq!(
        json("/etc/rancher/k3s/config.yaml.d/50-pve-autoscaler.yaml"),
        json!({
            "server": "https://10.0.0.1:6443",
            "node-name": "small-abcde",
            "node-label": ["pool=small"],
            "node-taint": ["gpu=yes:NoSchedule", "pve-autoscaler.io/uninitialized=:NoSchedule"],
            // The agent's own option: its server's cloud controller goes by it.
            "node-ip": ["192.0.2.10", "2001:db8::10"],
            "kubelet-arg": ["provider-id=proxmox://home/9001", "v=2"],
        })
    );
    let token = "/etc/rancher/k3s/config.yaml.d/60-pve-autoscaler-token.yaml";
    assert_eq!(
        json(token),
        json!({"token": "K1000ff::abcdef.0123456789abcdef"})
    );
    let kubelet = json("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/50-pve-autoscaler.conf");
    assert_eq!(
        (&kubelet["kind"], &kubelet["maxPods"]),
        (&json!("KubeletConfiguration"), &json!(50))
    );
    assert!(
        script.starts_with(&format!(
            "trap 'rm -f {token}' EXIT\nunit=k3s-agent.service\n"
        )),
        "{script}"
    );
    assert!(!script.contains("0123456789abcdef"));
    let (files, script) = agent(JoinMethod::Rke2, "v1.31.1+rke2r1", &json!({})).expect("made");
    assert!(
        files
            .keys()
            .all(|path| path.starts_with("/etc/rancher/rke2/")),
        "{files:?}"
    );
    assert!(script.contains("unit=rke2-agent.service"));
    let old = agent(JoinMethod::K3s, "v1.31.9+k3s1", &json!({"maxPods": 50}));
    assert_eq!(
        old,
        Err(JoinError::AgentKubelet("k3s", "v1.31.9+k3s1".to_owned()))
    );
    assert_eq!(
        agent(JoinMethod::K3s, "", &json!({})),
        Err(JoinError::NoAgent("k3s"))
    );
    assert_eq!(
        agent(JoinMethod::Kubeadm, "v1.34.1", &json!({})),
        Err(JoinError::Changed)
    );
}

/// Runs the script of a k3s agent whose unit comes to `state`: its exit code, and what the token's file holds afterwards.
fn start_agent(state: &str) -> (Option<i32>, Option<String>) {
    let (files, script) = agent(JoinMethod::K3s, "v1.33.3+k3s1", &json!({})).expect("made");
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let directory = "/etc/rancher/k3s/config.yaml.d";
    let token = "60-pve-autoscaler-token.yaml";
    std::fs::write(at(token), &files[&format!("{directory}/{token}")]).expect("written");
    let programs = [
        (
            "systemctl",
            format!("[ \"$1\" != is-active ] || echo {state}"),
        ),
        ("journalctl", "echo the journal".to_owned()),
        ("sleep", ":".to_owned()),
    ];
    for (name, text) in programs {
        std::fs::write(at(name), format!("#!/bin/sh\n{text}\n")).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(at(name), mode).expect("allowed");
    }
    let script = script.replace(directory, &folder.path().display().to_string());
    let ran = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .output()
        .expect("it runs");
    let left = std::fs::read_to_string(at(token)).ok();
    if left.is_some() {
        let found = std::fs::metadata(at(token)).expect("there").permissions();
        let mode = std::os::unix::fs::PermissionsExt::mode(&found) & 0o777;
        assert_eq!(mode, 0o600);
    }
    (ran.status.code(), left)
}

/// An agent that finds no token does not come back after a reboot, although its certificate would let it in.
#[test]
fn an_agent_that_joined_keeps_a_token_without_its_secret() {
    let (code, left) = start_agent("active");
    assert_eq!(code, Some(0));
    let left: Value = serde_json::from_str(&left.unwrap_or_default()).expect("a file");
    assert_eq!(left, json!({"token": "K1000ff::abcdef.0000000000000000"}));
    assert_eq!(start_agent("failed"), (Some(1), None));
}

#[test]
fn a_command_finds_its_secret_in_a_file() {
    let secret = SecretString::from("hush".to_owned());
    let (files, script) = read(&command::payload("my-agent join", &secret, "PEM"));
    assert_eq!(files["/run/pve-autoscaler/files/token"], "hush");
    assert_eq!(files["/run/pve-autoscaler/files/ca.crt"], "PEM");
    assert_eq!(
        script,
        "export PVE_AUTOSCALER_TOKEN_FILE=/run/pve-autoscaler/files/token\nexport PVE_AUTOSCALER_CA_FILE=/run/pve-autoscaler/files/ca.crt\nmy-agent join\n"
    );
}

#[test]
fn machines_register_where_the_kubeconfig_points() {
    let of = |server: &str, port| endpoint(server, port);
    assert_eq!(
        of("https://10.0.0.1:6443", None).as_deref(),
        Ok("10.0.0.1:6443")
    );
    assert_eq!(
        of("https://k3s.example", None).as_deref(),
        Ok("k3s.example:443")
    );
    assert_eq!(
        of("https://[fd00::1]:6443", Some(9345)).as_deref(),
        Ok("[fd00::1]:9345")
    );
    for own in [
        "https://127.0.0.1:6443",
        "https://localhost:6443",
        "https://[::1]:6443",
        "",
    ] {
        assert!(
            of(own, None).is_err_and(|why| why.contains("set join.endpoint")),
            "{own}"
        );
    }
}
