package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	fakeremote "k8s.io/cri-client/pkg/fake"
)

// The size every image of the hollow runtime claims: clients refuse zero.
const imageBytes = 64 << 20

// runtimeMain serves a container runtime whose sandboxes and containers exist
// in memory only, until it is told to end.
func runtimeMain(args []string) int {
	flags := pflag.NewFlagSet("containerd", pflag.ContinueOnError)
	address := flags.StringP("address", "a", "/run/containerd/containerd.sock", "socket to listen on")
	if err := flags.Parse(args); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		return 2
	}
	runtime := fakeremote.NewFakeRemoteRuntime()
	runtime.ImageService.SetFakeImageSize(imageBytes)
	runtime.ImageService.SetFakeFilesystemUsage([]*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/containerd"},
		UsedBytes:  &runtimeapi.UInt64Value{Value: imageBytes},
		InodesUsed: &runtimeapi.UInt64Value{Value: 1},
	}})
	runtime.RuntimeService.FakeLinuxConfiguration = &runtimeapi.LinuxRuntimeConfiguration{
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
	}
	if err := runtime.Start("unix://" + *address); err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		return 1
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	runtime.Stop()
	return 0
}
