# The parts of hack/vm's machines: the disk, which is a Debian release in an ext4 file, and the kernel. Sourced by
# hack/vm; needs lib/releases.sh. It writes only to the cache directory and the given work directory. shellcheck
# shell=bash

# Packages on the disk. No compiler: test images are built on the host and passed in.
VM_PACKAGES=(apparmor systemd systemd-sysv dbus containerd runc crun containernetworking-plugins busybox-static iproute2
    util-linux bsdutils mount procps kmod)

# name of the package on the host, and a file that shows it is installed
VM_TOOLS=(
    "mmdebstrap      /usr/bin/mmdebstrap"
    "e2fsprogs       /sbin/mke2fs"
    "patchelf        /usr/bin/patchelf"
)

# User-mode Linux from 6.16 on can control a machine's processes with seccomp instead of ptrace: programs start three
# times as fast. The machines of all releases use the kernel of the first Debian release that has it.
VM_KERNEL_SUITE=forky

# Units of a usual boot that no test needs: each costs a second.
VM_MASKED=(systemd-udevd.service systemd-udev-trigger.service systemd-hwdb-update.service
    systemd-journal-catalog-update.service systemd-update-utmp.service systemd-timesyncd.service
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer)

vm_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/podshim/vm"; }

# vm_image SUITE WORK: prints the directory of an up-to-date image, building it if there is none.
vm_image() {
    local suite=$1 work=$2 cache directory lock
    cache=$(vm_cache)
    mkdir -p "$cache"
    vm_install_tools
    # Two runs may need the same image at the same time: the second waits and finds it built.
    exec {lock}>"$cache/$suite.lock"
    flock "$lock"
    mkdir -p "$work/apt/sources"
    suite_sources "$suite" "$work/apt/sources" || die "no package sources of $suite"
    if vm_wanted_versions "$suite" "$work" >"$work/wanted"; then
        directory=$cache/$suite-$(cat "$work/wanted" "$HACK/lib/vm-image.sh" "$HACK/vm.d/job.service" |
            sha256sum | cut -c 1-16)
    else
        # If the archive cannot be read, use any image that exists.
        directory=$(find "$cache" -maxdepth 1 -name "$suite-*" | head -n 1)
        [ -n "$directory" ] || die "cannot read the package lists of $suite, and no image of it is there"
        say "vm: cannot read the package lists of $suite: using the image that is there"
    fi
    if ! [ -e "$directory/versions" ]; then
        say "vm: building the image of $suite (some minutes, once)"
        rm -rf "$cache/$suite"-*
        mkdir "$directory"
        vm_build "$suite" "$work" "$directory" >"$work/build.log" 2>&1 ||
            { tail -n 30 "$work/build.log" >&2 && rm -rf "$directory" && die "cannot build the image of $suite"; }
    fi
    exec {lock}>&-
    echo "$directory"
}

# vm_kernel WORK: prints the directory of the machines' kernel, and fetches it if it is missing: usr/bin/linux.uml and,
# for its modules, usr/lib/uml/modules. For a newer one, remove the directory.
vm_kernel() {
    local work=$1/kernel directory lock version
    directory=$(vm_cache)/kernel
    mkdir -p "$directory" "$work"
    exec {lock}>"$directory.lock"
    flock "$lock"
    if ! [ -x "$directory/current/usr/bin/linux.uml" ]; then
        say "vm: fetching the machines' kernel"
        vm_download_kernel "$work" >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2 && die "cannot fetch user-mode-linux"; }
        version=$(cd "$work/archives" && printf '%s\n' user-mode-linux_* | cut -d_ -f2)
        rm -rf "${directory:?}/$version"
        mv "$work/root" "$directory/$version"
        use_own_libraries "$directory/$version" usr/bin/linux.uml || die "user-mode-linux $version does not run here"
        # Only now, so that the next run finds nothing unfinished if this one is interrupted.
        ln -sfn "$version" "$directory/current"
    fi
    exec {lock}>&-
    realpath "$directory/current"
}

# vm_download_kernel DIRECTORY: fetches the package and its libraries into DIRECTORY/root.
vm_download_kernel() {
    local options
    private_apt "$VM_KERNEL_SUITE" "$1" || return
    apt-get "${options[@]}" update &&
        apt-get "${options[@]}" --no-install-recommends --download-only --yes install user-mode-linux || return
    extract_archives "$1"
}

# Machines that are made at once come here at once, and apt-get waits for no lock of its lists.
vm_install_tools() {
    local lock line package file missing=()
    mkdir -p "$(vm_cache)"
    exec {lock}>"$(vm_cache)/tools.lock"
    flock "$lock"
    for line in "${VM_TOOLS[@]}"; do
        read -r package file <<<"$line"
        [ -e "$file" ] || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        say "vm: installing ${missing[*]}"
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } \
            >&2 || die "cannot install ${missing[*]}"
    fi
    exec {lock}>&-
}

# vm_wanted_versions SUITE WORK: prints the newest packages of the release, one `name version` per line. Reads the lists
# once a day, so two machines of the same day have the same packages.
vm_wanted_versions() {
    local suite=$1 work=$2 lists
    lists=$(vm_cache)/$suite.lists
    if [ -z "$(find "$lists/versions" -mtime -1 2>/dev/null)" ]; then
        mkdir -p "$lists/partial" "$work/apt/archives/partial"
        cat >"$work/apt/apt.conf" <<CONFIG
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$work/apt/sources";
Dir::State::Lists "$lists";
Dir::State::status "/dev/null";
Dir::Cache "$work/apt";
APT::Sandbox::User "root";
$APT_OPTIONS
CONFIG
        APT_CONFIG=$work/apt/apt.conf apt-get -qq --error-on=any update >&2 || return
        APT_CONFIG=$work/apt/apt.conf apt-cache show --no-all-versions "${VM_PACKAGES[@]}" |
            awk '/^Package:/ { name = $2 } /^Version:/ { print name, $2 }' >"$lists/versions.new"
        [ -s "$lists/versions.new" ] || return
        mv "$lists/versions.new" "$lists/versions"
    fi
    cat "$lists/versions"
}

# An outdated mirror, past its release file's date, is no attack on a test machine.
APT_OPTIONS='Acquire::Check-Valid-Until "false";'

# vm_build SUITE WORK DIRECTORY
vm_build() {
    # errexit has no effect while the caller runs this as a condition (`vm_build ... ||`): then only a failure of the
    # last commands is seen, which need the results of all others.
    (
        set -euo pipefail
        local root
        # dpkg syncs every file to disk; a file system in memory has nothing to sync.
        root=$(vm_build_directory)
        trap 'rm -rf "$root"' EXIT
        # shellcheck disable=SC2016 # $1 is mmdebstrap's
        TMPDIR=$root mmdebstrap --mode=root --variant=apt --format=directory \
            --aptopt="$APT_OPTIONS" --dpkgopt=force-unsafe-io \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/lib/udev/hwdb.d/*' \
            --include="$(IFS=, && echo "${VM_PACKAGES[*]}")" \
            "$1" "$root/root" "$2/apt/sources/"*
        vm_configure "$root/root"
        truncate -s 3G "$3/root.ext4"
        mke2fs -q -t ext4 -O ^has_journal -d "$root/root" "$3/root.ext4"
        # Last, because this file marks the image as complete.
        chroot "$root/root" dpkg-query --show --showformat='${Package} ${Version}\n' >"$3/versions.new"
        mv "$3/versions.new" "$3/versions"
    )
}

vm_build_directory() {
    local free
    free=$(df --output=avail -B 1M /dev/shm 2>/dev/null | tail -n 1) || free=0
    if [ "${free:-0}" -gt 3000 ]; then mktemp -d /dev/shm/podshim-vm.XXXXXX; else mktemp -d; fi
}

# vm_configure ROOT
vm_configure() {
    local unit
    install -m 0644 "$HACK/vm.d/job.service" "$1/etc/systemd/system/podshim-job.service"
    for unit in "${VM_MASKED[@]}"; do ln -s /dev/null "$1/etc/systemd/system/$unit"; done
    echo vm >"$1/etc/hostname"
    # An installer would write this file; the CRI copies it into every pod.
    echo '127.0.0.1 localhost vm' >"$1/etc/hosts"
    # With an id, systemd does not take the boot for the machine's first; with files newer than /usr, it updates
    # nothing.
    head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$1/etc/machine-id"
    touch "$1/etc/.updated" "$1/var/.updated"
    # The host's directories from hack/vm, and a /tmp in memory, which is faster than the disk.
    printf '%s\n' 'none /host hostfs rw 0 0' 'none /tmp tmpfs mode=1777 0 0' >"$1/etc/fstab"
    mkdir "$1/host"
    ln -s host/job "$1/job"
    ln -s host/results "$1/results"
    ln -sfn ../../host/modules "$1/usr/lib/modules"
}
