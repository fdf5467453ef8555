#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Debian package of a build that there is.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/package_deb.sh [--build DIR] [--out DIR] [--version VERSION] [--maintainer WHO]
                            [--compression TYPE]

Makes a Debian package of the reprise program in an existing build folder: the program, the systemd
unit and its configuration file, the manual page, completion for shells and the documents. It
builds nothing. Prints the path of the package.

  --build DIR         build folder with the program in it (default: build/cuda)
  --out DIR           where the package goes; made where it is missing (default: dist)
  --version VERSION   of the package (default: the program's, and revision 1)
  --maintainer WHO    "Name <address>" of who makes it (default: DEBFULLNAME and DEBEMAIL of the
                      environment, as Debian's own tools have it)
  --compression TYPE  xz, gzip, zstd or none (default: xz)

Needs dpkg-dev and binutils. docs/deploy.md says what the package does.
TEXT
}

fail() {
  printf 'package_deb.sh: %s\n' "$*" >&2
  exit 1
}

build=build/cuda
out=dist
version=""
maintainer="${DEBFULLNAME:-The Reprise authors} <${DEBEMAIL:-reprise@localhost}>"
compression=xz
while (($# > 0)); do
  case "$1" in
    --help | -h)
      usage
      exit 0
      ;;
    --build | --out | --version | --maintainer | --compression)
      (($# > 1)) || fail "$1: got no value"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    *)
      usage >&2
      fail "unknown argument \"$1\""
      ;;
  esac
done

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packaging=${source_dir}/packaging
for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
  command -v "${tool}" > /dev/null || fail "no ${tool}; it is in dpkg, dpkg-dev, binutils or gzip"
done
[[ -x ${build}/reprise ]] || fail "--build: got ${build}, which has no program reprise in it"
case "${compression}" in
  xz | gzip | zstd | none) ;;
  *) fail "--compression: got \"${compression}\", allowed: xz, gzip, zstd, none" ;;
esac
if [[ -z ${version} ]]; then
  version=$("${build}/reprise" --version | sed -n 's/^reprise \([0-9.]*\) .*/\1/p')-1
fi
[[ ${version} =~ ^[0-9][A-Za-z0-9.+~-]*$ ]] \
  || fail "--version: got \"${version}\", allowed: a version of Debian's, such as 0.1.0-1"
[[ ${maintainer} =~ ^[^\<\>]+\ \<[^\<\>\ ]+\>$ ]] \
  || fail "--maintainer: got \"${maintainer}\", allowed: \"Name <address>\""
architecture=$(dpkg --print-architecture)

scratch=$(mktemp -d)
trap 'rm -rf "${scratch}"' EXIT
root=${scratch}/root
doc=${root}/usr/share/doc/reprise

# The same files make the same package.
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
  SOURCE_DATE_EPOCH=$(git -C "${source_dir}" log -1 --format=%ct 2> /dev/null || date +%s)
fi
export SOURCE_DATE_EPOCH

install_program() {
  install -D -m 0755 "${build}/reprise" "${root}/usr/bin/reprise"
  strip --strip-unneeded --remove-section=.comment "${root}/usr/bin/reprise"
}

install_service() {
  install -D -m 0644 "${packaging}/systemd/reprise.service" \
    "${root}/lib/systemd/system/reprise.service"
  install -D -m 0644 "${packaging}/systemd/serve.toml" "${root}/etc/reprise/serve.toml"
}

write_changelog() {
  cat <<TEXT
reprise (${version}) unstable; urgency=medium

  * What has changed stands in changelog.gz.

 -- ${maintainer}  $(date -u -R -d "@${SOURCE_DATE_EPOCH}")
TEXT
}

write_copyright() {
  cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: reprise

Files: *
Copyright: 2026 The Reprise authors
License: Apache-2.0
 On Debian systems the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
TEXT
}

install_documents() {
  install -d "${doc}/docs/pictures"
  install -m 0644 "${source_dir}/README.md" "${doc}/README.md"
  install -m 0644 "${source_dir}"/docs/*.md "${doc}/docs"
  install -m 0644 "${source_dir}"/docs/pictures/* "${doc}/docs/pictures"
  write_copyright > "${doc}/copyright"
  gzip -9n < "${source_dir}/CHANGELOG.md" > "${doc}/changelog.gz"
  write_changelog | gzip -9n > "${doc}/changelog.Debian.gz"
  install -D -m 0644 "${packaging}/debian/lintian-overrides" \
    "${root}/usr/share/lintian/overrides/reprise"
}

# What the program says of its own command line.
install_shell_files() {
  install -d "${root}/usr/share/man/man1" "${root}/usr/share/bash-completion/completions" \
    "${root}/usr/share/zsh/vendor-completions" "${root}/usr/share/fish/vendor_completions.d"
  "${build}/reprise" man | gzip -9n > "${root}/usr/share/man/man1/reprise.1.gz"
  "${build}/reprise" completion bash > "${root}/usr/share/bash-completion/completions/reprise"
  "${build}/reprise" completion zsh > "${root}/usr/share/zsh/vendor-completions/_reprise"
  "${build}/reprise" completion fish \
    > "${root}/usr/share/fish/vendor_completions.d/reprise.fish"
}

# The packages whose libraries the program was linked to.
find_dependencies() {
  mkdir -p "${scratch}/debian"
  printf 'Source: reprise\n\nPackage: reprise\nArchitecture: any\n' > "${scratch}/debian/control"
  (cd "${scratch}" && dpkg-shlibdeps -O "root/usr/bin/reprise" 2> "${scratch}/shlibdeps.log") \
    || fail "dpkg-shlibdeps: $(cat "${scratch}/shlibdeps.log")"
}

# KiB as dpkg-gencontrol counts them, for any file system: a file's bytes rounded up, and one for
# each folder. Blocks on this disk would not do: the same files can take other ones.
installed_size() {
  find "${root}" -path "${root}/DEBIAN" -prune -o -type f -printf '%s\n' -o -printf '1\n' \
    | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }'
}

write_control() {
  local dependencies
  dependencies=$(find_dependencies | sed -n 's/^shlibs:Depends=//p')
  [[ -n ${dependencies} ]] || fail "dpkg-shlibdeps found no library that the program needs"
  cat <<TEXT
Package: reprise
Version: ${version}
Architecture: ${architecture}
Maintainer: ${maintainer}
Installed-Size: $(installed_size)
Depends: ${dependencies}, adduser
Section: science
Priority: optional
Description: graph-replay runtime for LLM decode serving
 Reprise captures one graph of a language model's decode step for each batch
 size and runs every step as one launch of such a graph. An external scheduler
 drives it over gRPC. This package has the program, its service for systemd
 and the documents; GPU drivers are opened at run time where they are
 installed.
TEXT
}

install_control() {
  install -d "${root}/DEBIAN"
  write_control > "${root}/DEBIAN/control"
  printf '/etc/reprise/serve.toml\n' > "${root}/DEBIAN/conffiles"
  for script in postinst prerm postrm; do
    install -m 0755 "${packaging}/debian/${script}" "${root}/DEBIAN/${script}"
  done
  (cd "${root}" && find usr lib -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) \
    > "${root}/DEBIAN/md5sums"
}

umask 022
install_program
install_service
install_documents
install_shell_files
install_control
chmod -R u=rwX,go=rX "${root}"
mkdir -p "${out}"
package=${out}/reprise_${version}_${architecture}.deb
dpkg-deb --root-owner-group "-Z${compression}" --build "${root}" "${package}" > /dev/null
printf '%s\n' "${package}"
