#!/bin/sh
# Boots one machine of a lab and stays until it is off: namespaces of its own, this machine's root as the lower layer of
# an overlay, systemd as the first process.
#
# machine_boot.sh GROUP FOLDER NAME MARKER BOUND…
#   GROUP    its control group
#   FOLDER   holds the machine's layers: upper/ with its own files, work/, merged/
#   NAME     its host name
#   MARKER   an argument of each process here, by which the lab finds them
#   BOUND    folders of this machine that are seen there under the same names, read-only but for those marked by rw:
set -eu

control_groups() {
    # Machines in one control group would see, and end, each other's units.
    for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
        [ -w "$tree/cgroup.procs" ] || continue
        [ "${tree##*/}" != cpuset ] || continue # a new group of it has no processors; systemd makes no use of it
        mkdir -p "$tree/$1"
        echo $$ >"$tree/$1/cgroup.procs"
    done
}

own_control_groups() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
        return
    fi
    mount -t tmpfs -o mode=755 tmpfs "$1/sys/fs/cgroup"
    mkdir "$1/sys/fs/cgroup/systemd" "$1/sys/fs/cgroup/unified"
    mount -t cgroup -o none,name=systemd cgroup "$1/sys/fs/cgroup/systemd"
    # Without it (a kernel without version 2) systemd counts by version 1 alone.
    mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup/unified" || rmdir "$1/sys/fs/cgroup/unified"
}

devices() {
    mount -t tmpfs -o mode=755,nosuid tmpfs "$1/dev"
    mkdir "$1/dev/pts" "$1/dev/shm"
    for device in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "$1/dev/${device%:*}" c 1 "${device#*:}"
    done
    mknod -m 666 "$1/dev/tty" c 5 0
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$1/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
    ln -s pts/ptmx "$1/dev/ptmx"
    ln -s /proc/self/fd "$1/dev/fd"
    ln -s fd/0 "$1/dev/stdin"
    ln -s fd/1 "$1/dev/stdout"
    ln -s fd/2 "$1/dev/stderr"
}

bind() {
    options=ro
    case $2 in rw:*) options=rw ;; esac
    folder=${2#rw:}
    mkdir -p "$1$folder"
    # Whoever runs the worker there may pass; /root lets nobody through.
    above=$(dirname "$folder")
    while [ "$above" != / ]; do
        chmod o+x "$1$above"
        above=$(dirname "$above")
    done
    mount --bind "$folder" "$1$folder"
    mount -o "remount,bind,$options" "$1$folder"
}

if [ "$1" != inside ]; then
    control_groups "$1"
    shift
    exec unshare --pid --fork --kill-child --mount --uts --ipc --cgroup /bin/sh "$0" inside "$@"
fi

folder=$2 name=$3 marker=$4
shift 4
root=$folder/merged
mount -t overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" overlay "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
own_control_groups "$root"
devices "$root"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/run/systemd/system" "$root/run/lock"
for bound in "$@"; do
    bind "$root" "$bound"
done
# Each boot has an id of its own, each machine too.
cat /proc/sys/kernel/random/uuid >"$root/run/boot_id"
# Most settings of the kernel are this machine's own, too; systemd raises some (fs.file-max) wherever it may.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount --bind "$root/run/boot_id" "$root/proc/sys/kernel/random/boot_id"
hostname "$name"
cd "$root"
mkdir -p run/before
pivot_root . run/before
umount -l /run/before
rmdir /run/before
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system \
    --unit=machine.target --log-target=journal --show-status=0 "$marker" </dev/null
