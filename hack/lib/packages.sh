# The Debian packages of hack/setup: which part of the project needs which, and how they are installed so that none of their
# services runs or stays enabled. Sourced by hack/setup.
# shellcheck shell=bash

# The part that needs it, the package, and a file that shows it is installed.
PACKAGES=(
    "build   build-essential       /usr/bin/cc"
    "build   libprotobuf-dev       /usr/include/google/protobuf/any.proto"
    "build   protobuf-compiler     /usr/bin/protoc"
    "demo    busybox-static        /usr/bin/busybox"
    "demo    containerd            /usr/bin/containerd"
    "demo    containernetworking-plugins /usr/lib/cni/bridge"
    "demo    iproute2              /bin/ip"
    "demo    runc                  /usr/sbin/runc"
    "demo    util-linux            /usr/bin/nsenter"
    "tests   checkpolicy           /usr/bin/checkpolicy"
    "tests   chromium              /usr/bin/chromium"
    "tests   chromium-driver       /usr/bin/chromedriver"
    "tests   crun                  /usr/bin/crun"
    "tests   fish                  /usr/bin/fish"
    "tests   iptables              /usr/sbin/iptables"
    "tests   jq                    /usr/bin/jq"
    "tests   kubernetes-client     /usr/bin/kubectl"
    "tests   openssl               /usr/bin/openssl"
    "tests   patchelf              /usr/bin/patchelf"
    "tests   prometheus            /usr/bin/promtool"
    "tests   python3-prometheus-client /usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py"
    "tests   shellcheck            /usr/bin/shellcheck"
    "tests   zsh                   /usr/bin/zsh"
    "release jq                    /usr/bin/jq"
    "release patchelf              /usr/bin/patchelf"
    "release rpm                   /usr/bin/rpmbuild"
    "lint    lintian               /usr/bin/lintian"
    "sysext  squashfs-tools        /usr/bin/mksquashfs"
)

# parts_of PART: the parts whose packages it needs.
parts_of() {
    case $1 in
    demo) echo build demo ;;
    tests) echo build demo tests ;;
    release) echo build release ;;
    *) echo "$1" ;;
    esac
}

# missing_packages PART: those that it needs and that are not installed.
missing_packages() {
    local root=${DPKG_ROOT:-} line part package file
    for line in "${PACKAGES[@]}"; do
        read -r part package file <<<"$line"
        [[ " $(parts_of "$1") " == *" $part "* ]] || continue
        # The dynamically linked busybox has the same path, and would not run in an empty image.
        if [ ! -e "$root$file" ] || { [ "$package" = busybox-static ] && ! dpkg -s "$package" >/dev/null 2>&1; }; then
            echo "$package"
        fi
    done
}

# install_packages PART
install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$1")
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "there is no apt-get here; install these yourself: ${missing[*]}"
    need_root
    say "setup: installing ${missing[*]}"
    quietly apt-get update
    without_services quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# without_services COMMAND...: COMMAND installs packages. Those of containerd and prometheus start a daemon and enable it: the
# scripts here start their own, so it does neither. What was enabled before stays so.
without_services() {
    local before at
    before=$(started_at_boot)
    # Also where a package cannot be installed.
    trap allow_services EXIT
    deny_services
    "$@"
    allow_services
    trap - EXIT
    LC_ALL=C comm -13 <(echo "$before") <(started_at_boot) | while read -r at; do
        case $at in
        */rc?.d/*) update-rc.d "${at##*/S[0-9][0-9]}" disable ;;
        # It works for packages' scripts alone, and systemctl is not on every machine.
        *) DPKG_MAINTSCRIPT_PACKAGE=podshim deb-systemd-helper disable "${at##*/}" ;;
        esac
    done >/dev/null
}

# started_at_boot: the links that enable a service.
started_at_boot() {
    local root=${DPKG_ROOT:-}
    {
        compgen -G "$root/etc/systemd/system/*.wants/*" || true
        compgen -G "$root/etc/rc?.d/S*" || true
    } | LC_ALL=C sort
}

# deny_services: dpkg asks this file before a package starts a service. One that a killed setup leaves denies nothing.
deny_services() {
    local policy=${DPKG_ROOT:-}/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || mv "$policy" "$policy.before-podshim"
    printf '#!/bin/sh\n# hack/setup of podshim, process %s: while it installs packages none of their services starts.\n' $$ >"$policy"
    printf '[ ! -d /proc/%s ] || exit 101\n' $$ >>"$policy"
    chmod 755 "$policy"
}

allow_services() {
    local policy=${DPKG_ROOT:-}/usr/sbin/policy-rc.d
    rm -f "$policy"
    [ ! -e "$policy.before-podshim" ] || mv "$policy.before-podshim" "$policy"
}
