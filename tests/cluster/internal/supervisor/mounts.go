// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"tessera.dev/tests/cluster/internal/cgroup"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// SystemGroup is the cgroup of the processes that belong to no pod. In version 2, a group with child groups
	// must not have processes itself.
	SystemGroup = "system"
)

// deviceNodes are the standard device nodes of Linux; a node sees no others of the host's /dev.
var deviceNodes = []struct {
	name         string
	mode         uint32
	major, minor uint32
}{
	{"null", 0o666, 1, 3}, {"zero", 0o666, 1, 5}, {"full", 0o666, 1, 7}, {"random", 0o666, 1, 8},
	{"urandom", 0o666, 1, 9}, {"kmsg", 0o644, 1, 11}, {"tty", 0o666, 5, 0}, {"fuse", 0o666, 10, 229},
}

// kernelSettings are the values that the kubelet expects. It would write them to the host's kernel if they differ,
// so a node has its own files with these values.
var kernelSettings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10",
	"kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// setUp turns the new namespaces into a machine. All mounts end with the mount namespace.
func setUp(spec *Spec) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	hierarchies, err := cgroup.Mounts()
	if err != nil {
		return err
	}
	links := cgroupLinks()
	kept, err := openAll(spec.Keep)
	if err != nil {
		return err
	}
	defer closeAll(kept)
	steps := []func() error{
		func() error { return overlay(spec) },
		func() error { return fresh("/proc", "proc", "", 0) },
		func() error { return fresh("/sys", "sysfs", "", 0) },
		func() error { return mountCgroups(hierarchies, links) },
		func() error { return joinSystemGroup(hierarchies) },
	}
	if spec.Private.System {
		steps = append(steps,
			func() error { return fresh("/dev", "tmpfs", "mode=755", syscall.MS_NOSUID) },
			makeDevices,
			func() error { return mount("tmpfs", "/run", "tmpfs", "mode=755", syscall.MS_NOSUID|syscall.MS_NODEV) },
			func() error { return os.MkdirAll("/run/lock", 0o755) },
		)
	}
	steps = append(steps,
		func() error { return bindKept(kept) },
		func() error { return populate(&spec.Private) },
		func() error { return mount("", "/", "", "", syscall.MS_REC|syscall.MS_SHARED) },
		func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) },
		func() error { return syscall.Sethostname([]byte(spec.Hostname)) },
	)
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind, options string, flags uintptr) error {
	if err := syscall.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s (%s): %w", source, target, options, err)
	}
	return nil
}

// fresh mounts a new file system at target instead of the present one.
func fresh(target, kind, options string, flags uintptr) error {
	if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return mount(kind, target, kind, options, flags)
}

// overlay lets a machine change folders of the system without changing them on the host or on other machines. The
// changes are in memory, because an overlay cannot keep them inside the folder that it covers.
func overlay(spec *Spec) error {
	scratch := filepath.Join(filepath.Dir(spec.Socket), "scratch")
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	if err := mount("tmpfs", scratch, "tmpfs", "mode=755", 0); err != nil {
		return err
	}
	for _, dir := range spec.Private.Overlays {
		name := strings.ReplaceAll(dir[1:], "/", "-")
		upper, work := filepath.Join(scratch, name, "upper"), filepath.Join(scratch, name, "work")
		for _, make := range []string{upper, work} {
			if err := os.MkdirAll(make, 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)
		if err := mount("overlay", dir, "overlay", options, 0); err != nil {
			return err
		}
	}
	return nil
}

func cgroupLinks() map[string]string {
	links := map[string]string{}
	entries, _ := os.ReadDir(cgroupRoot)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(cgroupRoot, entry.Name())); err == nil {
			links[entry.Name()] = target
		}
	}
	return links
}

// mountCgroups shows the machine only its own groups, as the root.
func mountCgroups(hierarchies []cgroup.Mount, links map[string]string) error {
	if len(hierarchies) == 1 && hierarchies[0].Path == cgroupRoot {
		return mount("cgroup2", cgroupRoot, hierarchies[0].Type, hierarchies[0].Options, 0)
	}
	if err := mount("tmpfs", cgroupRoot, "tmpfs", "mode=755", 0); err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		if err := os.MkdirAll(hierarchy.Path, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", hierarchy.Path, hierarchy.Type, hierarchy.Options, 0); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(cgroupRoot, name)); err != nil {
			return err
		}
	}
	return nil
}

func joinSystemGroup(hierarchies []cgroup.Mount) error {
	var dirs []string
	for _, hierarchy := range hierarchies {
		dirs = append(dirs, filepath.Join(hierarchy.Path, SystemGroup))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name)); err == nil && len(value) > 1 {
				os.WriteFile(filepath.Join(dir, name), value, 0)
			}
		}
	}
	return cgroup.JoinSelf(dirs)
}

func makeDevices() error {
	syscall.Umask(0)
	defer syscall.Umask(0o022)
	for _, node := range deviceNodes {
		number := int(node.major<<8 | node.minor)
		if err := syscall.Mknod("/dev/"+node.name, syscall.S_IFCHR|node.mode, number); err != nil {
			return fmt.Errorf("make /dev/%s: %w", node.name, err)
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm", "/dev/net"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("devpts", "/dev/pts", "devpts", "newinstance,ptmxmode=0666,mode=620,gid=5",
		syscall.MS_NOSUID|syscall.MS_NOEXEC); err != nil {
		return err
	}
	return mount("tmpfs", "/dev/shm", "tmpfs", "mode=1777", syscall.MS_NOSUID|syscall.MS_NODEV)
}

func openAll(dirs []string) ([]*os.File, error) {
	var files []*os.File
	for _, dir := range dirs {
		file, err := os.Open(dir)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// bindKept mounts directories at their own paths again, because an overlay or a tmpfs may cover them. An overlay
// would show the directories, but not the changes that the host makes in them later.
func bindKept(kept []*os.File) error {
	for _, dir := range kept {
		if err := os.MkdirAll(dir.Name(), 0o755); err != nil {
			return err
		}
		source := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
		if err := mount(source, dir.Name(), "", "", syscall.MS_BIND|syscall.MS_REC); err != nil {
			return err
		}
	}
	return nil
}

func populate(private *Private) error {
	for target, source := range private.Binds {
		for _, dir := range []string{source, target} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := mount(source, target, "", "", syscall.MS_BIND); err != nil {
			return err
		}
	}
	for path, content := range private.Files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		os.Remove(path) // may be a link into a folder that the node does not have
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for link, target := range private.Links {
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	if !private.System {
		return nil
	}
	return fakeKernelSettings()
}

func fakeKernelSettings() error {
	for name, value := range kernelSettings {
		path := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		file := filepath.Join("/run/kernel-settings", strings.ReplaceAll(name, "/", "."))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(file, path, "", "", syscall.MS_BIND); err != nil {
			return err
		}
	}
	return nil
}
