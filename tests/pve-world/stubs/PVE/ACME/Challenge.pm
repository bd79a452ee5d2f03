package PVE::ACME::Challenge;
# A stub of pve-autoscaler's tests/pve-world.
use strict; use warnings;
use base qw(PVE::SectionConfig);
my $d = { propertyList => { id => { type => 'string', format => 'pve-configid', description => 'id' }, type => { type => 'string', description => 'type' }, } };
sub private { return $d }
sub encode_value { my ($c, $t, $k, $v) = @_; return $v }
1;
