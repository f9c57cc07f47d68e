# The files of a package (hack/deb, hack/rpm, hack/image, hack/release).
# shellcheck shell=bash disable=SC2034 # variables for the caller

# same_everywhere: takes away what the caller's environment would put into the files: languages, time zones, a umask, options of
# tools, the compiler's flags and wrappers.
same_everywhere() {
    umask 022
    export LC_ALL=C TZ=UTC
    unset LANG LANGUAGE TAR_OPTIONS GZIP POSIXLY_CORRECT CDPATH
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS CARGO_BUILD_TARGET
    unset RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_RUSTC_WRAPPER CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER "${!CARGO_PROFILE_@}"
}

# read_arguments ARGUMENTS: of hack/deb and hack/rpm. Sets output, arch, and the machine of that.
read_arguments() {
    arch=$(dpkg --print-architecture)
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help) show_help && exit ;;
        --output) output=$(realpath -m "${2:?--output needs a file}") && shift 2 ;;
        --arch) arch=${2:?--arch needs amd64 or arm64} && shift 2 ;;
        *) die "unknown argument: $1 (see -h)" ;;
        esac
    done
    machine=$(machine_of "$arch")
}

# package_version: of the workspace.
package_version() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml"; }

# machine_of ARCH: what the toolchain and rpm call it.
machine_of() {
    case $1 in
    amd64) echo x86_64 ;;
    arm64) echo aarch64 ;;
    *) die "--arch is amd64 or arm64, not $1" ;;
    esac
}

# stage ARCH DIRECTORY: the files below DIRECTORY, as `podshim install` writes them, with the programs for ARCH.
stage() {
    local native bin
    native=$("$HACK/build") && bin=$("$HACK/build" --arch "$1") || return
    rm -rf "$2"
    "$native/podshim" install --root "$2" --bin-dir /usr/bin --no-config --yes >/dev/null || return
    # The node enables the unit, not the package.
    rm -r "${2:?}/etc"
    # For clusters: what the pages call dist/kubernetes, dist/monitoring, dist/policy.
    cp -r "$ROOT"/dist/{kubernetes,monitoring,policy} "$2/usr/share/podshim/"
    install -m 755 "$bin/podshim" "$bin/containerd-shim-podshim-v2" "$2/usr/bin/"
}

# pages DIRECTORY: the pages, with everything that they link to.
pages() {
    mkdir -p "$1"
    cp -r "$ROOT"/{README,CHANGELOG,CONTRIBUTING,SECURITY}.md "$ROOT/LICENSE" "$ROOT/docs" "$1"
    without_links_to_sources "$1/docs"
}

# debian_changelog: of this build, for lintian and apt; what is new is in the pages.
debian_changelog() {
    printf 'podshim (%s-1) unstable; urgency=medium\n\n  * See /usr/share/doc/podshim/changelog.gz.\n\n -- %s  %s\n' "$(package_version)" \
        'The podshim authors <podshim@podshim.example>' "$(date -u -R -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")"
}
