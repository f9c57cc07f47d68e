//! `podshim web`: the page in a real browser, and its server as other programs reach it. The pods are fake shims on the real
//! control API.

#![expect(clippy::unwrap_used, reason = "a test's harness fails by panicking")]

mod browser;
#[path = "../../../podshim-agent/tests/agent/fake_shim.rs"]
#[allow(dead_code, reason = "the agent's tests need more of it")]
mod fake_shim;
mod page;
mod served;
mod server;
mod stays;
