//! Pods under a real kubelet that has never heard of sidecars: 1.20, from Debian's source package (hack/kubelet). Each runs
//! with containerd's own shim, which shows what goes wrong, and with podshim, which keeps the order. Nobody here plays the
//! kubelet: a test writes a manifest, takes it away, and reads what the containers wrote and what the kubelet says.

mod jobs;
mod kubelet_restarts;
mod order;
mod policies;
mod probes;
mod removal;
mod sidecar_ends;
mod support;
mod translated;
