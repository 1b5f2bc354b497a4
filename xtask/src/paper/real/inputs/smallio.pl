# Small reads and writes all over a file, and now and then the disk is waited for.
use IO::Handle;
open(my $out, '>>', $ARGV[0]) or die; $out->autoflush(1);
open(my $file, '+>', 'file') or die;
my ($x, $block) = (1, 'x' x 4096);
syswrite $file, $block for 1 .. 1024;
while (1) {
    for (1 .. 16) {
        $x = ($x * 1103515245 + 12345) % 2147483648;
        sysseek $file, 4096 * ($x >> 12 & 1023), 0; sysread $file, my $old, 4096;
        sysseek $file, 4096 * ($x >> 10 & 1023), 0; syswrite $file, $block;
    }
    $file->sync;
    print $out '.';
}
