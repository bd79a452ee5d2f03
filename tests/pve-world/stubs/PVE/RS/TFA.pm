package PVE::RS::TFA;
# No second factors.
use strict; use warnings;
our $AUTOLOAD;
sub new { my ($c, $raw) = @_; return bless { raw => $raw // '' }, $c }
sub write { return $_[0]{raw} }
sub SET_CONFIG { return }
sub AUTOLOAD { return if $AUTOLOAD =~ /DESTROY$/; return }
1;
