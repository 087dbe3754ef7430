//! Third-party programs that Offshoot is tested with: installed at an exact version into a cache
//! outside the tree, started in a fresh home and an environment of their own, and gone afterwards.
//!
//! ```no_run
//! use offshoot_peers::{Home, catalog};
//!
//! let Some(agent) = catalog::ACP_SDK.ready() else { return };
//! let home = Home::new();
//! let run = home
//!     .command("node")
//!     .arg(agent.file("@agentclientprotocol/sdk/dist/examples/agent.js"))
//!     .run(std::time::Duration::from_secs(30));
//! home.assert_no_process_left();
//! ```
//!
//! - [`catalog`]: which programs, at which versions.
//! - [`Package::ready`]: installs once for all tests of a machine; `None`, with a line on stderr, only
//!   when a registry cannot be reached.
//! - [`Home`]: a folder that is a peer's whole world; whatever runs in it can be found and counted.
//! - [`Peer`]: a process group that ends with its guard.

mod cache;
pub mod catalog;
mod home;
mod package;
mod peer;

pub use home::Home;
pub use package::{Installed, Package};
pub use peer::{Command, Outcome, Peer};
