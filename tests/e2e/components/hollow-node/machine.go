package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorapiv2 "github.com/google/cadvisor/info/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// Where a machine's facts are found inside the guest. These are the files the
// kubelet's cadvisor reads on a real machine; the guest program puts the
// simulated VM's values there. Only the disk has no such file: its size is
// what statfs would say, so the guest program writes it down.
const (
	productUUIDFile = "/sys/class/dmi/id/product_uuid"
	machineIDFile   = "/etc/machine-id"
	bootIDFile      = "/proc/sys/kernel/random/boot_id"
	meminfoFile     = "/proc/meminfo"
	cpuinfoFile     = "/proc/cpuinfo"
	diskBytesFile   = "/run/guest/disk-bytes"
)

const rootCgroup = "/"

// guestMachine is the kubelet's cadvisor for a machine that is a simulated VM.
type guestMachine struct {
	info cadvisorapi.MachineInfo
	disk uint64
}

var _ cadvisor.Interface = (*guestMachine)(nil)

// readMachine reads the machine's facts; a missing fact is an error, since a
// node without its system UUID could not be told apart from a stranger's.
func readMachine() (*guestMachine, error) {
	uuid, err := readTrimmed(productUUIDFile)
	if err != nil {
		return nil, fmt.Errorf("read the system UUID: %w", err)
	}
	machineID, err := readTrimmed(machineIDFile)
	if err != nil {
		return nil, fmt.Errorf("read the machine id: %w", err)
	}
	bootID, err := readTrimmed(bootIDFile)
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	memory, err := memTotalBytes()
	if err != nil {
		return nil, err
	}
	cores, err := processorCount()
	if err != nil {
		return nil, err
	}
	diskText, err := readTrimmed(diskBytesFile)
	if err != nil {
		return nil, fmt.Errorf("read the disk size: %w", err)
	}
	disk, err := strconv.ParseUint(diskText, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("disk size in %s: %w", diskBytesFile, err)
	}
	return &guestMachine{
		info: cadvisorapi.MachineInfo{
			Timestamp:        time.Now(),
			NumCores:         cores,
			NumPhysicalCores: cores,
			NumSockets:       1,
			MemoryCapacity:   memory,
			MachineID:        machineID,
			SystemUUID:       uuid,
			BootID:           bootID,
		},
		disk: disk,
	}, nil
}

func readTrimmed(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return text, nil
}

func memTotalBytes() (uint64, error) {
	file, err := os.Open(meminfoFile)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("MemTotal in %s: %w", meminfoFile, err)
			}
			return kib * 1024, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("no MemTotal in %s", meminfoFile), lines.Err())
}

func processorCount() (int, error) {
	file, err := os.Open(cpuinfoFile)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	count := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, _, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == "processor" {
			count++
		}
	}
	if count == 0 {
		return 0, errors.Join(fmt.Errorf("no processor in %s", cpuinfoFile), lines.Err())
	}
	return count, nil
}

func (m *guestMachine) Start() error { return nil }

func (m *guestMachine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	info := m.info
	return &info, nil
}

func (m *guestMachine) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	kernel, err := readTrimmed("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	return &cadvisorapi.VersionInfo{KernelVersion: kernel, ContainerOsVersion: osPrettyName()}, nil
}

func osPrettyName() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "Linux"
	}
	for _, line := range strings.Split(string(data), "\n") {
		if name, found := strings.CutPrefix(line, "PRETTY_NAME="); found {
			return strings.Trim(name, `"`)
		}
	}
	return "Linux"
}

// ContainerInfoV2 knows the root cgroup only, with a machine that is idle:
// enough for the eviction manager to see that nothing is short.
func (m *guestMachine) ContainerInfoV2(name string, _ cadvisorapiv2.RequestOptions) (map[string]cadvisorapiv2.ContainerInfo, error) {
	if name != rootCgroup {
		return map[string]cadvisorapiv2.ContainerInfo{}, nil
	}
	used := m.info.MemoryCapacity / 16
	now := time.Now()
	return map[string]cadvisorapiv2.ContainerInfo{
		rootCgroup: {
			Spec: cadvisorapiv2.ContainerSpec{
				CreationTime: m.info.Timestamp,
				HasCpu:       true,
				HasMemory:    true,
				Memory:       cadvisorapiv2.MemorySpec{Limit: m.info.MemoryCapacity},
			},
			Stats: []*cadvisorapiv2.ContainerStats{{
				Timestamp: now,
				Cpu:       &cadvisorapi.CpuStats{},
				Memory:    &cadvisorapi.MemoryStats{Usage: used, WorkingSet: used, RSS: used},
			}},
		},
	}, nil
}

func (m *guestMachine) GetRequestedContainersInfo(string, cadvisorapiv2.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

func (m *guestMachine) filesystem() cadvisorapiv2.FsInfo {
	used := m.disk / 10
	inodes, free := m.disk/16384, m.disk/16384*9/10
	return cadvisorapiv2.FsInfo{
		Timestamp:  time.Now(),
		Device:     "/dev/sda1",
		Mountpoint: "/",
		Capacity:   m.disk,
		Usage:      used,
		Available:  m.disk - used,
		Inodes:     &inodes,
		InodesFree: &free,
	}
}

func (m *guestMachine) ImagesFsInfo(context.Context) (cadvisorapiv2.FsInfo, error) {
	return m.filesystem(), nil
}

func (m *guestMachine) RootFsInfo() (cadvisorapiv2.FsInfo, error) {
	return m.filesystem(), nil
}

func (m *guestMachine) ContainerFsInfo(context.Context) (cadvisorapiv2.FsInfo, error) {
	return m.filesystem(), nil
}

func (m *guestMachine) GetDirFsInfo(string) (cadvisorapiv2.FsInfo, error) {
	return m.filesystem(), nil
}
