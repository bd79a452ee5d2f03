// Command hollow-node is the node side of the end-to-end test: one program
// that answers as `kubelet` or as `containerd`, by the name it is called with.
//
// As `kubelet` it runs the kubelet's own start-up, TLS bootstrap, node
// registration, pod admission and status code, unchanged, from
// k8s.io/kubernetes. Only what touches a machine is replaced: machine facts
// are read from the guest's DMI and /proc files (see machine.go), and cgroups,
// mounts and volumes are not done. As `containerd` it serves the container
// runtime interface on its usual socket with containers that only exist in
// memory, so that `kubeadm join` and the kubelet find a runtime there.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	name := filepath.Base(os.Args[0])
	switch name {
	case "kubelet":
		os.Exit(kubeletMain(os.Args[1:]))
	case "containerd":
		os.Exit(runtimeMain(os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "hollow-node: called as %q; call it as kubelet or containerd\n", name)
		os.Exit(2)
	}
}
