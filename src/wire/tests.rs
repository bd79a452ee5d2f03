//! The kernel's messages read and written, its verdicts, and the real kernel: on the loopback device, and on a cable between two networks
//! that the test makes for itself, without any privilege.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command, Stdio};

use proptest::prelude::*;

use super::netlink::{ask_neighbour, ask_route, read_neighbour, read_route};
use super::*;

/// A message as the kernel writes one.
fn message(kind: u16, body: [u8; 12], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut rest = body.to_vec();
    for (kind, value) in attributes {
        let length = u16::try_from(4 + value.len()).expect("short");
        rest.extend(length.to_ne_bytes());
        rest.extend(kind.to_ne_bytes());
        rest.extend(*value);
        rest.resize(rest.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(16 + rest.len()).expect("short");
    let mut whole = length.to_ne_bytes().to_vec();
    whole.extend(kind.to_ne_bytes());
    whole.extend([0; 10]);
    whole.extend(rest);
    whole
}

fn error(code: i32) -> Vec<u8> {
    let mut whole = 36_u32.to_ne_bytes().to_vec();
    whole.extend(2_u16.to_ne_bytes());
    whole.extend([0; 10]);
    whole.extend(code.to_ne_bytes());
    whole.extend([0; 16]);
    whole
}

/// A route of this kind.
fn route(kind: u8, attributes: &[(u16, &[u8])]) -> io::Result<KernelRoute> {
    let mut body = [0; 12];
    body[7] = kind;
    read_route(&message(24, body, attributes))
}

#[test]
fn a_route_says_whether_its_address_is_seen() {
    let card = 7_u32.to_ne_bytes();
    let target = (1, &[192, 0, 2, 50][..]);
    let on_link = route(1, &[target, (4, &card)]).expect("it is read");
    assert_eq!(on_link, KernelRoute::OnLink { interface: 7 });
    let gateway = (5, &[192, 0, 2, 1][..]);
    let routed = route(1, &[target, (4, &card), gateway]).expect("it is read");
    assert_eq!(routed, KernelRoute::Gateway);
    // An IPv4 route over an IPv6 gateway has RTA_VIA.
    let via = (18, &[10, 0, 0xfe, 0x80][..]);
    let via = route(1, &[target, (4, &card), via]).expect("it is read");
    assert_eq!(via, KernelRoute::Gateway);
    assert_eq!(
        route(2, &[(4, &card)]).expect("it is read"),
        KernelRoute::Own
    );
    let prohibited = route(8, &[(4, &card)]).expect("it is read");
    assert!(
        matches!(prohibited, KernelRoute::Nowhere(_)),
        "{prohibited:?}"
    );
    let none = read_route(&error(-101)).expect("it is read");
    let KernelRoute::Nowhere(why) = none else {
        panic!("{none:?}");
    };
    assert!(why.contains("unreachable"), "{why}");
}

/// An entry of the table in this state, which was confirmed so many hundredths of a second ago.
fn entry(state: u16, ticks: u32) -> Neighbour {
    let mut body = [0; 12];
    body[8..10].copy_from_slice(&state.to_ne_bytes());
    let mut cache = ticks.to_ne_bytes().to_vec();
    cache.extend([0; 12]);
    let mac = [0xbc, 0x24, 0x11, 0, 0, 0x0a];
    let answer = message(28, body, &[(1, &[192, 0, 2, 50]), (2, &mac), (3, &cache)]);
    let found = read_neighbour(&answer).expect("it is read");
    found.expect("there is an entry")
}

#[test]
fn an_entry_of_the_table_is_read() {
    let found = entry(0x02, 3);
    assert_eq!(found.mac.as_deref(), Some("bc:24:11:00:00:0a"));
    assert_eq!(found.confirmed, Some(Duration::from_millis(30)));
    assert!(found.is_reachable());
    assert_eq!(read_neighbour(&error(-2)).expect("it is read"), None);
    let refused = read_neighbour(&error(-1)).expect_err("not permitted");
    assert_eq!(refused.raw_os_error(), Some(1));
    assert!(read_neighbour(&message(24, [0; 12], &[])).is_err());
}

#[test]
fn an_answer_counts_when_it_came_after_the_question() {
    let ms = Duration::from_millis;
    let mac = || Some("bc:24:11:00:00:0a".into());
    let seen = |state: u16, ticks: u32, waited: u64| judge(Some(&entry(state, ticks)), ms(waited));
    // It answered within a tenth of a second.
    assert_eq!(seen(0x02, 4, 50), Some(held(HolderSign::Neighbour, mac())));
    // It answered somebody else twenty seconds ago: that is waited for, and then it may be there still.
    assert_eq!(seen(0x02, 2_000, 50), None);
    let former = Some(held(HolderSign::FormerNeighbour, mac()));
    assert_eq!(seen(0x02, 2_000, 1_500), former);
    assert_eq!(seen(0x80, 9_000, 1_450), None);
    assert_eq!(seen(0x80, 9_000, 1_500), former, "nobody asks");
    // The kernel finds out whether it is there still: it becomes reachable, or fails.
    for stale in [0x04, 0x08, 0x10] {
        assert_eq!(seen(stale, 9_000, 8_900), None, "{stale:#x}");
        assert_eq!(seen(stale, 9_000, 9_000), former, "{stale:#x}");
    }
    // The kernel still asks.
    assert_eq!(seen(0x01, 9_000, 1_450), None);
    assert_eq!(seen(0x01, 9_000, 1_500), Some(WireAnswer::Silent));
    assert_eq!(seen(0x20, 9_000, 50), Some(WireAnswer::Silent));
    assert_eq!(judge(None, ms(1_450)), None);
    assert_eq!(judge(None, ms(1_500)), Some(WireAnswer::Silent));
}

#[test]
fn questions_are_written_as_the_kernel_reads_them() {
    let four = ask_route(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 50)));
    assert_eq!(four.len(), 36);
    assert_eq!(four[..4], 36_u32.to_ne_bytes());
    assert_eq!(four[4..6], 26_u16.to_ne_bytes());
    assert_eq!(four[16..18], [2, 32]);
    assert_eq!(four[32..], [192, 0, 2, 50]);
    let six = ask_neighbour(IpAddr::V6(Ipv6Addr::LOCALHOST), 9);
    assert_eq!(six.len(), 48);
    assert_eq!(six[16], 10);
    assert_eq!(six[20..24], 9_u32.to_ne_bytes());
    assert_eq!(six[28..30], 20_u16.to_ne_bytes());
}

proptest! {
    #[test]
    fn whatever_comes_back_is_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        kind in prop_oneof![Just(2_u16), Just(24), Just(28)],
    ) {
        let _ = (read_route(&bytes).is_ok(), read_neighbour(&bytes).is_ok());
        // With a header that is right.
        let mut whole = u32::try_from(16 + bytes.len()).expect("short").to_ne_bytes().to_vec();
        whole.extend(kind.to_ne_bytes());
        whole.extend([0; 10]);
        whole.extend(&bytes);
        let _ = (read_route(&whole).is_ok(), read_neighbour(&whole).is_ok());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Every host has the loopback network, all addresses of which are its own.
#[test]
fn the_real_kernel_knows_its_own_addresses() {
    let own = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 50));
    let found =
        runtime().block_on(async { (way_to(own).await, HostWire::default().ask(own).await) });
    assert_eq!(found.0.expect("the kernel answers"), AddressWay::Own);
    assert_eq!(found.1, held(HolderSign::OwnHost, None));
}

/// Runs a command.
fn run(words: &str) -> Result<(), String> {
    let mut parts = words.split(' ');
    let mut command = Command::new(parts.next().unwrap_or_default());
    let ended = command.args(parts).stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| format!("`{words}`: {error}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ended
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("`{words}`: {}", said.trim()))
}

/// A cable from the network of this process to that of another one, which ends with this.
struct Cable {
    there: Child,
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = self.there.kill();
        let _ = self.there.wait();
    }
}

impl Cable {
    fn lay() -> Result<Cable, String> {
        let mut other = Command::new("unshare");
        let other = other.args(["--net", "sleep", "120"]).spawn();
        let cable = Cable {
            there: other.map_err(|error| format!("`unshare`: {error}"))?,
        };
        cable.is_apart()?;
        let there = cable.there.id();
        run(&format!(
            "ip link add eth0 type veth peer name eth0 netns {there}"
        ))?;
        run("ip addr add 198.51.100.1/24 dev eth0")?;
        run("ip addr add 2001:db8:5::1/64 dev eth0 nodad")?;
        cable.there("addr add 198.51.100.9/24 dev eth0")?;
        cable.there("addr add 2001:db8:5::9/64 dev eth0 nodad")?;
        cable.there("link set eth0 address bc:24:11:00:00:09")?;
        cable.there("link set eth0 up")?;
        run("ip link set eth0 up")?;
        Ok(cable)
    }

    /// Waits until the other process has a network of its own.
    fn is_apart(&self) -> Result<(), String> {
        let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
        let there = self.there.id().to_string();
        for _ in 0..500 {
            match (network(&there), network("self")) {
                (Ok(there), Ok(here)) if there != here => return Ok(()),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err("`unshare --net` made no network within 5 s".to_owned())
    }

    /// Runs `ip` at the other end.
    fn there(&self, words: &str) -> Result<(), String> {
        let there = self.there.id();
        run(&format!("nsenter --net=/proc/{there}/ns/net ip {words}"))
    }
}

/// The test below in a network of its own: it is started there once more, with this variable.
const APART: &str = "PVE_AUTOSCALER_WIRE_APART";
/// What that one prints where it can lay no cable, before the reason.
const NO_CABLE: &str = "no cable: ";

/// Any user may have a network of their own, in a user namespace. Where that is switched off, or `ip` is missing, a line says so that the
/// harness does not keep to itself: what a kernel or a container allows is not ours to say. `contrib/dev test` installs `ip`.
#[test]
fn who_answers_on_a_cable_is_seen_with_its_mac() {
    let program = std::env::current_exe().expect("this program");
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(program)
        .args([
            "--exact",
            "wire::tests::answers_on_a_cable_are_read_apart",
            "--nocapture",
        ])
        .env(APART, "1")
        .output();
    let why = match tried {
        Err(error) => format!("`unshare` cannot be run: {error}"),
        Ok(ended) => {
            let said = String::from_utf8_lossy(&ended.stdout).into_owned();
            let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
            let no_cable = said.lines().find_map(|line| line.split_once(NO_CABLE));
            match no_cable {
                Some((_, why)) => why.to_owned(),
                // Only the test's own program prints that.
                None if said.contains("running 1 test") => {
                    assert!(ended.status.success(), "{said}{errors}");
                    return;
                }
                None => format!("`unshare` made no network: {}", errors.trim()),
            }
        }
    };
    // Written past the harness, which keeps what tests print that end well.
    let told = writeln!(
        io::stderr(),
        "skipped: the wire on the real kernel, which needs a user's own network and iproute2: {why}"
    );
    told.expect("standard error is written");
}

/// What the test above starts in a network of its own; alone it has nothing to do.
#[test]
fn answers_on_a_cable_are_read_apart() {
    if std::env::var_os(APART).is_none() {
        return;
    }
    let cable = match Cable::lay() {
        Ok(cable) => cable,
        Err(why) => {
            println!("{NO_CABLE}{why}");
            return;
        }
    };
    let ask = |address: &str| {
        let address = address.parse().expect("an address");
        runtime().block_on(HostWire::default().ask(address))
    };
    let mac = Some("bc:24:11:00:00:09".into());
    for there in ["198.51.100.9", "2001:db8:5::9"] {
        let answer = held(HolderSign::Neighbour, mac.clone());
        assert_eq!(ask(there), answer, "{there}");
    }
    for nobody in ["198.51.100.10", "2001:db8:5::10"] {
        assert_eq!(ask(nobody), WireAnswer::Silent, "{nobody}");
    }
    // Who was removed a while ago is known still, and does not answer any more. The kernel finds that out a second later, not five.
    let steps = [
        cable.there("addr del 198.51.100.9/24 dev eth0"),
        run("ip neigh replace 198.51.100.9 lladdr bc:24:11:00:00:09 nud stale dev eth0"),
        run("ip ntable change name arp_cache dev eth0 delay_probe 1000"),
    ];
    assert_eq!(steps, [Ok(()), Ok(()), Ok(())]);
    assert_eq!(ask("198.51.100.9"), WireAnswer::Silent);
    assert_eq!(ask("198.51.100.1"), held(HolderSign::OwnHost, None));
    let nowhere = ask("203.0.113.9");
    assert!(matches!(nowhere, WireAnswer::Unseen(_)), "{nowhere:?}");
}
