//! Who has an address, as far as this host can see on the wire ([why so](../../docs/decisions/addresses-on-the-wire.md)).
//!
//! Where an address is in a network that this host has an address in, the kernel itself asks who has it (ARP, neighbour
//! discovery) as soon as something is to be sent there; its neighbour table then says who answered. That needs no privilege.
//! Where a router is between, only a TCP connection that somebody takes or refuses says that there is somebody.

mod kernel;
mod netlink;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::model::on_wire::HolderSign;

use kernel::NetlinkKernel;
use netlink::{KernelRoute, Neighbour};

/// How long an answer is waited for. The kernel asks at once and after a second again, so that one lost question is not taken
/// for silence.
const WAIT: Duration = Duration::from_millis(1_500);
/// How long an answer is waited for where the kernel knows who had the address, perhaps a machine that was removed, and finds out whether that still
/// holds: it waits for 5 s, asks three times in 3 s, and forgets the entry when nobody answers.
const VERIFY: Duration = Duration::from_secs(9);
/// Between two looks at the neighbour table. Most devices answer within a millisecond.
const LOOK: Duration = Duration::from_millis(50);
/// The kernel tells in hundredths of a second how long ago somebody answered: what is this much older still is an answer.
const SLACK: Duration = Duration::from_millis(20);
/// The port to which a connection is tried behind a router: SSH, which most devices take or refuse.
const PORT: u16 = 22;

/// What was found out about an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireAnswer {
    /// Nobody answered.
    Silent,
    /// Somebody has it.
    Held {
        /// How that was seen.
        sign: HolderSign,
        /// Whose network card, where that was seen.
        mac: Option<Arc<str>>,
    },
    /// It could not be asked for, and why.
    Unseen(String),
}

/// Asks for addresses on the wire.
pub trait Wire: Send + Sync + fmt::Debug {
    /// Asks who has an address. It takes a few seconds at most.
    fn ask(&self, address: IpAddr) -> BoxFuture<'_, WireAnswer>;
}

/// Which way an address is from this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressWay {
    /// It is this host's own.
    Own,
    /// It is in a network of this host: whoever has it is seen.
    OnLink {
        /// The network card or bridge.
        interface: String,
    },
    /// A router is between.
    Routed,
    /// There is no way, and what the kernel says of it.
    Nowhere(String),
}

/// Which way an address is from this host.
///
/// # Errors
/// The kernel cannot be asked.
pub async fn way_to(address: IpAddr) -> io::Result<AddressWay> {
    let route = NetlinkKernel::default().route(address).await?;
    Ok(match route {
        KernelRoute::Own => AddressWay::Own,
        KernelRoute::OnLink { interface } => AddressWay::OnLink {
            interface: kernel::interface_name(interface),
        },
        KernelRoute::Gateway => AddressWay::Routed,
        KernelRoute::Nowhere(why) => AddressWay::Nowhere(why),
    })
}

/// The wire as this host sees it.
#[derive(Debug, Default)]
pub struct HostWire {
    kernel: NetlinkKernel,
}

impl Wire for HostWire {
    fn ask(&self, address: IpAddr) -> BoxFuture<'_, WireAnswer> {
        Box::pin(async move {
            let found = match self.kernel.route(address).await {
                Ok(KernelRoute::Own) => return held(HolderSign::OwnHost, None),
                Ok(KernelRoute::OnLink { interface }) => self.neighbour(address, interface).await,
                Ok(KernelRoute::Gateway) => return connect(address).await,
                Ok(KernelRoute::Nowhere(why)) => return WireAnswer::Unseen(why),
                Err(error) => Err(error),
            };
            found.unwrap_or_else(|error| WireAnswer::Unseen(error.to_string()))
        })
    }
}

impl HostWire {
    /// Lets the kernel ask who has an address in a network of this host, and waits for what its table says.
    async fn neighbour(&self, address: IpAddr, interface: u32) -> io::Result<WireAnswer> {
        let asked = Instant::now();
        kernel::send_to(address)?;
        loop {
            sleep(LOOK).await;
            let entry = self.kernel.neighbour(address, interface).await?;
            let waited = asked.elapsed();
            if let Some(answer) = judge(entry.as_ref(), waited) {
                return Ok(answer);
            }
        }
    }
}

/// What an entry of the neighbour table says this long after the kernel was made to ask; `None`: it is too early.
fn judge(entry: Option<&Neighbour>, waited: Duration) -> Option<WireAnswer> {
    let over = waited >= WAIT;
    let Some(entry) = entry else {
        return over.then_some(WireAnswer::Silent);
    };
    let mac = entry.mac.clone();
    // An entry that nobody confirmed since it was asked for says who had the address before.
    let fresh = entry
        .confirmed
        .is_some_and(|before| before <= waited + SLACK);
    if entry.is_reachable() && fresh {
        return Some(held(HolderSign::Neighbour, mac));
    }
    if entry.has_failed() {
        return Some(WireAnswer::Silent);
    }
    let verified = entry.is_verified();
    if !over || (verified && waited < VERIFY) {
        return None;
    }
    Some(if entry.has_holder() || verified {
        held(HolderSign::FormerNeighbour, mac)
    } else {
        WireAnswer::Silent
    })
}

/// Tries a connection to an address behind a router. Silence says nothing: a firewall may drop what is sent.
async fn connect(address: IpAddr) -> WireAnswer {
    match timeout(WAIT, TcpStream::connect((address, PORT))).await {
        Ok(Ok(_)) => held(HolderSign::Tcp, None),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            held(HolderSign::Tcp, None)
        }
        Ok(Err(_)) | Err(_) => WireAnswer::Silent,
    }
}

fn held(sign: HolderSign, mac: Option<Arc<str>>) -> WireAnswer {
    WireAnswer::Held { sign, mac }
}
