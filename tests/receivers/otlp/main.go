// An OpenTelemetry Collector's own receiver for OTLP over HTTP, as it is in every Collector, in Jaeger and in Tempo. It
// listens on the address that is its argument and writes down what it understood: each request that it took is a line
// of JSON on standard output, made anew from the Collector's own data. What it did not understand is not in there, so
// that whoever compares the line with what was sent sees it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: otlp HOST:PORT")
		os.Exit(2)
	}
	if err := receive(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// receive takes traces at an address until it is told to end.
func receive(address string) error {
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = address
	next, err := consumer.NewTraces(write)
	if err != nil {
		return err
	}
	settings := receiver.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
		BuildInfo:         component.NewDefaultBuildInfo(),
	}
	traces, err := factory.CreateTraces(ended, settings, config, next)
	if err != nil {
		return err
	}
	if err := traces.Start(ended, componenttest.NewNopHost()); err != nil {
		return err
	}
	<-ended.Done()
	return traces.Shutdown(context.Background())
}

// write shows a request's traces as the Collector has them.
func write(_ context.Context, traces ptrace.Traces) error {
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}
