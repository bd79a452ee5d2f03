package PVE::ACME::StandAlone;
use strict; use warnings;
use base qw(PVE::ACME::Challenge);
sub type { return 'standalone' }
sub properties { return {} }
sub options { return {} }
1;
