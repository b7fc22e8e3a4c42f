#!/usr/bin/env bash
# Creates the root file system of the images from Debian packages: base.sh FOLDER ARCHITECTURE
# Runs on Debian or Ubuntu as any user. ARCHITECTURE is Debian's name (amd64, arm64) and may differ from the machine's.
# Nothing is installed and no maintainer script runs: the required files are copied from the packages.
set -euo pipefail
root=$1
arch=$2

# base-files is used only for os-release, which tells scanners the distribution of the packages.
packages=(base-files ca-certificates libc6 libgcc-s1)
# The libraries that the programs and these libraries link.
libraries=(libc.so.6 libm.so.6 libresolv.so.2 libgcc_s.so.1)

case $arch in
  amd64) triplet=x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2 ;;
  arm64) triplet=aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1 ;;
  *) echo "base.sh: ARCHITECTURE is $arch, not amd64 or arm64" >&2; exit 1 ;;
esac

umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages" "$work/files"

# Uses the package lists of the machine if they contain the packages, otherwise separate lists. The machine's settings
# are not changed.
options=(-o APT::Sandbox::User=root)
wanted=()
for package in "${packages[@]}"; do
  case $package in
    ca-certificates) wanted+=("$package") ;;
    *) wanted+=("$package:$arch") ;;
  esac
done
cd "$work/packages"
if ! apt-get --quiet=2 "${options[@]}" download --print-uris "${wanted[@]}" >/dev/null 2>&1; then
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  options+=(-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Architectures="$arch")
  apt-get --quiet=2 "${options[@]}" update >&2
fi
apt-get --quiet=2 "${options[@]}" download "${wanted[@]}" >&2
# The licence of libgcc-s1 is in a package that it depends on.
gcc_base=$(dpkg-deb --field libgcc-s1_*.deb Depends | grep -o 'gcc-[0-9]*-base')
apt-get --quiet=2 "${options[@]}" download "$gcc_base:$arch" >&2
for file in *.deb; do dpkg-deb --extract "$file" "$work/files"; done
cd - >/dev/null

mkdir -p "$root"
cd "$root"
mkdir -p etc/ssl/certs usr/bin usr/lib/"$triplet" usr/share/doc var/lib/dpkg/status.d home/nonroot
ln -s usr/bin bin
ln -s usr/lib lib

# Uses the same paths whether the packages still use /lib or have moved to /usr/lib.
take() {
  local found
  found=$(find "$work/files" -path "*/lib*/$1" \( -type f -o -type l \) | head -1)
  [ -n "$found" ] || { echo "base.sh: no file $1 in ${packages[*]}" >&2; exit 1; }
  cp --dereference --preserve=timestamps "$found" "$2"
  chmod "$3" "$2"
}
for library in "${libraries[@]}"; do take "$triplet/$library" "usr/lib/$triplet/$library" 0644; done
if [ "$arch" = amd64 ]; then
  mkdir usr/lib64
  ln -s usr/lib64 lib64
fi
take "$triplet/$(basename "$loader")" "usr/$loader" 0755

# A single file, as written by update-ca-certificates.
find "$work/files/usr/share/ca-certificates/mozilla" -name '*.crt' | LC_ALL=C sort | xargs cat > etc/ssl/certs/ca-certificates.crt
cp "$work/files/usr/lib/os-release" usr/lib/os-release
ln -s ../usr/lib/os-release etc/os-release

# Licences, and the package descriptions where scanners search for them if there is no dpkg.
for package in "${packages[@]}"; do
  dpkg-deb --field "$work/packages/$package"_*.deb > "var/lib/dpkg/status.d/$package"
  mkdir "usr/share/doc/$package"
  case $package in
    libgcc-s1) cp "$work/files/usr/share/doc/$gcc_base/copyright" "usr/share/doc/$package/" ;;
    *) cp "$work/files/usr/share/doc/$package/copyright" "usr/share/doc/$package/" ;;
  esac
done

cat > etc/passwd <<'END'
root:x:0:0:root:/:/nonexistent
nobody:x:65534:65534:nobody:/nonexistent:/nonexistent
nonroot:x:65532:65532:nonroot:/home/nonroot:/nonexistent
END
cat > etc/group <<'END'
root:x:0:
nogroup:x:65534:
nonroot:x:65532:
END
# Kubernetes writes /etc/hosts, which takes precedence over DNS.
echo 'hosts: files dns' > etc/nsswitch.conf

if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then find . -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; fi
