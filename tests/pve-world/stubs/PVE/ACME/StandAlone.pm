package PVE::ACME::StandAlone;
# A stub of pve-autoscaler's tests/pve-world.
use strict; use warnings;
use base qw(PVE::ACME::Challenge);
sub type { return 'standalone' }
sub properties { return {} }
sub options { return {} }
1;
