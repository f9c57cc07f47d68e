# The configuration files of a private containerd 1.6 (configuration version 2).
# Sourced by hack/containerd-up. It only prints.
# shellcheck shell=bash

# May processes lower their oom_score_adj? Bit 24 is CAP_SYS_RESOURCE. Without it runc cannot set
# the CRI's negative score of the pause container.
restrict_oom_score_adj() {
    local capabilities
    capabilities=$(sed -n 's/^CapEff:\s*//p' /proc/self/status)
    if (((16#$capabilities >> 24) & 1)); then echo false; else echo true; fi
}

# containerd_config DIR DEFAULT_RUNTIME
containerd_config() {
    local dir=$1 default_runtime=$2
    cat <<CONFIG
version = 2
root = "$dir/root"
state = "$dir/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = "$dir/containerd.sock"

[debug]
  level = "debug"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "podshim.test/pause:1"
  restrict_oom_score_adj = $(restrict_oom_score_adj)
  # The host's AppArmor stays as it is.
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$dir/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "$default_runtime"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.podshim]
  runtime_type = "io.containerd.podshim.v2"
  pod_annotations = ["podshim.io/*"]
  container_annotations = ["podshim.io/*", "io.kubernetes.pod.*", "io.kubernetes.container.*"]
CONFIG
}

# cni_config DIR: pods get addresses on a bridge inside the instance's own network namespace.
cni_config() {
    cat <<CONFIG
{
  "cniVersion": "0.4.0",
  "name": "podshim-test",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "podshim0",
      "isGateway": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "$1/addresses",
        "ranges": [[{"subnet": "10.88.0.0/16"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
CONFIG
}
