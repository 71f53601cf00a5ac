#!/usr/bin/env bash
# Builds the guest: build.sh FOLDER PROGRAM, with the text of its first process in GUEST_INIT. Needs no root; what it needs is Debian's.
#
# FOLDER/vmlinux  Debian's kernel for clouds, as QEMU boots it without a boot loader
# FOLDER/initrd   busybox, the modules of a virtual disk and of ext4, and PROGRAM with the libraries that it needs
#
# What is there already is not made again, but for PROGRAM, which may be another one.
set -euo pipefail

folder=$1
program=$2
fail() {
    echo "$1" >&2
    exit 1
}
for tool in busybox lz4 strip readelf dpkg-deb apt-get apt-cache; do
    command -v "$tool" > /dev/null || fail "there is no $tool"
done
[[ -f $program ]] || fail "there is no $program"
mkdir -p "$folder"
cd "$folder"

# In the order in which they are loaded.
modules=(
    virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk virtio_console
    crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 button evdev
)

# The lists of packages may be old, or not there.
fetch() {
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
    [[ -n $package ]] && (cd kernel && apt-get download "$package")
}

if [[ ! -e kernel/done ]]; then
    rm -rf kernel
    mkdir kernel
    fetch || { apt-get update && fetch; } || fail "the kernel's package cannot be fetched"
    dpkg-deb -x kernel/*.deb kernel/tree
    # The kernel is packed within the image that boot loaders know.
    image=$(echo kernel/tree/boot/vmlinuz-*)
    begin=$(LC_ALL=C grep --byte-offset --only-matching --text --perl-regexp '\x02\x21\x4c\x18' "$image" | head -n 1 | cut -d : -f 1) \
        || fail "the kernel in $image is packed in an unknown way"
    # There is something behind the packed kernel, which is no error. Its last part is the table of its sections.
    tail -c "+$((begin + 1))" "$image" | lz4 -dc 2>/dev/null > kernel/vmlinux || true
    readelf --section-headers kernel/vmlinux > /dev/null 2> kernel/said || fail "the kernel in $image cannot be unpacked"
    [[ ! -s kernel/said ]] || fail "the kernel in $image is not whole: $(head -n 1 kernel/said)"
    rm kernel/*.deb
    touch kernel/done
fi
ln -sf kernel/vmlinux vmlinux

rm -rf root
mkdir -p root/{bin,dev,proc,sys,mnt,modules,lib64}
cp "$(command -v busybox)" root/bin/busybox
printf '%s' "$GUEST_INIT" > root/init
chmod 755 root/init
# What a debugger would want to know takes more than all the rest.
strip --strip-debug -o root/bin/guest "$program"
for needs in root/bin/busybox root/bin/guest; do
    # One that needs none is no dynamic program, which is no error.
    for library in $(ldd "$needs" 2> /dev/null | grep -o '/[^ ]*'); do
        mkdir -p "root$(dirname "$library")"
        cp --dereference "$library" "root$library"
    done
done
number=10
for module in "${modules[@]}"; do
    path=$(find kernel/tree/lib/modules -name "$module.ko" -o -name "$module.ko.xz" | head -n 1)
    if [[ -n $path ]]; then
        plain=root/modules/$number-$module.ko
        case $path in
            *.xz) xz -dc "$path" > "$plain" ;;
            *) cp "$path" "$plain" ;;
        esac
        strip --strip-debug "$plain"
        number=$((number + 1))
    else
        # What this kernel has built in is no module.
        grep -q "/$module\.ko" kernel/tree/lib/modules/*/modules.builtin || fail "the kernel has no $module"
    fi
done
(cd root && find . | sort | busybox cpio -o -H newc 2>/dev/null) > initrd.new
mv initrd.new initrd
