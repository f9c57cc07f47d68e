# A bill of materials (SPDX 2.3) of podshim's two programs: what they are compiled from, and what takes part in
# compiling them. Input: the outputs of `cargo metadata`, one for each target. $version, $commit, $created; $checksums: name,
# version and SHA-256 of each crate in Cargo.lock.
def ident: "SPDXRef-" + (.name + "-" + .version | gsub("[^A-Za-z0-9.-]"; "-"));
def depends($kind): .dep_kinds | any(.kind == $kind);

(map(.packages[]) | unique_by(.id) | INDEX(.id)) as $packages
| (map(.resolve.nodes[]) | group_by(.id) | map({id: .[0].id, deps: (map(.deps[]) | unique)}) | INDEX(.id)) as $nodes
| [$packages[] | select(.source == null and (.name == "podshim" or .name == "containerd-shim-podshim-v2")) | .id] as $roots
# Tests' crates are in no program.
| def reached($seen; $new):
    if $new == [] then $seen
    else ($seen + $new) as $all
      | reached($all; [$nodes[$new[]].deps[] | select(depends(null) or depends("build")) | .pkg] | unique - $all)
    end;
  (reached([]; $roots) | unique) as $ids
| {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: "podshim-\($version)",
    documentNamespace: "urn:podshim:\($version):\($commit)",
    creationInfo: {created: $created, creators: ["Tool: podshim-hack-release"]},
    packages: [$ids[] | $packages[.] | {
      SPDXID: ident,
      name,
      versionInfo: .version,
      downloadLocation: "NOASSERTION",
      filesAnalyzed: false,
      licenseConcluded: "NOASSERTION",
      licenseDeclared: ((.license // "NOASSERTION") | gsub("/"; " OR ")),
      copyrightText: "NOASSERTION"
    } + if .source == null then {} else {
      checksums: [{algorithm: "SHA256", checksumValue: $checksums["\(.name) \(.version)"]}],
      externalRefs: [{
        referenceCategory: "PACKAGE-MANAGER", referenceType: "purl",
        referenceLocator: "pkg:cargo/\(.name)@\(.version)"
      }]
    } end],
    relationships: (
      [$roots[] | $packages[.] | {
        spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: ident
      }] +
      [$ids[] as $id | $nodes[$id].deps[] | . as $dep | ($packages[$id] | ident) as $user | ($packages[$dep.pkg] | ident) as $used
        | (select($dep | depends(null)) | {
            spdxElementId: $user, relationshipType: "DEPENDS_ON", relatedSpdxElement: $used
          }),
          (select($dep | depends("build")) | {
            spdxElementId: $used, relationshipType: "BUILD_DEPENDENCY_OF", relatedSpdxElement: $user
          })]
    )
  }
