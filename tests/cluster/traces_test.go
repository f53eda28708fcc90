// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cluster "tessera.dev/tests/cluster"
)

// footprint is everything that a cluster could leave behind, collected while the cluster runs.
type footprint struct {
	dir, group string
	namespaces map[string]bool // "net:[4026532001]"
	links      string          // network devices of the host
	settings   string          // kernel settings that a kubelet would change
}

// newFootprint records the state of the host before a cluster starts in the folder.
func newFootprint(dir string) *footprint {
	return &footprint{dir: dir, namespaces: map[string]bool{}, links: hostLinks(), settings: hostSettings()}
}

// add records the namespaces of a running cluster.
func (f *footprint) add(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	f.group = c.Group
	for _, m := range append([]cluster.Machine{c.Head}, c.Nodes...) {
		for _, kind := range []string{"mnt", "net", "pid", "uts", "ipc", "cgroup"} {
			name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", m.PID, kind))
			if err != nil {
				t.Fatal(err)
			}
			f.namespaces[name] = true
		}
	}
}

// traces lists what is left of the cluster. Zombie processes do not count.
func (f *footprint) traces() []string {
	var found []string
	if _, err := os.Stat(f.dir); err == nil {
		found = append(found, "folder "+f.dir)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/" + f.group)
	more, _ := filepath.Glob("/sys/fs/cgroup/*/" + f.group)
	found = append(found, append(groups, more...)...)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if text, _ := os.ReadFile(process + "/cgroup"); strings.Contains(string(text), f.group) {
			found = append(found, "process in its cgroup: "+describe(process))
		}
		if text, _ := os.ReadFile(process + "/mountinfo"); strings.Contains(string(text), f.dir) {
			found = append(found, "mount seen by "+describe(process))
		}
		links, _ := filepath.Glob(process + "/ns/*")
		for _, link := range links {
			if name, _ := os.Readlink(link); f.namespaces[name] {
				found = append(found, name+" held by "+describe(process))
			}
		}
	}
	if now := hostLinks(); now != f.links {
		found = append(found, "network devices were "+f.links+" and are "+now)
	}
	if now := hostSettings(); now != f.settings {
		found = append(found, "kernel settings were "+f.settings+" and are "+now)
	}
	return found
}

func (f *footprint) requireGone(t *testing.T) {
	t.Helper()
	if f.group == "" {
		t.Fatal("add was not called, so there is no cluster to look for")
	}
	var left []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if left = f.traces(); len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond) // a killed process may be a zombie for a moment
	}
	t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}

func describe(process string) string {
	command, _ := os.ReadFile(process + "/cmdline")
	return filepath.Base(process) + " " + strings.ReplaceAll(string(command), "\x00", " ")
}

func hostLinks() string {
	entries, _ := os.ReadDir("/sys/class/net")
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

func hostSettings() string {
	var values []string
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/hostname",
		"kernel/keys/root_maxkeys", "net/ipv4/ip_forward",
	} {
		value, _ := os.ReadFile("/proc/sys/" + name)
		values = append(values, name+"="+strings.TrimSpace(string(value)))
	}
	return strings.Join(values, " ")
}
