use std::path::Path;

use serde_json::Value;

use super::*;

/// Where PVE's whole schema lies, seen from the repository: beside it, or beside its worktrees.
const WHOLE: [&str; 2] = [
    "../shared/pve/api-schema.json",
    "../../shared/pve/api-schema.json",
];

fn options(pairs: &[(&str, &str)]) -> VmOptions {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// What PVE's schema says of the parameters of the call that makes a VM; `None` where it is not there.
fn schema() -> Option<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = WHOLE
        .iter()
        .filter_map(|path| std::fs::read_to_string(root.join(path)).ok());
    let calls: Vec<Value> = serde_json::from_str(&texts.next()?).expect("JSON");
    let call = calls
        .into_iter()
        .find(|call| call["path"] == "/nodes/{node}/qemu" && call["method"] == "POST");
    Some(call.expect("the call")["parameters"]["properties"].clone())
}

/// PVE writes some numbers as strings.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

#[test]
fn each_parameter_of_pves_call_may_be_named_or_is_refused_with_a_reason() {
    let Some(schema) = schema() else {
        println!("skipped: {} is not there", WHOLE[0]);
        return;
    };
    let schema = schema.as_object().expect("parameters");
    assert!(schema.len() > 90, "the schema is whole");
    let mut wrong = Vec::new();
    for (name, property) in schema {
        let allowed = ALLOWED.iter().find(|rule| rule.name == name);
        let refused = REFUSED.iter().any(|(listed, _)| listed == name);
        if allowed.is_some() == refused {
            wrong.push(format!("{name} is in both lists or in none"));
        }
        let Some(rule) = allowed else { continue };
        let kind = property["type"].as_str().unwrap_or_default();
        let bounds = (number(&property["minimum"]), number(&property["maximum"]));
        let same = match &rule.kind {
            Flag => kind == "boolean",
            Whole(least, most) => {
                kind == "integer"
                    && bounds == (Some(*least), Some(*most).filter(|most| *most != i64::MAX))
            }
            Number => kind == "number" && bounds == (Some(0), None),
            Words(words) => property["enum"] == serde_json::json!(words),
            Properties(_) | Text(_) => kind == "string" && property["enum"].is_null(),
        };
        if !same {
            wrong.push(format!(
                "{name} is another than in PVE's schema: {property}"
            ));
        }
    }
    let known = |name: &str| schema.contains_key(name);
    let listed = ALLOWED.iter().map(|rule| rule.name);
    let listed = listed.chain(REFUSED.iter().map(|(name, _)| *name));
    wrong.extend(
        listed
            .filter(|name| !known(name))
            .map(|name| format!("{name} is not in PVE's schema")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn values_are_taken_and_refused_as_pve_does() {
    for (name, value) in [
        ("tablet", "0"),
        ("kvm", "1"),
        ("shares", "50000"),
        ("migrate_speed", "0"),
        ("migrate_downtime", "0.5"),
        ("keyboard", "de-ch"),
        ("hotplug", "0"),
        ("hotplug", "1"),
        ("hotplug", "network,disk,usb,cloudinit"),
        ("startdate", "now"),
        ("startdate", "2026-1-9"),
        ("startdate", "2026-11-29T08:15:00"),
        ("serial3", "socket"),
        ("serial0", "/dev/serial/by-id/usb-x-if00-port0"),
        ("parallel2", "/dev/usb/lp0"),
        ("usb13", "mapping=key,usb3=1"),
        ("usb0", "spice"),
        ("vmstatestorage", "local-zfs"),
        ("smbios1", "manufacturer=Shop,sku=worker"),
        ("smbios1", "base64=1,product=YSBiLGM="),
        ("watchdog", "model=i6300esb,action=reset"),
        ("rng0", "source=/dev/urandom"),
        ("virtiofs9", "dirid=data"),
    ] {
        assert_eq!(check(name, value), Ok(()), "{name}={value}");
    }
    for (name, value, said) in [
        ("tablet", "2", "expected true or false"),
        ("shares", "50001", "expected a whole number, 0 to 50000"),
        ("migrate_speed", "-1", "expected a whole number, 0 or more"),
        ("migrate_downtime", "NaN", "expected a number, 0 or more"),
        ("migrate_downtime", "-0.1", "expected a number, 0 or more"),
        ("keyboard", "dvorak", "expected one of de, de-ch"),
        ("keyboard", "de\nargs: -S", "expected one line"),
        ("keyboard", " de", "without blanks around it"),
        ("keyboard", "", "is empty"),
        ("hotplug", "network,pci", "expected true, false, or some of"),
        ("startdate", "2026-11", "expected now, or a date"),
        ("startdate", "2026-11-29T08:15", "expected now, or a date"),
        ("serial0", "/dev/../etc/shadow", "expected socket"),
        ("serial0", "ttyS0", "expected socket"),
        ("parallel0", "/dev/parport", "expected a device of the host"),
        ("usb0", "usb3=1", "expected either host or mapping"),
        (
            "usb0",
            "host=1-2,mapping=key",
            "expected either host or mapping",
        ),
        ("vmstatestorage", "/mnt", "expected a storage's name"),
        (
            "smbios1",
            "uuid=0b5f3a6e-0000-4000-8000-0123456789ab",
            "each machine's own",
        ),
        ("smbios1", "serial=QQ==", "each machine's own"),
        ("smbios1", "manufacturer=a b", "expected letters, digits"),
        ("smbios1", "manufacturer", "expected letters, digits"),
        ("smbios1", "base64=1,product=abc", "which is no base64"),
        ("smbios1", "sku=a,sku=b", "sku is in it twice"),
        ("smbios1", "colour=red", "PVE has no \"colour\" in it"),
        ("machine", "viommu=intel", "type is missing in it"),
    ] {
        let why = check(name, value).expect_err(value);
        assert!(why.contains(said), "{name}={value}: {why}");
    }
    let long = format!("sku={}", "a".repeat(MAX_VALUE - 4));
    let why = check(SMBIOS, &long).expect_err("it is too long");
    assert!(why.contains("expected 320 at most"), "{why}");
    for name in [
        "serial4",
        "usb14",
        "usb00",
        "usb+1",
        "parallel",
        "rng1",
        "serial[n]",
        "cores",
    ] {
        assert!(!may_be_named(name), "{name}");
        check(name, "1").expect_err(name);
    }
    for name in names() {
        assert!(may_be_named(&name) && refusal(&name).is_none(), "{name}");
        assert_eq!(others_with_a_number(&name), None, "{name} is there");
    }
    let others = |name: &str| others_with_a_number(name).unwrap_or_default();
    assert_eq!(others("usb14"), "usb0 to usb13");
    assert_eq!(others("parallel3"), "parallel0 to parallel2");
    for name in ["usb", "rng1", "vlan7"] {
        assert_eq!(others(name), "", "{name}");
    }
}

/// Whoever needs what: a privilege on the VM, one on a mapping or storage, or root in person.
#[test]
fn a_token_needs_what_pve_asks_for() {
    let of = |name: &str, value: &str| {
        let all = privileges(name, value)?;
        let texts = all.iter().map(|one| {
            let path = one.path.as_deref().unwrap_or("VM");
            format!("{path} {}", one.name)
        });
        Some(texts.collect::<Vec<String>>().join(", "))
    };
    for (name, value, wanted) in [
        ("tablet", "0", "VM VM.Config.HWType"),
        ("keyboard", "de", "VM VM.Config.Options"),
        ("shares", "0", "VM VM.Config.Memory"),
        ("serial0", "socket", "VM VM.Config.HWType"),
        ("usb0", "spice", "VM VM.Config.HWType"),
        (
            "usb0",
            "mapping=key",
            "VM VM.Config.HWType, /mapping/usb/key Mapping.Use",
        ),
        ("rng0", "/dev/urandom", "VM VM.Config.HWType"),
        (
            "rng0",
            "source=/dev/hwrng",
            "VM VM.Config.HWType, /mapping/hwrng Mapping.Use",
        ),
        (
            "virtiofs0",
            "data",
            "VM VM.Config.Disk, /mapping/dir/data Mapping.Use",
        ),
        (
            "vmstatestorage",
            "tank",
            "VM VM.Config.Disk, /storage/tank Datastore.AllocateSpace",
        ),
    ] {
        assert_eq!(of(name, value).as_deref(), Some(wanted), "{name}={value}");
    }
    for (name, value) in [
        ("amd-sev", "snp"),
        ("intel-tdx", "tdx,attestation=1"),
        ("spice_enhancements", "foldersharing=1"),
        ("parallel0", "/dev/parport0"),
        ("serial0", "/dev/ttyS0"),
        ("usb0", "host=1-2"),
        ("usb0", "046d:c52b"),
    ] {
        assert_eq!(of(name, value), None, "{name}={value}");
    }
}

#[test]
fn a_vm_takes_some_while_it_runs() {
    let plain = [("shares", "10"), ("tablet", "0"), ("rng0", "/dev/urandom")];
    let split = |pairs: &[(&str, &str)]| {
        let options = options(pairs);
        let at_once: Vec<&str> = in_place(&options).map(|(name, _)| name).collect();
        let later: Vec<&str> = from_the_next_start(&options).into_keys().collect();
        (at_once.join(" "), later.join(" "))
    };
    let both = |at_once: &str, later: &str| (at_once.to_owned(), later.to_owned());
    assert_eq!(split(&plain), both("shares tablet", "rng0"));
    for (hotplug, at_once, later) in [
        ("1", "shares hotplug tablet", "rng0"),
        ("network,usb", "shares hotplug tablet", "rng0"),
        ("0", "shares hotplug", "rng0 tablet"),
        ("network,disk", "shares hotplug", "rng0 tablet"),
        ("usb,memory", "shares tablet", "hotplug rng0"),
        ("cpu", "shares", "hotplug rng0 tablet"),
    ] {
        let mut pairs = plain.to_vec();
        pairs.push(("hotplug", hotplug));
        assert_eq!(split(&pairs), both(at_once, later), "{hotplug}");
    }
}

/// What the file says of the firmware's tables comes beside the machine's own UUID and name, and is written once.
#[test]
fn uuid_and_serial_number_stay() {
    let uuid = "uuid=0b5f3a6e-0000-4000-8000-0123456789ab";
    let file = "manufacturer=Shop,sku=YQ";
    let write = |current: Option<&str>| written(SMBIOS, file, current);
    let ours = "manufacturer=U2hvcA==";
    for (current, wanted) in [
        (None, format!("base64=1,{ours},sku=WVE=")),
        (Some(uuid), format!("base64=1,{ours},sku=WVE=,{uuid}")),
        (
            Some("base64=1,serial=ZHM=,uuid=0b5f3a6e-0000-4000-8000-0123456789ab"),
            format!("base64=1,{ours},serial=ZHM=,sku=WVE=,{uuid}"),
        ),
        // What a template said without base64 is said with it; what the file says too is the file's.
        (
            Some("product=old,manufacturer=other,uuid=0b5f3a6e-0000-4000-8000-0123456789ab"),
            format!("base64=1,{ours},product=b2xk,sku=WVE=,{uuid}"),
        ),
    ] {
        let given = write(current);
        assert_eq!(given, wanted);
        assert_eq!(write(Some(&given)), given, "once more it is the same");
    }
    let encoded = written(SMBIOS, "base64=1,sku=YQ==", Some(uuid));
    assert_eq!(encoded, format!("base64=1,sku=YQ==,{uuid}"));
    assert_eq!(written("tablet", "0", Some("1")), "0");
}
