// SPDX-License-Identifier: Apache-2.0

// Package cgroup makes, fills, empties and removes the cgroups of one cluster, below the root of every
// mounted hierarchy: version 1, version 2, or both on hybrid systems. Every process of a cluster is in one of
// these cgroups from its first instruction, so killing the processes in them ends the cluster in any state.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Mount is one mounted hierarchy.
type Mount struct {
	Path    string // of the mount, such as /sys/fs/cgroup/cpu
	Type    string // cgroup or cgroup2
	Options string // to mount the hierarchy again, such as "cpu,cpuacct" or "none,name=systemd"
}

// Mounts lists the hierarchies below /sys/fs/cgroup.
func Mounts() ([]Mount, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var mounts []Mount
	for scan := bufio.NewScanner(file); scan.Scan(); {
		before, after, ok := strings.Cut(scan.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || !strings.HasPrefix(left[4], "/sys/fs/cgroup") {
			continue
		}
		switch right[0] {
		case "cgroup":
			mounts = append(mounts, Mount{left[4], right[0], remountOptions(right[2])})
		case "cgroup2":
			mounts = append(mounts, Mount{Path: left[4], Type: right[0]})
		}
	}
	if len(mounts) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted below /sys/fs/cgroup")
	}
	return mounts, nil
}

func remountOptions(super string) string {
	var kept []string
	for _, option := range strings.Split(super, ",") {
		switch {
		case option == "rw" || option == "ro" || option == "xattr" || option == "clone_children" ||
			strings.HasPrefix(option, "release_agent="):
		case strings.HasPrefix(option, "name="):
			kept = append(kept, "none", option)
		default:
			kept = append(kept, option)
		}
	}
	return strings.Join(kept, ",")
}

// Create makes the group NAME in every hierarchy and returns its folders.
func Create(name string) ([]string, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, mount := range mounts {
		dir := mount.Path
		for _, step := range strings.Split(name, "/") {
			if err := prepareParent(dir, mount.Type); err != nil {
				return dirs, err
			}
			dir = filepath.Join(dir, step)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return dirs, fmt.Errorf("make cgroup: %w", err)
			}
			if err := inheritCpuset(dir); err != nil {
				return dirs, err
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// needed are the controllers that the kubelet needs; other controllers are optional.
var needed = map[string]bool{"cpu": true, "cpuset": true, "memory": true, "pids": true}

// prepareParent enables version 2's controllers for children. Version 1 does not need it.
func prepareParent(dir, kind string) error {
	if kind != "cgroup2" {
		return nil
	}
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		control := filepath.Join(dir, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+"+controller), 0); err != nil && needed[controller] {
			return fmt.Errorf("enable %s in %s: %w", controller, control, err)
		}
	}
	return nil
}

// inheritCpuset copies the CPUs and memory nodes of the parent. In version 1, a new cpuset has none of them and
// accepts no process.
func inheritCpuset(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil || strings.TrimSpace(string(parent)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), parent, 0); err != nil {
			return fmt.Errorf("fill %s/%s: %w", dir, name, err)
		}
	}
	return nil
}

// JoinSelf moves all threads of the calling process into the cgroups with these folders.
func JoinSelf(dirs []string) error {
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// Memory returns the bytes of memory that processes in NAME and below it hold, with files in tmpfs but without the
// kernel's cache of other files. It is 0 if no memory controller is mounted.
func Memory(name string) int64 {
	mounts, _ := Mounts()
	for _, mount := range mounts {
		content, err := os.ReadFile(filepath.Join(mount.Path, name, "memory.stat"))
		if err != nil {
			continue
		}
		var sum int64
		for line := range strings.Lines(string(content)) {
			field, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch {
			case mount.Type == "cgroup" && (field == "total_rss" || field == "total_shmem"),
				mount.Type == "cgroup2" && (field == "anon" || field == "shmem"):
				value, _ := strconv.ParseInt(text, 10, 64)
				sum += value
			}
		}
		return sum
	}
	return 0
}

// Processes lists the processes in NAME and below it, in any hierarchy.
func Processes(name string) (map[int]bool, error) {
	found := map[int]bool{}
	err := walk(name, func(dir string) {
		content, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				found[pid] = true
			}
		}
	})
	return found, err
}

// Remove kills every process in NAME and below it, waits until all have ended, and removes the groups.
// A missing group is not an error.
func Remove(name string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		left, err := Processes(name)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes in cgroup %s did not end in %s: %v", len(left), name, timeout, left)
		}
		thaw(name)
		for pid := range left {
			kill(pid, name)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for {
		var dirs []string
		if err := walk(name, func(dir string) { dirs = append(dirs, dir) }); err != nil {
			return err
		}
		var last error
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := syscall.Rmdir(dirs[i]); err != nil && !errors.Is(err, syscall.ENOENT) {
				last = fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
			}
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kill opens a pidfd and then checks the process again, so that it does not kill a process that reuses the PID.
func kill(pid int, name string) {
	process, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer process.Release()
	if now, err := Processes(name); err == nil && now[pid] {
		process.Kill()
	}
}

func thaw(name string) {
	walk(name, func(dir string) {
		for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
			path := filepath.Join(dir, file)
			if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) != value {
				os.WriteFile(path, []byte(value), 0)
			}
		}
	})
}

// walk visits parents before children.
func walk(name string, visit func(dir string)) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		filepath.WalkDir(filepath.Join(mount.Path, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				visit(path)
			}
			return nil
		})
	}
	return nil
}
