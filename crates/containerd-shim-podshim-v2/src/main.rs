//! The shim binary.
fn main() {}
