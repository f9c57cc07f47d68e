# The configuration files of a private containerd: configuration version 2 for 1.x, 3 for 2.x. Sourced by
# hack/containerd-up. It only prints. hack/containerd-up says which files in DIR it reads. shellcheck shell=bash

# May processes lower their oom_score_adj? Bit 24 is CAP_SYS_RESOURCE. Without it runc cannot set
# the CRI's negative score of the pause container.
restrict_oom_score_adj() {
    local capabilities
    capabilities=$(sed -n 's/^CapEff:\s*//p' /proc/self/status)
    if (((16#$capabilities >> 24) & 1)); then echo false; else echo true; fi
}

# containerd_config DIR DEFAULT_RUNTIME
containerd_config() {
    case $(cat "$1/containerd-version") in
    1.*) config_version_2 "$@" ;;
    *) config_version_3 "$@" ;;
    esac
}

config_version_2() {
    local dir=$1 default_runtime=$2
    echo 'version = 2'
    daemon_config "$dir"
    cat <<CONFIG

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "podshim.test/pause:1"
  stream_server_address = "127.0.0.1"
$(cri_settings "$dir")

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$dir/cni"

$(cri_runtimes io.containerd.grpc.v1.cri "$dir" "$default_runtime")
CONFIG
}

# 2.x splits the CRI plugin in three.
config_version_3() {
    local dir=$1 default_runtime=$2
    echo 'version = 3'
    daemon_config "$dir"
    cat <<CONFIG

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "podshim.test/pause:1"

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"

[plugins."io.containerd.cri.v1.runtime"]
$(cri_settings "$dir")

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "$dir/cni"

$(cri_runtimes io.containerd.cri.v1.runtime "$dir" "$default_runtime")
CONFIG
}

daemon_config() {
    local dir=$1
    cat <<CONFIG
root = "$dir/root"
state = "$dir/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = "$dir/containerd.sock"

[debug]
  level = "$([ -e "$dir/as-on-a-node" ] && echo info || echo debug)"
CONFIG
}

# cri_settings DIR
cri_settings() {
    cat <<CONFIG
  restrict_oom_score_adj = $(restrict_oom_score_adj)
  # The host's AppArmor stays as it is.
  disable_apparmor = $([ -e "$1/apparmor" ] && echo false || echo true)
  tolerate_missing_hugetlb_controller = true
CONFIG
}

# cri_runtimes PLUGIN DIR DEFAULT_RUNTIME
cri_runtimes() {
    local plugin=$1 dir=$2 default_runtime=$3
    cat <<CONFIG
[plugins."$plugin".containerd]
  default_runtime_name = "$default_runtime"

$(runc_runtime "$plugin" "$dir" runc)
CONFIG
    # With --handler: the default runtime under another name.
    [ ! -e "$dir/handler" ] || "${default_runtime}_runtime" "$plugin" "$dir" "$(cat "$dir/handler")"
    # With --installed `podshim install` writes podshim's part.
    [ -e "$dir/installed" ] || podshim_runtimes "$plugin" "$dir"
}

# runc_runtime PLUGIN DIR NAME: containerd's own shim.
runc_runtime() {
    cat <<CONFIG
[plugins."$1".containerd.runtimes.$3]
  runtime_type = "io.containerd.runc.v2"
  [plugins."$1".containerd.runtimes.$3.options]
$(oci_runtime_option "$2")
    SystemdCgroup = $([ "$(cat "$2/cgroup-driver")" = systemd ] && echo true || echo false)
CONFIG
}

# podshim_runtime PLUGIN DIR NAME
podshim_runtime() {
    cat <<CONFIG

[plugins."$1".containerd.runtimes.$3]
  runtime_type = "io.containerd.podshim.v2"
  pod_annotations = ["podshim.io/*", "kruise.io/*", "apps.kruise.io/*", "*.sidecarset.kruise.io/*"]
  container_annotations = ["podshim.io/*", "io.kubernetes.pod.*", "io.kubernetes.container.*"]
CONFIG
    # With runc podshim needs no table, and is installed without one: 2.x cannot start pods with user namespaces on a
    # custom runtime type that has one. 1.6 passes only ConfigPath on (CONTRACT §1.7).
    [ -n "$(oci_runtime_option "$2")" ] || return 0
    echo "  [plugins.\"$1\".containerd.runtimes.$3.options]"
    case $(cat "$2/containerd-version") in
    1.6) echo "    ConfigPath = \"$2/podshim-options.toml\"" ;;
    *) oci_runtime_option "$2" ;;
    esac
}

# podshim_runtimes PLUGIN DIR
podshim_runtimes() {
    local plugin=$1 dir=$2
    podshim_runtime "$plugin" "$dir" podshim
    cat <<CONFIG

# The other ways to name a shim: runc's type with another program, for which containerd 2.x reports the runtime's
# features to the kubelet; and the program's file as the type.
[plugins."$plugin".containerd.runtimes.podshim-path]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "$(cat "$dir/bin")/containerd-shim-podshim-v2"
  pod_annotations = ["podshim.io/*"]
  container_annotations = ["podshim.io/*", "io.kubernetes.pod.*", "io.kubernetes.container.*"]
  [plugins."$plugin".containerd.runtimes.podshim-path.options]
$(oci_runtime_option "$dir")
    SystemdCgroup = $([ "$(cat "$dir/cgroup-driver")" = systemd ] && echo true || echo false)

[plugins."$plugin".containerd.runtimes.podshim-file]
  runtime_type = "$(cat "$dir/bin")/containerd-shim-podshim-v2"
  pod_annotations = ["podshim.io/*"]
  container_annotations = ["podshim.io/*", "io.kubernetes.pod.*", "io.kubernetes.container.*"]

# As no node should have it (podshim check warns): pods' authors may set annotations that only the CRI should set.
[plugins."$plugin".containerd.runtimes.podshim-open]
  runtime_type = "io.containerd.podshim.v2"
  pod_annotations = ["podshim.io/*", "*"]
  container_annotations = ["podshim.io/*", "io.kubernetes.pod.*", "io.kubernetes.container.*"]

# crun, whatever the instance's own runtime is: 1.6 passes a file's name to the shim, later ones the table.
[plugins."$plugin".containerd.runtimes.podshim-crun]
  runtime_type = "io.containerd.podshim.v2"
  [plugins."$plugin".containerd.runtimes.podshim-crun.options]
$(case $(cat "$dir/containerd-version") in
        1.6) echo "    ConfigPath = \"$dir/crun-options.toml\"" ;;
        *) echo '    BinaryName = "crun"' ;;
        esac)
CONFIG
}

# oci_runtime_option DIR: prints nothing for runc, which every shim finds by itself.
oci_runtime_option() {
    case $(cat "$1/oci-runtime") in
    runc) ;;
    *) echo "    BinaryName = \"$(cat "$1/oci-runtime-path")\"" ;;
    esac
}

# cni_config DIR SUBNET: pods get addresses of SUBNET on a bridge inside the instance's own network namespace.
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
        "ranges": [[{"subnet": "$2"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
CONFIG
}
