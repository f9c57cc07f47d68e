#!/usr/bin/env bash
# Prepares the mount and network namespace of one instance, then holds it until it is killed. hack/containerd-up runs it
# under `unshare --mount --net`; nothing done here is visible outside. usage: namespace.sh READY_FILE STATE
set -euo pipefail

# Shim sockets (/run/containerd/s is built into containerd's client), runc's state, CNI's network namespaces and
# podshim's own files are per instance, and vanish with it.
scratch=$(mktemp -d)
mount -t tmpfs -o mode=0755 podshim-test "$scratch"
mkdir -p "$scratch"/{netns,lock}
# runc and crun talk to systemd through different sockets, for the systemd cgroup driver.
for directory in systemd dbus; do
    if [ -d "/run/$directory" ]; then
        mkdir "$scratch/$directory"
        mount --bind "/run/$directory" "$scratch/$directory"
    fi
done
# While the tree is still private: a shared mount cannot be moved. Not with util-linux, which keeps a table in the /run
# that is replaced.
busybox mount -o move "$scratch" /run
rmdir "$scratch"
# runc and the CRI mark mounts rslave: that needs a shared tree above them.
mount --make-rshared /
# The CNI library keeps its result cache here, and the place cannot be changed.
mkdir -p /var/lib/cni
mount -t tmpfs -o mode=0755 podshim-test /var/lib/cni
# podshim's records of removed pods.
mkdir -p /var/lib/podshim
mount -t tmpfs -o mode=0755 podshim-test /var/lib/podshim
# crun 1.8 refuses a hybrid cgroup tree whose v2 part has controllers; runc does not use that part.
if [ "$(stat -fc %T /sys/fs/cgroup)" = tmpfs ] && mountpoint -q /sys/fs/cgroup/unified; then
    umount /sys/fs/cgroup/unified
fi
# containerd's state, which is below /run on a node: with `discard` each file that the shim removes from a disk's file system waits for
# the disk.
mkdir -p "$2"
mount -t tmpfs -o mode=0711 podshim-test "$2"
ip link set lo up
touch "$1"
exec sleep infinity
