//! One regression test for each trap of CONTRACT ("Traps") that a real containerd can show: what has broken another
//! shim must not break podshim. A test is named after its trap; the table in docs/containerd.md says where the others
//! are, and `tests/house/tests/traps.rs` checks that table against the tests.

mod ends;
mod events;
mod oci_runtime;
mod streams;
