# One child after the other, each with a little to do.
open(my $out, '>>', $ARGV[0]) or die; $out->autoflush(1);
use IO::Handle;
while (1) {
    my $pid = fork // die;
    if (!$pid) { my $x = 1; $x = ($x * 31 + 7) % 65521 for 1 .. 3000; exit }
    waitpid $pid, 0;
    print $out '.';
}
