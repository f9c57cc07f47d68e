//! Pods under a real kubelet that knows no sidecars: 1.20, from Debian's source package (hack/kubelet). Each runs with
//! containerd's own shim, which shows what goes wrong, and with podshim, which keeps the order. A test does not play
//! the kubelet: it writes a manifest, removes it, and reads the log of the containers and the kubelet's status.

mod churn;
mod jobs;
mod kruise;
mod kubelet_restarts;
mod order;
mod pod_restart;
mod policies;
mod probes;
mod removal;
mod sidecar_ends;
mod support;
mod translated;
