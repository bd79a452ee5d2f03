package PVE::ACME::DNSChallenge;
use strict; use warnings;
use base qw(PVE::ACME::Challenge);
sub type { return 'dns' }
sub properties { return {} }
sub options { return {} }
1;
