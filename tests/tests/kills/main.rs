//! SIGKILL to containerd and to the shim, at points spread over the start and the stop of a pod (N1, N2, N3): each test
//! is a loop, and each turn starts a pod, kills once and removes the pod. `hack/stress` takes more points.

mod containerd;
mod life;
mod shim;
