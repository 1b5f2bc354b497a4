# The first lines in the machine's namespaces: directories of its own, where Slurm, munge and divvyd have theirs, and a
# copy of /etc. Nobody outside sees what is written here, and it ends with the machine.
# $1: the directory of divvy and divvyd; $2: the plugin; $3: its sources.
umask 022
mount -t tmpfs -o mode=755 none /mnt
mkdir -p /mnt/local/bin /mnt/local/lib/divvy /mnt/nodes /mnt/sources/contrib /mnt/sources/target/release
cp -r "$3" /mnt/sources/contrib/slurm
cp "$1/divvy" "$1/divvyd" /mnt/sources/target/release/
cp "$2" /mnt/local/lib/divvy/spank_divvy.so
cp -a /etc /mnt/etc
mount --bind /mnt/etc /etc
mount --bind /mnt/local /usr/local
for dir in /home /run /tmp /var/lib /var/log /var/spool /var/tmp; do mount -t tmpfs -o mode=755 none "$dir"; done
chmod 1777 /tmp /var/tmp

# 10.0.0.1 beside 127.0.0.1: a machine that has nothing but that one looks up no names (getaddrinfo's AI_ADDRCONFIG).
ip link set lo up
ip address add 10.0.0.1/32 dev lo
hostname site
printf '127.0.0.1 localhost\n10.0.0.1 site\n' > /etc/hosts
groupadd --force lab
for user in alice bob carol; do
    id "$user" > /dev/null 2>&1 || useradd --create-home "$user"
done
usermod --append --groups lab alice

mkdir -p /etc/munge /etc/slurm /run/munge /var/lib/munge /var/log/munge /var/lib/slurm/slurmctld /var/log/slurm /var/spool/slurmd
head -c 128 /dev/urandom > /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
chmod 755 /run/munge
chown -R munge:munge /etc/munge /run/munge /var/lib/munge /var/log/munge
chown -R slurm:slurm /var/lib/slurm /var/log/slurm
