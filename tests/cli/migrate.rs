//! `migrate kproximate`: settings as people have them become a file that our own reading takes, without a secret in it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use pve_autoscaler::config::{self, Settings};
use pve_autoscaler::model::hosts::HostStrategy;

use super::{program, text};

/// As the chart of the fork by paradoxe35 has it, with everything set.
const VALUES: &str = r#"
kproximate:
  config:
    debug: true
    waitSecondsForJoin: 120
    waitSecondsForProvision: 1200
    loadHeadroom: 0.3
    scaleDownStabilizationMinutes: 7
    minNodeAgeMinutes: 0
    kpNodeCores: 4
    kpNodeMemory: 6144
    kpNodeLabels: "topology.kubernetes.io/region=attic,topology.kubernetes.io/zone={{ .TargetHost }},rack=r-{{.TargetHost}},tier=batch,kubernetes.io/os=linux,broken"
    kpNodeNamePrefix: kp-node
    kpNodeTemplateName: ubuntu-22.04-cloudinit-template
    kpQemuExecJoin: true
    kpLocalTemplateStorage: true
    maxKpNodes: 4
    pmAllowInsecure: true
    pmUrl: https://scaler:hunter2@proxmox.example.com:8006/api2/json
    pmUserID: kproximate@pam!kproximate
    pollInterval: 5
    nodeSelectionStrategy: "balanced"
    minAvailableCpuCores: 4
    minAvailableMemoryMB: 8192
    excludedNodes: "pve3, pve4,pve3,not a host"
    maxKpNode: 5
    pmTokn: misspelt-secret
  secrets:
    pmToken: 42adb612-906d-425e-a46a-aff2826162e2
    kpJoinCommand: kubeadm join 192.0.2.5:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:1234
    sshKey: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9K7oYVlC2pbAsN5DepToDsCjVAlu0F9brXSYx4zY9b admin
workerReplicaCount: 2
rabbitmq:
  auth:
    password: rabbits-are-fast
image:
  registry: ghcr.io/paradoxe35
extra: {a: 1}
"#;

fn run(arguments: &[&Path], input: &[u8]) -> Output {
    let mut child = program()
        .args(["migrate", "kproximate"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    // Who does not want all of it closes the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("it ends")
}

/// What comes of a text on standard input, and how our own reading takes it.
fn taken(input: &str) -> (String, Settings) {
    let output = run(&[Path::new("-")], input.as_bytes());
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.is_empty(), "{said}");
    let settings = config::parse(&told, "migrated").unwrap_or_else(|e| panic!("{e}\n{told}"));
    assert!(
        settings.configured && settings.warnings.is_empty(),
        "{:?}",
        settings.warnings
    );
    (told, settings)
}

fn refused(input: &[u8]) -> String {
    let output = run(&[Path::new("-")], input);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(output.stdout.is_empty());
    text(&output.stderr)
}

#[test]
fn the_charts_values_become_a_whole_file() {
    let (told, settings) = taken(VALUES);
    let pool = &settings.policy.pools["kp-node"];
    assert_eq!((pool.min, pool.max, &*pool.region), (0, 4, "attic"));
    assert_eq!(pool.host_rules.strategy, HostStrategy::Balanced);
    assert_eq!(pool.host_rules.exclude.len(), 2);
    assert_eq!(pool.host_rules.min_free_cpu_milli, 4000);
    assert_eq!(pool.host_rules.min_free_memory, 8 << 30);
    let size = &settings.policy.instance_types["kp-node"];
    assert_eq!((size.cores, size.memory), (4, 6 << 30));
    let table: toml::Table = toml::from_str(&told).expect("it is TOML");
    let at = |path: &str| {
        let start = toml::Value::Table(table.clone());
        path.split('/').fold(start, |value, key| {
            value
                .get(key)
                .unwrap_or_else(|| panic!("{path}\n{told}"))
                .clone()
        })
    };
    for (path, value) in [
        (
            "template/kproximate/vm_name",
            "ubuntu-22.04-cloudinit-template",
        ),
        ("template/kproximate/clone", "full"),
        ("pool/kp-node/labels/rack", "r-{{ host }}"),
        ("pool/kp-node/labels/tier", "batch"),
        ("pool/kp-node/join/method", "kubeadm"),
        ("pool/kp-node/join/endpoint", "192.0.2.5:6443"),
        ("scale_up/max_node_provision_time", "1200s"),
        ("scale_down/delay_after_add", "7m"),
        ("scale_down/min_node_age", "10m"),
        ("region/attic/channel", "local"),
    ] {
        assert_eq!(at(path).as_str(), Some(value), "{path}\n{told}");
    }
    assert_eq!(at("scale_up/max_in_flight").as_integer(), Some(2));
    for words in [
        "maxKpNodes = \"4\" (standard input:17)",
        "loadHeadroom = \"0.3\" (standard input:7) has no equal",
        "pmAllowInsecure = \"true\" (standard input:18) has no equal",
        "#endpoints = [\"https://proxmox.example.com:8006\"]",
        "#token_id = \"kproximate@pam!kproximate\"",
        "excludedNodes names \"not a host\"",
        "kpNodeLabels has \"broken\"",
        "kproximate.config.maxKpNode = \"5\" (standard input:26) is no setting of kproximate; maxKpNodes may be meant",
        "kproximate.config.pmTokn, whose value is not shown, (standard input:27)",
        "extra = a map",
        "Not needed, there is no queue: rabbitMQPassword (standard input:",
        "PVE_AUTOSCALER_LOG=debug",
        "DECIDE: VMIDs for machines alone",
    ] {
        assert!(
            told.replace("\n# ", " ").contains(words),
            "no {words:?} in\n{told}"
        );
    }
    assert!(!told.contains("waitSecondsForJoin = \"120\"\n"), "{told}");
}

/// As the chart of kproximate's pull request 24 has them.
#[test]
fn hosts_and_pauses_of_the_newer_chart_are_carried_over() {
    let values = "kproximate:\n  config:\n    pmUrl: https://proxmox.example.com:8006/api2/json\n    pmUserID: a@pve!b\n    \
        kpNodeTemplateName: debian\n    enableAffinityScaling: true\n    pmExcludeHosts: \"pve3, pve4,not a host\"\n    \
        scaleDownCooldownSeconds: 450\n";
    let (told, settings) = taken(values);
    let excluded = |settings: &Settings| -> BTreeSet<String> {
        let pool = &settings.policy.pools["kp-node"];
        let hosts = pool.host_rules.exclude.iter();
        hosts.map(ToString::to_string).collect()
    };
    let hosts = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    assert_eq!(excluded(&settings), hosts(&["pve3", "pve4"]));
    assert_eq!(settings.policy.scale_down.delay_after_add.0, 450_000);
    let said = told.replace("\n# ", " ");
    for words in [
        "pmExcludeHosts names \"not a host\"",
        "pmExcludeHosts = \"pve3, pve4,not a host\" (standard input:7)",
        "scaleDownCooldownSeconds = \"450\" (standard input:8)",
        "enableAffinityScaling = \"true\" (standard input:6): not needed",
    ] {
        assert!(said.contains(words), "no {words:?} in\n{told}");
    }
    assert!(!told.contains("no setting of kproximate"), "{told}");
    // Beside the keys of the fork: hosts of both, and its time.
    let both =
        format!("{values}    excludedNodes: pve1,pve4\n    scaleDownStabilizationMinutes: 2\n");
    let (told, settings) = taken(&both);
    assert_eq!(excluded(&settings), hosts(&["pve1", "pve3", "pve4"]));
    assert_eq!(settings.policy.scale_down.delay_after_add.0, 120_000);
    let said = told.replace("\n# ", " ");
    assert!(
        said.contains("says the same as scaleDownStabilizationMinutes"),
        "{told}"
    );
}

#[test]
fn no_secret_is_printed() {
    let secrets = [
        "hunter2",
        "42adb612",
        "abcdef.0123456789abcdef",
        "sha256:1234",
        "rabbits-are-fast",
        "misspelt-secret",
    ];
    let (told, _) = taken(VALUES);
    let broken = VALUES.replace("kpNodeCores: 4", "kpNodeCores: four");
    let said = refused(broken.as_bytes());
    let list = "pmToken: [42adb612]\nkpNodeCores: 2\npmPassword: {a: hunter2}\n";
    let of_lists = refused(list.as_bytes());
    assert!(
        of_lists.contains("pmToken: expected text (it is not shown), found a list"),
        "{of_lists}"
    );
    let private = "kpNodeCores=2\nword=rabbits-are-fast\nsshKey=-----BEGIN OPENSSH PRIVATE KEY----- 42adb612\nMY_PASSWORD=hunter2\n";
    let (of_key, _) = taken(private);
    assert!(of_key.contains("is no public SSH key"), "{of_key}");
    // Where it does not belong: a password in a URL.
    let of_url = refused(b"kpNodeMemory: https://a:hunter2@b/\n");
    let (of_host, _) = taken("kpNodeCores: 2\nexcludedNodes: https://a:hunter2@b/\n");
    assert!(
        of_url.contains("https://a:<redacted>@b") && of_host.contains("https://a:<redacted>@b"),
        "{of_url}{of_host}"
    );
    for secret in secrets {
        for text in [&told, &said, &of_lists, &of_key, &of_url, &of_host] {
            assert!(!text.contains(secret), "{secret} is in\n{text}");
        }
    }
}

/// The switched-off lines of a token are a working region once they are switched on.
#[test]
fn the_lines_of_a_token_are_valid_too() {
    let (told, _) = taken(VALUES);
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| *line != "channel = \"local\"")
        .collect();
    let keys = [
        "channel",
        "endpoints",
        "token_id",
        "token_secret_file",
        "ca_file",
    ];
    let on = lines.into_iter().map(|line| {
        let off = line.strip_prefix('#').filter(|rest| {
            keys.iter()
                .any(|key| rest.starts_with(&format!("{key} = ")))
        });
        off.unwrap_or(line).to_owned() + "\n"
    });
    let text = on.collect::<String>();
    assert!(text.contains("\nchannel = \"token\"\n"), "{text}");
    config::parse(&text, "by token").unwrap_or_else(|e| panic!("{e}\n{text}"));
}

const MANIFESTS: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: kube-root-ca.crt}
  data: {ca.crt: x}
- kind: ConfigMap
  metadata: {name: kproximate}
  data:
    kpNodeCores: '2'
    kpNodeMemory: '2000'
    kpNodeNamePrefix: Kp_Node
    kpNodeTemplateName: kproximate-template
    maxKpNodes: '3'
    pmUrl: https://192.0.2.10:8006/api2/json
    pmUserID: root@pam
- kind: Secret
  data:
    pmPassword: aHVudGVyMg==
    kpJoinCommand: Y3VybCAtc2ZMIGh0dHBzOi8vZ2V0Lmszcy5pbyB8IEszU19VUkw9aHR0cHM6Ly8xOTIuMC4yLjU6NjQ0MyBLM1NfVE9LRU49aHVudGVyMiBzaCAt
    rabbitMQPassword: aHVudGVyMg==
- kind: Deployment
  metadata: {name: kproximate-worker}
  spec:
    replicas: 3
    template:
      spec:
        containers:
        - name: worker
          envFrom: [{configMapRef: {name: kproximate}}]
          env:
          - {name: kpQemuExecJoin, value: 'true'}
          - {name: maxKpNodes, value: '6'}
          - {name: pmToken, valueFrom: {secretKeyRef: {name: a, key: b}}}
";

#[test]
fn manifests_as_kubectl_prints_them_are_read_and_a_later_one_counts() {
    let (told, settings) = taken(MANIFESTS);
    let pool = &settings.policy.pools["kp-node"];
    assert_eq!((pool.max, &*pool.region), (6, "default"));
    assert_eq!(settings.policy.instance_types["kp-node"].memory, 2000 << 20);
    for words in [
        "in place of the one at standard input:15",
        "method = \"k3s\"",
        "endpoint = \"192.0.2.5:6443\"",
        "max_in_flight = 3",
        "a user with a password: here it must be an API token",
        "\"Kp_Node\" (standard input:13) cannot be the name of a pool",
    ] {
        assert!(
            told.replace("\n# ", " ").contains(words),
            "no {words:?} in\n{told}"
        );
    }
    assert!(
        !told.contains("hunter2") && !told.contains("ca.crt"),
        "{told}"
    );
}

#[test]
fn values_that_our_rules_do_not_take_are_left_out_with_the_rules_words() {
    let (told, settings) = taken(
        "kpNodeCores: 0\nkpNodeMemory: 256\nkpNodeTemplateName: 'under_score'\nmaxKpNodes: 99999999999\n\
         sshKey: ssh-ed25519 cut\nkpNodeLabels: 'kubernetes.io/hostname=x,a b=c,gap={{ .Other }},fine=yes'\n\
         nodeSelectionStrategy: fullest\npollInterval: -5\n",
    );
    let size = &settings.policy.instance_types["kp-node"];
    assert_eq!((size.cores, size.memory), (2, 2 << 30));
    let pool = &settings.policy.pools["kp-node"];
    assert_eq!(
        (pool.max, pool.host_rules.strategy),
        (3, HostStrategy::Spread)
    );
    for words in [
        "DECIDE: not 0: expected at least 1. In its place stands 2. It was: kpNodeCores = \"0\" (standard input:1)",
        "not \"256MiB\": expected whole MiB",
        "not \"under_score\": expected",
        "not 99999999999: ",
        "expected a public key",
        "DECIDE: left out: is set by the program itself.",
        "fine = \"yes\"",
        "is none that kproximate knows",
    ] {
        assert!(
            told.replace("\n# ", " ").contains(words),
            "no {words:?} in\n{told}"
        );
    }
}

/// What `helm get values` prints, as it is: with its heading, and with `null` where nothing was set.
#[test]
fn what_helm_prints_is_taken_as_it_is() {
    for heading in ["USER-SUPPLIED VALUES:", "COMPUTED VALUES:"] {
        let (told, settings) = taken(&format!(
            "{heading}\nkproximate:\n  config:\n    kpNodeCores: 3\n"
        ));
        assert_eq!(settings.policy.instance_types["kp-node"].cores, 3);
        assert!(!told.contains(heading), "{told}");
        assert!(told.contains("(standard input:4)"), "{told}");
        for nothing in ["null", "{}"] {
            let said = refused(format!("{heading}\n{nothing}\n").as_bytes());
            assert!(
                said.contains("no value is in it") && said.contains("helm get values --all"),
                "{said}"
            );
        }
    }
}

#[test]
fn other_forms_of_the_same_are_read() {
    for input in [
        "kpNodeCores=3\nexport KP_NODE_MEMORY=\"4096\"\n# nothing\n",
        "- {name: kpNodeCores, value: '3'}\n- {name: kpNodeMemory, value: '4096'}\n",
        "---\nkpNodeCores: 3\n---\nkpNodeMemory: 4096\n",
        "\u{feff}kproximate: {kproximate: {config: {kpNodeCores: 3, kpNodeMemory: 4096}}}\n",
        "kind: HelmRelease\nspec: {values: {kproximate: {config: {kpNodeCores: 3, kpNodeMemory: 4096}}}}\n",
        "kind: Secret\nstringData: {kpNodeCores: '3', kpNodeMemory: '4096'}\n",
    ] {
        let (_, settings) = taken(input);
        let size = &settings.policy.instance_types["kp-node"];
        assert_eq!((size.cores, size.memory), (3, 4 << 30), "{input}");
    }
    let (told, _) = taken(
        "kproximate: {config: {kpQemuExecJoin: true}, secrets: {kpJoinCommand: 'k0s token create'}}\nimage: {registry: ghcr.io/lupinelab}",
    );
    assert!(
        told.contains("secret_file = ")
            && told.contains("clone = \"linked\"")
            && !told.contains("k0s token"),
        "{told}"
    );
}

#[test]
fn what_cannot_be_read_is_told_with_key_value_and_line() {
    for (input, why) in [
        (
            "kproximate:\n  config:\n    kpNodeCores: two\n",
            "standard input:3: kproximate.config.kpNodeCores = \"two\": expected a whole number",
        ),
        (
            "kpNodeCores: 2\npmDebug: yes\n",
            "standard input:2: pmDebug = \"yes\": expected true or false",
        ),
        (
            "kpNodeCores: 2\nloadHeadroom: NaN\n",
            "loadHeadroom = \"NaN\": expected a number",
        ),
        (
            "kpNodeCores: [2]\n",
            "standard input:1: kpNodeCores: expected a whole number, found a list",
        ),
        (
            "kproximate:\n  config: 5\n",
            "standard input:2: kproximate.config: expected a map, found text",
        ),
        (
            "kpNodeCores: 2\nkpNodeCores: 3\n",
            "standard input:2: kpNodeCores is there twice",
        ),
        ("kpNodeCores: 2\n\tx: [\n", "is no YAML"),
        (
            "kind: Secret\ndata:\n  pmToken: '%%%'\n",
            "standard input:3: data.pmToken: expected text in base64; it is not shown",
        ),
        (
            "kpNodeCores=2\nnonsense\n",
            "standard input:2: expected a line such as kpNodeCores=2",
        ),
        (
            "kproximate:\n  config:\n    kpNodeCores: 2\n    kpNodeTemplateName: \"\"\n",
            "standard input:4: kproximate.config.kpNodeTemplateName is empty, and kproximate does not start without it",
        ),
        (
            "kpNodeCores=2\npmUserID=\n",
            "standard input:2: pmUserID is empty, and kproximate does not start without it",
        ),
        (
            "kpNodeCores: 2\npmUrl:\n",
            "standard input:2: pmUrl is empty, and kproximate does not start without it",
        ),
        (
            "kpNodeCores: 2\npmUrl: 10.0.0.1\n",
            "standard input:2: pmUrl = \"10.0.0.1\": expected a URL such as https://HOST:8006/api2/json",
        ),
        ("", "no setting of kproximate is in it"),
        (
            "kind: Deployment\nspec: {template: {spec: {containers: [{envFrom: []}]}}}\n",
            "give those",
        ),
        ("a: b\n", "no setting of kproximate is in it"),
        ("kpNodeCores: 2\n\0\n", "line 2 has a NUL byte"),
    ] {
        let said = refused(input.as_bytes());
        assert!(said.contains(why), "{input:?}: {said}");
    }
    assert!(
        refused(b"kpNodeCores: \xff\n").contains("line 1 has a byte that is none of it (byte 13 ")
    );
}

/// The chart's own values have none of what must be given: what another file gives counts. A URL without a port is kept as it is and said.
#[test]
fn what_is_empty_in_one_file_may_stand_in_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(
        path("chart.yaml"),
        "kproximate:\n  config:\n    kpNodeTemplateName: \"\"\n    pmUrl: \"\"\n    pmUserID:\n    kpNodeLabels: \"\"\n",
    )
    .expect("written");
    std::fs::write(
        path("own.yaml"),
        "kproximate:\n  config:\n    kpNodeTemplateName: debian\n    pmUrl: https://pve.example/api2/json\n    pmUserID: a@pve!b\n",
    )
    .expect("written");
    for files in [["chart.yaml", "own.yaml"], ["own.yaml", "chart.yaml"]] {
        let paths = files.map(path);
        let output = run(&paths.each_ref().map(|path| &**path), b"");
        let (told, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(told.contains("vm_name = \"debian\""), "{told}");
        let told = told.replace("\n# ", " ");
        for words in [
            "endpoints = [\"https://pve.example\"]",
            "it has no port, which is 443; PVE itself answers at 8006",
        ] {
            assert!(told.contains(words), "no {words:?} in\n{told}");
        }
    }
}

#[test]
fn files_that_are_none_or_too_large_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large.yaml");
    let file = std::fs::File::create(&large).expect("made");
    file.set_len(100 << 20).expect("long");
    for (path, why) in [
        (folder.path(), "cannot be read: Is a directory"),
        (&large, "is larger than 4194304 bytes"),
        (
            &folder.path().join("none.yaml"),
            "cannot be read: No such file",
        ),
        (Path::new("/dev/zero"), "is larger than"),
    ] {
        let output = run(&[path], b"");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains(why) && said.contains(&*path.display().to_string()),
            "{said}"
        );
    }
    assert_eq!(run(&[], b"").status.code(), Some(2));
}
