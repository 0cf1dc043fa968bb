#!/bin/sh
# Installs Hotrow @VERSION@ on Linux: `curl -fsSL @URL@/install.sh | sh`. With PREFIX=/usr/local
# (the default) it needs root; PREFIX=$HOME/.local does not. It changes nothing else: services,
# users and upgrades are the packages' (docs/install.md).
set -eu

die() {
  echo "install: $*" >&2
  exit 1
}

main() {
  prefix=${PREFIX:-/usr/local}
  [ "$(uname -s)" = Linux ] || die "Hotrow runs on Linux; this is $(uname -s): use the image"
  machine=$(uname -m)
  case $machine in
    x86_64) sum=@SHA256_X86_64@ ;;
    aarch64) sum=@SHA256_AARCH64@ ;;
    *) sum= ;;
  esac
  [ -n "$sum" ] || die "there are no programs for $machine; build them: docs/install.md"
  mkdir -p "$prefix/bin" 2>/dev/null || true
  [ -w "$prefix/bin" ] ||
    die "$prefix/bin is not writable; run it as root, or with PREFIX=\$HOME/.local"
  file=hotrow-@VERSION@-$machine-linux-gnu.tar.gz
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  curl -fsSL --proto '=https,http' "@URL@/$file" -o "$folder/$file" || die "@URL@/$file is missing"
  echo "$sum  $folder/$file" | sha256sum --check --status ||
    die "$file has another checksum than this script expects; nothing was installed"
  tar -xzf "$folder/$file" -C "$folder" --strip-components=1 --no-same-owner
  "$folder/usr/bin/hotrow" --version >/dev/null || die "hotrow does not start: it needs glibc 2.34"
  install -m 755 "$folder/usr/bin/hotrow" "$folder/usr/bin/hotrow-lab" "$prefix/bin"
  mkdir -p "$prefix/share/man/man1"
  install -m 644 "$folder"/usr/share/man/man1/* "$prefix/share/man/man1"
  echo "Installed in $prefix/bin. Try: $prefix/bin/hotrow serve --demo"
}

# A download that ends early runs nothing.
main
