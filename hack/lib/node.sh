# A kubelet in an instance of hack/containerd-up: what hack/kubelet and hack/cluster share. Needs lib/common.sh,
# lib/releases.sh and lib/kubernetes.sh.
# shellcheck shell=bash

# The kernel settings that a kubelet wants. They are mounted over the machine's own, so that it finds each set already
# and changes nothing on the machine.
KERNEL_SETTINGS=(vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000)

# hack/containerd-down finds it by this name.
cgroup_name() { echo "podshim-$(basename "$1")"; }

# prepare_kubelet DIR: makes the files that a kubelet has at fixed places, in the instance's mount namespace, and its
# cgroup.
prepare_kubelet() {
    local dir=$1 setting file controller
    mkdir -p "$dir/kubelet" "$dir/log" "$dir/kernel"
    in_instance "$dir" mount --bind "$dir/log" /var/log
    for setting in "${KERNEL_SETTINGS[@]}"; do
        file=$dir/kernel/$(basename "${setting%=*}")
        echo "${setting#*=}" >"$file"
        [ ! -e "/proc/sys/${setting%=*}" ] || in_instance "$dir" mount --bind "$file" "/proc/sys/${setting%=*}"
    done
    for controller in /sys/fs/cgroup/*/ /sys/fs/cgroup/; do
        [ ! -e "$controller/cgroup.procs" ] || mkdir -p "$controller/$(cgroup_name "$dir")"
    done
}

# run_kubelet DIR ARGUMENT...: starts the kubelet, with what each one here needs, and does not wait for it.
run_kubelet() {
    local dir=$1 arguments
    shift
    arguments=(
        --container-runtime=remote "--container-runtime-endpoint=unix://$dir/containerd.sock"
        # cAdvisor, in the kubelet, asks containerd which pod a control group belongs to.
        "--containerd=$dir/containerd.sock"
        "--root-dir=$dir/kubelet" "--cert-dir=$dir/kubelet/pki" "--volume-plugin-dir=$dir/kubelet/volume-plugins"
        --cgroup-driver=cgroupfs "--cgroup-root=/$(cgroup_name "$dir")" --enforce-node-allocatable=
        --fail-swap-on=false --oom-score-adj=0 --resolv-conf=
        --feature-gates=DevicePlugins=false
        # This kubelet may not clean up the machine's disk, nor evict because of it.
        --image-gc-high-threshold=100 --eviction-hard=
        --v=4
    )
    run_in_instance "$dir" kubelet "$(kubelet_path)" "${arguments[@]}" "$@"
}
