//! podshim's own API on a shim's socket: messages, service and client.
//!
//! Owns the messages on the wire, their words for people, and that no text of an answer is printed as it came. Decides nothing of
//! what they mean: that is the shim's, which answers, and the commands', which ask. Opens no file: a shim's socket is found
//! through `node-state`. Messages and service are generated from `proto/podshim/v1/pod.proto`.

#![forbid(unsafe_code)]

pub mod client;
pub mod polled;
pub mod text;
pub mod waiting;
mod words;

/// The version that messages of this release carry.
pub const VERSION: u32 = 1;

/// This build for people: the version, and the commit if the build names one (hack/build). It decides nothing.
pub fn release() -> String {
    match option_env!("PODSHIM_REVISION") {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[allow(
    missing_docs,
    clippy::all,
    clippy::disallowed_methods,
    nonstandard_style,
    rust_2018_idioms,
    unused_imports,
    reason = "generated"
)]
mod generated {
    pub mod pod {
        include!(concat!(env!("OUT_DIR"), "/pod.rs"));
    }
    pub mod pod_ttrpc {
        use super::pod;

        include!(concat!(env!("OUT_DIR"), "/pod_ttrpc.rs"));
    }
}

pub use generated::pod::*;
pub use generated::pod_ttrpc::*;
pub use ttrpc::Code;
