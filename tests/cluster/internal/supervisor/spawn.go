// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"tessera.dev/tests/cluster/internal/cgroup"
)

// The two stages of a supervisor. In the first stage it enters its cgroups and makes a cgroup namespace of them. The
// namespace is that of one thread only, so the supervisor executes itself again for the second stage.
const (
	firstName  = "tessera-cluster-enter"
	secondName = "tessera-cluster-supervisor"
	listenerFD = 3
	tieFD      = 4
)

func init() {
	var err error
	switch os.Args[0] {
	case firstName:
		err = enter(os.Args[1])
	case secondName:
		err = run(os.Args[1])
	default:
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
	os.Exit(1)
}

// Spawn starts a supervisor for the specification file. listener may be nil. The supervisor writes its own messages
// to log. If tie is not nil, the supervisor ends when it reads the end of that file. If tie is a pipe, that happens
// when the last process that holds the other side has ended. Without tie, the supervisor outlives the caller. The
// caller may Wait for the supervisor to get its exit status.
func Spawn(specFile string, listener *net.TCPListener, tie, log *os.File) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{firstName, specFile}
	cmd.Dir = "/"
	cmd.Env = Environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null, tie} // listenerFD, tieFD
	if listener != nil {
		file, err := listener.File()
		if err != nil {
			return nil, err
		}
		defer file.Close()
		cmd.ExtraFiles[0] = file
	}
	if tie == nil {
		cmd.ExtraFiles = cmd.ExtraFiles[:1]
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start supervisor (this needs root): %w", err)
	}
	return cmd, nil
}

// Environment is the environment of all processes of the cluster: no proxies, nothing from the caller.
func Environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
	}
}

func enter(specFile string) error {
	spec, err := readSpec(specFile)
	if err != nil {
		return err
	}
	if err := cgroup.JoinSelf(spec.CgroupDirs); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	return syscall.Exec("/proc/self/exe", []string{secondName, specFile}, os.Environ())
}
