# In a clean Debian root. Each step fails the test by its exit code.
say() { echo "== $*"; }
die() { echo "$*" >&2; exit 1; }
version() { dpkg-query --show --showformat '${Version}' divvy; }

say install
# What the page has a reader type, with the package under the name that it has there.
mkdir /tmp/page
cp /mnt/divvy_0.1.0~one_*.deb "/tmp/page/$(sed -n 's,^apt install ./,,p' /mnt/install.sh)"
(cd /tmp/page && sh -eu /mnt/install.sh)
[ "$(version)" = 0.1.0~one ]
divvy --version
divvyd --version
for file in man/man1/divvy.1.gz man/man1/divvy-share.1.gz man/man1/divvyd.1.gz bash-completion/completions/divvy \
    zsh/vendor-completions/_divvyd fish/vendor_completions.d/divvy.fish doc/divvy/copyright \
    doc/divvy/examples/divvyd.toml doc/divvy/examples/far-over doc/divvy/docs/limits.md doc/divvy/docs/openapi.json; do
    [ -s "/usr/share/$file" ] || die "no $file"
done
for unit in divvyd.service divvyd.socket divvy-usage.service divvy-site-sync.service; do
    [ -s "/usr/lib/systemd/system/$unit" ] || die "no $unit"
done
grep -q '^ExecStart=/usr/bin/divvyd --system$' /usr/lib/systemd/system/divvyd.service
grep -q '^ExecStart=/usr/bin/divvyd --system --backend kernel$' /usr/share/doc/divvy/examples/kernel.conf
[ ! -e /etc/systemd/system/sockets.target.wants/divvyd.socket ] || die 'enabled without being asked'
bash -c 'source /usr/share/bash-completion/completions/divvy && complete -p divvy'

say tutorial
sh -eu /mnt/tutorial.sh 2>&1

say the system
mkdir /etc/divvy
cp /usr/share/doc/divvy/examples/divvyd.toml /etc/divvy/
divvyd --system 2>/tmp/log &
divvyd=$!
tries=0
until divvy ls --system >/tmp/ls 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || die "$(cat /tmp/ls /tmp/log)"
    sleep 0.1
done
divvy currency create kept
[ -n "$(ls /var/lib/divvy)" ] || die "no market is kept"

say upgrade
# What systemd would be asked.
[ ! -e /usr/bin/systemctl ] || die 'systemd is here'
printf '#!/bin/sh\necho "$@" >>/tmp/asked\n' >/usr/bin/systemctl
chmod 755 /usr/bin/systemctl
mkdir -p /run/systemd/system
apt-get install -q -y /mnt/divvy_0.1.0~two_*.deb
for unit in divvyd divvy-usage divvy-site-sync; do
    grep -q "^try-restart .*$unit[.]service" /tmp/asked || die "$unit runs on as it was: $(cat /tmp/asked)"
done
# What the pages have a reader type, with the same in the place of systemd.
sh -eu /mnt/enable.sh
sh -eu /mnt/usage.sh
for asked in 'enable --now divvyd.service divvyd.socket' 'enable --now divvy-usage'; do
    grep -qx -e "$asked" /tmp/asked || die "not asked for: $asked"
done
grep -o '/etc/divvy/far-over' /usr/lib/systemd/system/divvy-usage.service
[ -x /etc/divvy/far-over ] || die 'no far-over'
rm /usr/bin/systemctl
rmdir /run/systemd/system /run/systemd 2>/dev/null || true
[ "$(version)" = 0.1.0~two ]
divvy currency ls | grep -q kept
kill $divvyd
wait $divvyd

say remove
apt-get remove -q -y divvy
[ ! -e /usr/bin/divvy ] && [ ! -e /usr/bin/divvyd ] && [ ! -e /usr/lib/systemd/system/divvyd.socket ]
[ -s /etc/divvy/divvyd.toml ] || die 'the policy is gone'
[ -n "$(ls /var/lib/divvy)" ] || die 'the market is gone'

say again
apt-get install -q -y /mnt/divvy_0.1.0~two_*.deb
mkdir -p /etc/systemd/system/sockets.target.wants
ln -s /usr/lib/systemd/system/divvyd.socket /etc/systemd/system/sockets.target.wants/
divvyd --system 2>/tmp/log &
divvyd=$!
tries=0
until divvy currency ls 2>/dev/null | grep -q kept; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || die "$(cat /tmp/log)"
    sleep 0.1
done
kill $divvyd
wait $divvyd

say purge
apt-get purge -q -y divvy
# The directory was made above, as `systemctl enable` would have.
rmdir /etc/systemd/system/sockets.target.wants 2>/dev/null || true
say the end
