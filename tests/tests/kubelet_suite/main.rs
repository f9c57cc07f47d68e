//! Cases of Kubernetes' own lifecycle suite (`test/e2e_node/container_lifecycle_test.go`) through CRI, by the numbers
//! of docs/rules.md, as far as no other test replays them. The test plays the kubelet: it creates, stops and replaces
//! containers as the kubelet would. Where podshim's result differs on purpose, the test says why.

mod daemons;
mod initialization;
mod termination;
