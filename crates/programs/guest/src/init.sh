#!/bin/busybox sh
# The first process of the guest. What it is to do stands on the kernel's command line, behind guest=, with colons between the words:
# they are what its program is called with.
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
for module in /modules/*; do
    /bin/busybox insmod "$module"
done
tries=3000
until [ -b /dev/vda ]; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
        echo "guest: FAILED: it has no disk"
        /bin/busybox poweroff -f
    fi
    /bin/busybox usleep 10000
done
words=
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in
        guest=*) words=$(echo "${word#guest=}" | /bin/busybox tr : ' ') ;;
    esac
done
echo "guest: begins: $words"
case $words in
    shell) exec /bin/busybox sh ;;
    file*) /bin/busybox mount -t ext4 /dev/vda /mnt || echo "guest: FAILED: no ext4" ;;
esac
/bin/guest $words
/bin/busybox sync
/bin/busybox poweroff -f
