use strict;
use warnings;
use JSON::PP;

# The answer's own way out: what the API code prints must not mix with it.
open(my $out, '>&', \*STDOUT) or die "cannot keep the output: $!\n";
open(STDOUT, '>&', \*STDERR) or die "cannot redirect the output: $!\n";

my $call = decode_json(do { local $/; <STDIN> });

my $answer = eval {
    require PVE::INotify;
    require PVE::RPCEnvironment;
    require PVE::API2;

    PVE::INotify::inotify_init();
    # As in PVE's own daemon: a task runs on by itself and its id comes back at once.
    my $environment = PVE::RPCEnvironment->init('priv', atfork => sub { close($out) });
    $environment->init_request();
    $environment->set_language('C');
    $environment->set_user('root@pam');

    my $params = {};
    my ($handler, $info) = PVE::API2->find_handler($call->{method}, $call->{path}, $params);
    if (!$handler || !$info) {
        { status => 501, message => "Method '$call->{method} $call->{path}' not implemented" };
    } else {
        $params->{$_} = $call->{params}->{$_} for keys %{$call->{params}};
        { status => 200, data => $handler->handle($info, $params) };
    }
};
if (my $error = $@) {
    my $known = ref($error) && eval { $error->isa('PVE::Exception') };
    my $code = $known ? $error->{code} : undef;
    $answer = {
        status => defined($code) && $code =~ m/^[45][0-9][0-9]$/ ? $code + 0 : 500,
        message => $known ? "$error->{msg}" : "$error",
    };
    $answer->{errors} = $error->{errors} if $known && ref($error->{errors}) eq 'HASH';
}
print $out JSON::PP->new->utf8->canonical->allow_blessed->allow_nonref->encode($answer), "\n";
close($out);
