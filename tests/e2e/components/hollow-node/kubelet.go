package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/version/verflag"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletconfigvalidation "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	probetest "k8s.io/kubernetes/pkg/kubelet/prober/testing"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// kernelLog is what the kubelet's out-of-memory watcher reads.
const kernelLog = "/dev/kmsg"

func kubeletMain(args []string) int {
	if err := runKubelet(args); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		return 1
	}
	return 0
}

// runKubelet takes the flags and the configuration file as the kubelet does,
// replaces what touches the machine, and hands over to the kubelet's own Run.
func runKubelet(args []string) error {
	ctx := genericapiserver.SetupSignalContext()
	server, err := parseKubelet(ctx, args)
	if err != nil {
		return err
	}
	hollowOut(&server.KubeletConfiguration)
	if err := kubeletconfigvalidation.ValidateKubeletConfiguration(&server.KubeletConfiguration, utilfeature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("kubelet configuration: %w", err)
	}
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := logsapi.ValidateAndApplyAsField(&server.Logging, utilfeature.DefaultFeatureGate, field.NewPath("logging")); err != nil {
		return fmt.Errorf("logging: %w", err)
	}
	dependencies, err := hollowDependencies(ctx, server)
	if err != nil {
		return err
	}
	return kubeletapp.Run(ctx, server, dependencies, utilfeature.DefaultFeatureGate)
}

// parseKubelet reads flags, then the file of --config, then lets the flags win
// over the file: the kubelet's own precedence.
func parseKubelet(ctx context.Context, args []string) (*options.KubeletServer, error) {
	flags := options.NewKubeletFlags()
	configuration, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	if err := parseInto(args, flags, configuration); err != nil {
		return nil, err
	}
	verflag.PrintAndExitIfRequested()
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, err
	}
	if flags.KubeletConfigFile != "" {
		path, err := filepath.Abs(flags.KubeletConfigFile)
		if err != nil {
			return nil, err
		}
		loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, path)
		if err != nil {
			return nil, err
		}
		configuration, err = loader.Load(ctx)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", path, err)
		}
		if err := parseInto(args, options.NewKubeletFlags(), configuration); err != nil {
			return nil, err
		}
	}
	// These defaults depend on the system, so the kubelet adds them itself.
	if configuration.EvictionHard == nil {
		configuration.EvictionHard = eviction.DefaultEvictionHard
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(configuration.FeatureGates); err != nil {
		return nil, err
	}
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *configuration}, nil
}

func parseInto(args []string, flags *options.KubeletFlags, configuration *kubeletconfig.KubeletConfiguration) error {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, configuration)
	options.AddGlobalFlags(set)
	if err := set.Parse(args); err != nil {
		return err
	}
	if rest := set.Args(); len(rest) > 0 {
		return fmt.Errorf("unknown command %q", rest[0])
	}
	return nil
}

// hollowOut switches off what needs cgroups of its own: a guest of the test
// shares the kernel with the machine that runs the test.
func hollowOut(configuration *kubeletconfig.KubeletConfiguration) {
	configuration.CgroupsPerQOS = false
	configuration.EnforceNodeAllocatable = nil
	configuration.KubeletCgroups = ""
	configuration.SystemCgroups = ""
	configuration.FailCgroupV1 = false
	configuration.ProtectKernelDefaults = false
	configuration.LocalStorageCapacityIsolation = true
}

func hollowDependencies(ctx context.Context, server *options.KubeletServer) (*kubelet.Dependencies, error) {
	machine, err := readMachine()
	if err != nil {
		return nil, err
	}
	containers, err := newReservingContainers(machine, &server.KubeletConfiguration)
	if err != nil {
		return nil, err
	}
	dependencies, err := kubeletapp.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return nil, err
	}
	dependencies.CAdvisorInterface = machine
	dependencies.ContainerManager = containers
	dependencies.ProbeManager = probetest.FakeManager{}
	dependencies.OSInterface = &containertest.FakeOS{}
	dependencies.OOMAdjuster = oom.NewFakeOOMAdjuster()
	dependencies.Mounter = mount.NewFakeMounter(nil)
	dependencies.Subpather = &subpath.FakeSubpath{}
	dependencies.HostUtil = hostutil.NewFakeHostUtil(nil)
	dependencies.VolumePlugins = volumePlugins()
	dependencies.DynamicPluginProber = nil
	if log, err := os.Open(kernelLog); err == nil {
		log.Close()
	} else {
		// With a real recorder the kubelet insists on the kernel's log.
		dependencies.Recorder = &record.FakeRecorder{}
	}
	return dependencies, nil
}

// volumePlugins are those that need no device of the machine.
func volumePlugins() []volume.VolumePlugin {
	var plugins []volume.VolumePlugin
	for _, probed := range [][]volume.VolumePlugin{
		emptydir.ProbeVolumePlugins(),
		secret.ProbeVolumePlugins(),
		configmap.ProbeVolumePlugins(),
		downwardapi.ProbeVolumePlugins(),
		projected.ProbeVolumePlugins(),
		csi.ProbeVolumePlugins(),
	} {
		plugins = append(plugins, probed...)
	}
	return plugins
}
