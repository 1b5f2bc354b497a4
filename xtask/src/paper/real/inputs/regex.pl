# Regular expressions over a text in memory.
use IO::Handle;
open(my $out, '>>', $ARGV[0]) or die; $out->autoflush(1);
open(my $in, '<', $ARGV[1]) or die; my @lines = <$in>;
while (1) {
    my %seen;
    for (@lines) { $seen{$2}++ if /^(\w+)\s+(\w*[aeiou]\w*)\b.*(\d+)$/ }
    print $out '.';
}
