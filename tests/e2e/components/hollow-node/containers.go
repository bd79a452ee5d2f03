package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

// reservingContainers is the kubelet's container manager without cgroups, but
// with the reservations of the node's configuration: a node's allocatable is
// smaller than its capacity, as on a real machine.
type reservingContainers struct {
	cm.ContainerManager
	capacity    v1.ResourceList
	reservation v1.ResourceList
}

func newReservingContainers(machine *guestMachine, kubelet *config.KubeletConfiguration) (*reservingContainers, error) {
	capacity := v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(machine.info.NumCores), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(int64(machine.info.MemoryCapacity), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(machine.disk), resource.BinarySI),
	}
	reservation := v1.ResourceList{}
	for _, reserved := range []map[string]string{kubelet.KubeReserved, kubelet.SystemReserved} {
		for name, text := range reserved {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("reserved %s %q: %w", name, text, err)
			}
			add(reservation, v1.ResourceName(name), quantity)
		}
	}
	thresholds, err := eviction.ParseThresholdConfig(nil, kubelet.EvictionHard, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("evictionHard: %w", err)
	}
	for _, threshold := range thresholds {
		switch threshold.Signal {
		case evictionapi.SignalMemoryAvailable:
			memory := capacity[v1.ResourceMemory]
			add(reservation, v1.ResourceMemory, *evictionapi.GetThresholdQuantity(threshold.Value, &memory))
		case evictionapi.SignalNodeFsAvailable:
			disk := capacity[v1.ResourceEphemeralStorage]
			add(reservation, v1.ResourceEphemeralStorage, *evictionapi.GetThresholdQuantity(threshold.Value, &disk))
		}
	}
	return &reservingContainers{
		ContainerManager: cm.NewStubContainerManager(),
		capacity:         capacity,
		reservation:      reservation,
	}, nil
}

func add(list v1.ResourceList, name v1.ResourceName, more resource.Quantity) {
	sum := list[name]
	sum.Add(more)
	list[name] = sum
}

func (c *reservingContainers) GetNodeAllocatableReservation() v1.ResourceList {
	return c.reservation
}

func (c *reservingContainers) GetCapacity(localStorageCapacityIsolation bool) v1.ResourceList {
	if !localStorageCapacityIsolation {
		return v1.ResourceList{}
	}
	return c.capacity
}
