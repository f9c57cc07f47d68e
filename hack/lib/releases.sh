# containerd, runc, crun, criu and qemu of Debian's releases, beside those installed: where they are kept, how they are
# fetched. Sourced by hack/setup, which fetches, and by hack/containerd-up and hack/release, which only read. Nothing here is
# installed.
# shellcheck shell=bash

# Outside the work tree: a clean build need not fetch again.
RELEASES=${XDG_CACHE_HOME:-${HOME:?}/.cache}/podshim

# native_containerd: the installed containerd's version, as in 1.6; empty if there is none.
native_containerd() {
    containerd --version 2>/dev/null | sed -nE 's/^.* v?([0-9]+\.[0-9]+)\.[0-9].*$/\1/p'
}

# suite_of VERSION: the Debian release that has this containerd.
suite_of() {
    case $1 in
    1.6) echo bookworm ;;
    1.7) echo trixie ;;
    2.1) echo forky ;;
    *) die "containerd $1: which Debian release has it is not known here (1.6, 1.7, 2.1)" ;;
    esac
}

# release_path VERSION: a search path for the programs of a fetched release. Fails if it was not fetched.
release_path() {
    local root
    root=$(realpath -qe "$RELEASES/$(suite_of "$1")/current") || return
    echo "$root/usr/bin:$root/usr/sbin"
}

# fetch DIRECTORY WHAT PACKAGES PROGRAMS DOWNLOAD...: runs DOWNLOAD... SCRATCH, which fetches packages into SCRATCH/archives and
# unpacks them into SCRATCH/root; that becomes DIRECTORY/current, named by the versions of PACKAGES. PROGRAMS of it are to run here.
fetch() {
    local directory=$1 what=$2 packages=$3 programs=$4 scratch versions package
    shift 4
    for command in apt-get dpkg-deb patchelf; do
        command -v "$command" >/dev/null || die "$command is missing: $what cannot be fetched here"
    done
    say "setup: fetching $what"
    mkdir -p "$directory"
    scratch=$(mktemp -d "$directory/fetch.XXXXXX")
    if ! "$@" "$scratch" >"$scratch/log" 2>&1; then
        cat "$scratch/log" >&2
        rm -rf "$scratch"
        die "$what could not be fetched"
    fi
    versions=$(for package in $packages; do (cd "$scratch/archives" && printf '%s\n' "$package"_*); done | cut -d_ -f1,2 | paste -sd+)
    rm -rf "${directory:?}/$versions"
    mv "$scratch/root" "$directory/$versions"
    # shellcheck disable=SC2086 # a list of words
    [ -z "$programs" ] || use_own_libraries "$directory/$versions" $programs ||
        die "$directory/$versions: these programs do not run here"
    # Only now, so that the next run finds nothing unfinished if this one is interrupted.
    ln -sfn "$versions" "$directory/current"
    rm -rf "$scratch"
}

# fetch_release VERSION: quick if it is fetched already. To get a newer one, remove the release's directory.
fetch_release() {
    local suite programs
    suite=$(suite_of "$1")
    # A release that was fetched without criu, by an older version of this script, is fetched again.
    [ ! -x "$RELEASES/$suite/current/usr/sbin/criu" ] || return 0
    programs=$(echo usr/{bin/{containerd,containerd-shim-runc-v2,ctr,crun},sbin/{runc,criu}})
    fetch "$RELEASES/$suite" "containerd $1 of Debian $suite" "containerd runc crun criu" "$programs" download_release "$suite"
}

# suite_sources SUITE DIRECTORY: writes the machine's own Debian sources for another release. Without those of security
# updates, whose names differ: the newest release has none.
suite_sources() {
    local suite=$1 directory=$2 own file
    own=$(. /etc/os-release && echo "$VERSION_CODENAME")
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || awk -v "own=$own" -v "suite=$suite" 'BEGIN { RS = ""; ORS = "\n\n" }
            $0 ~ "(^|\n)Suites:([^\n]* )?" own "( |\n|$)" && /(^|\n)Components:([^\n]* )?main( |\n|$)/ {
                sub(/(^|\n)Suites:[^\n]*/, "\nSuites: " suite); print }' "$file"
    done >"$directory/debian.sources"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -e "$file" ] || sed -nE "s/^deb (\[[^]]*\] *)?([^ ]+) +$own +(.*\<main\>.*)/deb \1\2 $suite \3/p" "$file"
    done >"$directory/debian.list"
    [ -s "$directory/debian.sources" ] || [ -s "$directory/debian.list" ] || {
        say "/etc/apt names no source of Debian $own to take $suite from"
        return 1
    }
}

# private_apt SUITE DIRECTORY: sets `options`, with which apt-get fetches packages of that release into
# DIRECTORY/archives. With an empty list of installed packages it finds every library that they need, libc too. The
# machine's own lists, cache and installed packages are neither read nor changed.
private_apt() {
    local suite=$1 directory=$2
    mkdir -p "$directory"/{lists/partial,cache,archives/partial,sources,root}
    suite_sources "$suite" "$directory/sources" || return
    : >"$directory/status"
    options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$directory/sources"
        -o "Dir::State::Lists=$directory/lists" -o "Dir::State::Status=$directory/status"
        -o "Dir::Cache=$directory/cache" -o "Dir::Cache::Archives=$directory/archives"
        -o APT::Sandbox::User=root -o APT::Update::Post-Invoke-Success= -o DPkg::Post-Invoke=)
}

# extract_archives DIRECTORY: unpacks the fetched packages into DIRECTORY/root.
extract_archives() {
    local package
    for package in "$1"/archives/*.deb; do
        dpkg-deb --extract "$package" "$1/root" || return
    done
}

# download_release SUITE DIRECTORY: fetches the packages and all that they need into DIRECTORY/root.
download_release() {
    local suite=$1 directory=$2 options
    private_apt "$suite" "$directory" || return
    apt-get "${options[@]}" update &&
        apt-get "${options[@]}" --no-install-recommends --download-only --yes install containerd runc crun criu || return
    extract_archives "$directory" || return
    # Only programs and libraries are needed.
    rm -rf "$directory/root"/{etc,usr/share}
}

# The newest runc of Debian's experimental and unstable.
NEWEST_RUNC=$RELEASES/newest-runc

# newest_runc_path: a search path with it. Fails if it was not fetched.
newest_runc_path() {
    local root
    root=$(realpath -qe "$NEWEST_RUNC/current") && echo "$root/usr/sbin"
}

# fetch_newest_runc: quick if it is fetched already. To get a newer one, remove the directory.
fetch_newest_runc() {
    newest_runc_path >/dev/null ||
        fetch "$NEWEST_RUNC" "the newest runc of Debian" runc usr/sbin/runc download_newest_runc
}

# download_newest_runc DIRECTORY: the package and all that it needs, into DIRECTORY/root. experimental is no whole release: what
# runc needs is unstable's.
download_newest_runc() {
    local directory=$1 options version
    private_apt unstable "$directory" || return
    mkdir "$directory/experimental"
    suite_sources experimental "$directory/experimental" || return
    for file in "$directory"/experimental/debian.*; do cp "$file" "$directory/sources/experimental.${file##*.}"; done
    apt-get "${options[@]}" update || return
    version=$(apt-cache "${options[@]}" madison runc | cut -d'|' -f2 | tr -d ' ' | sort -V | tail -n 1)
    apt-get "${options[@]}" --no-install-recommends --download-only --yes install "runc=$version" || return
    extract_archives "$directory" || return
    rm -rf "$directory/root"/{etc,usr/share}
}

# use_own_libraries ROOT PROGRAM...: binds a program for which the machine's libraries are too old to those of its
# release, which are in ROOT too. Not with a wrapper that calls the loader: runc executes /proc/self/exe again, which
# would be the loader.
use_own_libraries() {
    local root=$1 program loader
    shift
    loader=$(find "$root/usr" -name 'ld-linux-*' -type f -print -quit)
    for program in "$@"; do
        if ! runs "$root/$program"; then
            # RPATH, not RUNPATH, because it applies to the libraries' own libraries too.
            patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$(dirname "$loader")" "$root/$program" || return
            runs "$root/$program" || return
        fi
    done
}

# -v prints the version, in most of them. Lazy binding would hide a missing function until it is called.
runs() {
    case $1 in
    */criu) LD_BIND_NOW=1 "$1" -V ;;
    */linux.uml) LD_BIND_NOW=1 "$1" --version ;;
    *) LD_BIND_NOW=1 "$1" -v ;;
    esac
} >/dev/null 2>&1

# What runs programs of another processor, linked statically. qemu 7.2 of Debian 12 refuses prctl(PR_SET_CHILD_SUBREAPER), without
# which a shim runs no process; 10.0 of trixie passes it on.
QEMU=$RELEASES/qemu QEMU_SUITE=trixie

# qemu_for MACHINE: the program. Fails if it was not fetched.
qemu_for() { realpath -qe "$QEMU/current/qemu-$1"; }

# fetch_qemu: quick if it is fetched already. To get a newer one, remove the directory.
fetch_qemu() {
    qemu_for aarch64 >/dev/null || fetch "$QEMU" "qemu of Debian $QEMU_SUITE" qemu-user '' download_qemu
}

# download_qemu DIRECTORY: into DIRECTORY/root, those of the package's programs that hack/release may need: all have 470 MB.
download_qemu() {
    local directory=$1 options
    private_apt "$QEMU_SUITE" "$directory" || return
    apt-get "${options[@]}" update &&
        apt-get "${options[@]}" --no-install-recommends --download-only --yes install qemu-user || return
    dpkg-deb --fsys-tarfile "$directory"/archives/qemu-user_*.deb |
        tar -x -C "$directory/root" --strip-components=3 ./usr/bin/qemu-{aarch64,x86_64} &&
        "$directory/root/qemu-aarch64" --version
}
