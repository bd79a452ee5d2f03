package PVE::RS::TFA;
# A stub of pve-autoscaler's tests/pve-world: nobody has a second factor.
use strict; use warnings;
our $AUTOLOAD;
sub new { my ($c, $raw) = @_; return bless { raw => $raw // '' }, $c }
sub write { return $_[0]{raw} }
sub users { return [] }
sub tfa_lock_status { return {} }
sub SET_CONFIG { return }
sub AUTOLOAD { return if $AUTOLOAD =~ /DESTROY$/; return }
1;
