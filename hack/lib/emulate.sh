# Running programs for another processor with qemu (hack/release), as if they were this machine's own: also those that such
# a program starts itself. The machine is not changed. Needs lib/releases.sh.
# shellcheck shell=bash

# The beginning of an ELF program for ARM, and which bits of it count.
readonly AARCH64_MAGIC='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
readonly AARCH64_MASK='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

# emulated MACHINE COMMAND...: runs COMMAND in a pid and a mount namespace of its own, with an empty /run. What it leaves
# running ends with it. For another machine it registers qemu in a user namespace, which Linux allows since 6.7;
# before, the machine must know a qemu with subreapers already (Debian's package arranges that where systemd runs).
emulated() {
    local machine=$1 namespaces=(--mount --fork --pid --kill-child --mount-proc) register='' qemu
    shift
    if [ "$machine" != "$(uname -m)" ]; then
        [ "$machine" = aarch64 ] || die "programs for $machine cannot be run here"
        qemu=$(qemu_for "$machine") || die "qemu for $machine was not fetched: run hack/setup --release"
        namespaces+=(--user --map-root-user)
        register=":podshim-$machine:M::$AARCH64_MAGIC:$AARCH64_MASK:$qemu:F"
    fi
    # shellcheck disable=SC2016 # for the inner shell
    unshare "${namespaces[@]}" sh -c 'set -e
        mount -t tmpfs run /run
        if [ -n "$1" ]; then
            if mount -t binfmt_misc binfmt /proc/sys/fs/binfmt_misc; then
                printf %s "$1" >/proc/sys/fs/binfmt_misc/register
            elif [ -z "$2" ]; then
                echo "cannot register qemu in a namespace: that needs Linux 6.7" >&2
                exit 1
            fi
        fi
        shift 2
        "$@"' - "$register" "$(ls "/proc/sys/fs/binfmt_misc/qemu-$machine" 2>/dev/null)" "$@"
}
