# The first steps in Perl, by FFI::Platypus. ISENTROPIC_LIBRARY is the path of the shared library.
use strict;
use warnings;
use FFI::Platypus 2.00;

my $ffi = FFI::Platypus->new(api => 2, lib => $ENV{ISENTROPIC_LIBRARY} // "libisentropic.so");
$ffi->attach(isentropic_apply => ["string", "string", "opaque", "size_t"] => "int");
$ffi->attach(isentropic_last_error => [] => "string");
use constant { FLOAT64 => 2, SIZE => 64 };

# An array is its name, a reference to packed float64, its rows and cols.
sub apply {
  my ($operation, $parameters, @given) = @_;
  my $arrays = join "", map {
    my ($name, $data, $rows, $cols) = @$_;
    pack("J p P J J j j l l", SIZE, $name, $$data, $rows, $cols, 0, 0, FLOAT64, 0);
  } @given;
  die isentropic_last_error() . "\n" if isentropic_apply($operation, $parameters, unpack("J", pack("P", $arrays)), scalar @given);
}

my $x = pack("d*", 2.0, 1.0, 0.1, -1.0);
my ($p, $entropy) = (pack("d4", (0) x 4), pack("d", 0));
apply("entmax", '{"alpha": 1.3}', ["x", \$x, 1, 4], ["y", \$p, 1, 4]);
apply("entropy", undef, ["p", \$p, 1, 4], ["value", \$entropy, 1, 1]);
printf "%.4f %.4f %.4f %.4f entropy %.4f\n", unpack("d4", $p), unpack("d", $entropy);
eval { apply("softmax", '{"temperature": -1}', ["x", \$x, 1, 4], ["y", \$p, 1, 4]) };
print $@;
