package PVE::AccessControl;

# Stands in for Proxmox VE's module of this name in the end-to-end test: the two
# functions that make a ticket and its CSRF token, for the one user there is.

use strict;
use warnings;

my %minted;

sub mint {
    my ($username) = @_;
    die "user name '$username' is not valid\n" if $username !~ m/^[^\s:\/]+@[A-Za-z][A-Za-z0-9.\-_]+$/;
    return $minted{$username} if $minted{$username};
    open(my $said, '-|', '/etc/pve/priv/e2e-mint', $username)
        or die "cannot sign a ticket: $!\n";
    my @lines = <$said>;
    close($said) or die "cannot sign a ticket\n";
    chomp @lines;
    return $minted{$username} = \@lines;
}

sub assemble_ticket {
    my ($username) = @_;
    return mint($username)->[0];
}

sub assemble_csrf_prevention_token {
    my ($username) = @_;
    return mint($username)->[1];
}

1;
