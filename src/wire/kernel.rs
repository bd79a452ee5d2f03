//! This host's kernel, asked over netlink. Every question is one message with one answer, and no question needs a privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use tokio::sync::Semaphore;

use super::netlink::{self, KernelRoute, Neighbour};

/// Questions at a time: each holds a thread while the kernel's lock of network settings is taken by somebody else.
const AT_A_TIME: usize = 4;
/// An answer takes microseconds, or as long as others hold that lock.
const PATIENCE_MS: i64 = 1_000;
/// One entry or route with all of its attributes is some two hundred bytes.
const MOST_BYTES: usize = 8_192;
/// The discard service: what comes there is thrown away.
const DISCARD: u16 = 9;

/// The kernel, and who may ask it.
#[derive(Clone, Debug)]
pub(super) struct NetlinkKernel(Arc<Semaphore>);

impl Default for NetlinkKernel {
    fn default() -> NetlinkKernel {
        NetlinkKernel(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

impl NetlinkKernel {
    /// Which way an address is.
    pub(super) async fn route(&self, address: IpAddr) -> io::Result<KernelRoute> {
        let answer = self.ask(netlink::ask_route(address)).await?;
        netlink::read_route(&answer)
    }

    /// What the neighbour table of a network card has of an address.
    pub(super) async fn neighbour(
        &self,
        address: IpAddr,
        interface: u32,
    ) -> io::Result<Option<Neighbour>> {
        let question = netlink::ask_neighbour(address, interface);
        let answer = self.ask(question).await?;
        netlink::read_neighbour(&answer)
    }

    /// Asks beside the loop, which stands still for nobody's lock.
    async fn ask(&self, question: Vec<u8>) -> io::Result<Vec<u8>> {
        let permit = self.0.clone().acquire_owned().await;
        let asked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            exchange(&question)
        });
        asked.await.map_err(io::Error::other)?
    }
}

/// Sends one message to the kernel, and gives the one that comes back.
fn exchange(question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = open()?;
    let descriptor = socket.as_raw_fd();
    let kernel = NetlinkAddr::new(0, 0);
    sendto(descriptor, question, &kernel, MsgFlags::empty())?;
    let mut answer = vec![0; MOST_BYTES];
    let length = recv(descriptor, &mut answer, MsgFlags::empty())?;
    answer.truncate(length);
    Ok(answer)
}

fn open() -> io::Result<OwnedFd> {
    let refused = |error: nix::Error| {
        io::Error::other(format!(
            "the kernel's table of neighbours cannot be asked (a netlink socket): {error}; pve-autoscaler.service needs AF_NETLINK in RestrictAddressFamilies"
        ))
    };
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )
    .map_err(refused)?;
    setsockopt(
        &socket,
        sockopt::ReceiveTimeout,
        &TimeVal::milliseconds(PATIENCE_MS),
    )?;
    Ok(socket)
}

/// Sends an empty datagram to an address, so that the kernel asks who has it.
pub(super) fn send_to(address: IpAddr) -> io::Result<()> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.send_to(&[], (address, DISCARD))?;
    Ok(())
}

/// The name of a network card by its number; the number where it has none any more.
pub(super) fn interface_name(number: u32) -> String {
    let cards = std::fs::read_dir("/sys/class/net");
    let mut cards = cards.into_iter().flatten().flatten();
    let wanted = cards.find(|card| {
        let text = std::fs::read_to_string(card.path().join("ifindex"));
        text.is_ok_and(|text| text.trim().parse() == Ok(number))
    });
    wanted.map_or_else(
        || format!("network card {number}"),
        |card| card.file_name().to_string_lossy().into_owned(),
    )
}
