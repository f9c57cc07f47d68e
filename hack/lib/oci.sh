# Writing an OCI image layout with a shell: hack/images and hack/image. The caller sets `layout`, the directory of the layout,
# whose blobs/sha256 exists.
# shellcheck shell=bash disable=SC2154 # variables of the caller

# store FILE: moves FILE into the layout's blobs and prints its digest.
store() {
    local digest
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    mv "$1" "$layout/blobs/sha256/$digest"
    printf 'sha256:%s' "$digest"
}

# descriptor MEDIA_TYPE DIGEST [MORE_FIELDS]
descriptor() {
    printf '{"mediaType":"application/vnd.oci.image.%s","digest":"%s","size":%d%s}' \
        "$1" "$2" "$(stat -c %s "$layout/blobs/sha256/${2#sha256:}")" "${3:-}"
}

# image_of ROOT_DIRECTORY ARCHITECTURE PROCESS WORK: stores an image of one layer, and prints the digest of its manifest.
# PROCESS is JSON fields of its config; files are made in WORK.
image_of() {
    local layer config
    # Sorted, with fixed times and owners: the same input gives the same digest.
    tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$4/layer" .
    layer=$(store "$4/layer")
    printf '{"architecture":"%s","os":"linux","config":{%s},"rootfs":{"type":"layers","diff_ids":["%s"]}}' \
        "$2" "$3" "$layer" >"$4/config"
    config=$(store "$4/config")
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' \
        "$(descriptor config.v1+json "$config")" "$(descriptor layer.v1.tar "$layer")" >"$4/manifest"
    store "$4/manifest"
}

# names_of NAME: the fields that name an image in an index. containerd takes the name from the first annotation, other
# tools from the second.
names_of() {
    printf ',"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}' "$1" "${1##*:}"
}
