//! The end-to-end tests: real containerd, real runc. One test binary; nextest runs each test in a process of its own,
//! many pods at once on the containerd that `hack/test` started.

mod budgets;
mod configurations;
mod drop_in;
mod harness;
mod pid_namespaces;
mod runtime_errors;
mod shim_process;
mod user_namespaces;
