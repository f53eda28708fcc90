// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestRemountOptionsKeepControllersAndNames(t *testing.T) {
	for super, want := range map[string]string{
		"rw,cpu,cpuacct":                         "cpu,cpuacct",
		"rw,memory":                              "memory",
		"rw,xattr,name=systemd":                  "none,name=systemd",
		"rw,xattr,release_agent=/x,name=systemd": "none,name=systemd",
	} {
		if got := remountOptions(super); got != want {
			t.Errorf("%s: %s, want %s", super, got, want)
		}
	}
}

// group makes a group of this test with one sleeping process below it.
func group(t *testing.T) (string, []string, *exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	name := fmt.Sprintf("tessera-cgroup-test-%d", os.Getpid())
	t.Cleanup(func() { Remove(name, time.Minute) })
	dirs, err := Create(name + "/inner")
	if err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	go sleep.Wait()
	t.Cleanup(func() { sleep.Process.Kill() })
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(sleep.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return name, dirs, sleep
}

func requireRemoved(t *testing.T, name string, dirs []string) {
	t.Helper()
	if err := Remove(name, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			t.Errorf("%s is still there", filepath.Dir(dir))
		}
	}
}

func TestRemoveKillsWhatIsInside(t *testing.T) {
	name, dirs, sleep := group(t)
	inside, err := Processes(name)
	if err != nil || !inside[sleep.Process.Pid] || len(inside) != 1 {
		t.Fatalf("%v %v", inside, err)
	}
	requireRemoved(t, name, dirs)
	if err := Remove(name, time.Second); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
}

func TestRemoveEndsFrozenProcesses(t *testing.T) {
	name, dirs, _ := group(t)
	frozen := false
	for _, dir := range dirs {
		if os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("FROZEN"), 0) == nil ||
			os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0) == nil {
			frozen = true
		}
	}
	if !frozen {
		t.Skip("no freezer on this host")
	}
	requireRemoved(t, name, dirs)
}
