# What the checks of packages share (hack/vm.d/deb, hack/vm.d/sysext). Sourced in a machine of hack/vm.
# shellcheck shell=bash

fail() {
    echo "${0##*/}: $*"
    exit 1
}

runs() { podshim ps --json | grep -q '"state": *"running"'; }
has_pods() { podshim ps --json | grep -q '"id"'; }

# Lists every file except those of dpkg and apt themselves, and of programs that run meanwhile.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /run/systemd -o -path /tmp -o -path /job -o -path /host \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -path /var/lib/systemd \
        -o -path /var/lib/containerd -o -path /run/containerd -o -path /var/lib/cni \) -prune \
        -o -type f -printf '%p %s %m\n' -o -type l -printf '%p -> %l\n' | sort
}

# start_pod: a pod of two containers, from images.tar.
image=podshim.test/busybox:1
start_pod() {
    local pod="--runtime io.containerd.podshim.v2 --annotation io.kubernetes.cri.sandbox-id=shop"
    ctr images import images.tar >/dev/null
    # shellcheck disable=SC2086 # words
    ctr run -d $pod --annotation podshim.io/plan=db=sidecar,app=main $image app pod-member --name app
    # shellcheck disable=SC2086 # words
    ctr run -d $pod $image db pod-member --name db
    podshim ps
    runs || fail "the pod does not run"
}

# end_pod: by a drain.
end_pod() {
    podshim drain --yes
    ctr tasks rm app db >/dev/null
    ctr containers rm app db
    ctr images rm "$image" >/dev/null
    for _ in $(seq 100); do
        has_pods || break
        sleep 0.1
    done
}

# configure: containerd, as an administrator does.
configure() {
    podshim install --yes
    systemctl is-active podshim-drain || fail "install has not started the drain's unit"
    systemctl restart containerd
    podshim install --yes | grep "Nothing to do" || fail "a second install still found something to do"
    podshim doctor || fail "podshim doctor finds fault"
}
