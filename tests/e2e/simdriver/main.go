// SPDX-License-Identifier: Apache-2.0

// Simdriver takes the place of NVIDIA's driver container. It installs the simulated driver below the host's
// /run/nvidia/driver and removes it when the container ends. Like the real container, it can be slow, fail,
// hang or install only some of the files.
//
//	simdriver MODE [--after DURATION] -- ARGUMENTS OF simgpu create
//
//	good   installs after the duration
//	fails  writes some libraries and ends with an error
//	hangs  writes the libraries and never loads the kernel's module
//	half   lacks libcuda
//
// If the root had only the node's PCI bus (bed.LeaveOnlyTheBus), it has only the bus again after the removal.
//
// The operator's DaemonSet runs simdriver under the names nvidia-driver, nvidia-smi and driver-manager. Then
// the arguments are in the variable SIMDRIVER, the host's folder is at /run/nvidia, and nvidia-smi fails until
// the kernel's module is loaded.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	var err error
	switch filepath.Base(os.Args[0]) {
	case "nvidia-driver":
		err = run("/run/nvidia", strings.Fields(os.Getenv("SIMDRIVER")))
	case "nvidia-smi":
		_, err = os.Stat("/run/nvidia/driver/proc/driver/nvidia/version")
	case "driver-manager":
		err = newDriver("/run/nvidia").remove()
	default:
		err = run("/node", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// driver holds the paths of a node's driver.
type driver struct {
	root    string
	staging string // the next root, beside the root
	bus     string // what the root has without a driver; may be missing
}

func newDriver(folder string) driver {
	return driver{filepath.Join(folder, "driver"), filepath.Join(folder, ".driver-being-installed"),
		filepath.Join(folder, ".bus-without-driver")}
}

func run(folder string, argv []string) error {
	if len(argv) < 1 {
		return fmt.Errorf("usage: simdriver good|fails|hangs|half [--after DURATION] [-- ARGUMENTS OF simgpu create]")
	}
	mode := argv[0]
	flags := flag.NewFlagSet("simdriver", flag.ExitOnError)
	after := flags.Duration("after", 0, "the installation's duration")
	flags.Parse(argv[1:])
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	d := newDriver(folder)
	if err := d.remove(); err != nil {
		return err
	}
	defer d.remove()

	fmt.Println("installing the driver")
	args := append([]string{"--root", d.staging, "create", "--library-dir", "/sim"}, flags.Args()...)
	if text, err := exec.Command("/usr/bin/simgpu", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("simgpu: %w: %s", err, text)
	}
	if err := d.spoil(mode); err != nil {
		return err
	}
	select {
	case <-ends:
		return nil
	case <-time.After(*after):
	}
	// All files appear at once, as they do when NVIDIA's container mounts its root.
	if err := d.replaceRoot(); err != nil {
		return err
	}
	if mode == "fails" {
		// Long enough that the agent reports it and a test sees the report, on a loaded machine too. The container starts
		// again and again, so a test that misses one failure sees the next.
		select {
		case <-ends:
			return nil
		case <-time.After(5 * time.Second):
		}
		return fmt.Errorf("the kernel's headers are missing")
	}
	fmt.Println("the driver is installed")
	<-ends
	return nil
}

// spoil removes the files that a driver container in this mode does not install.
func (d driver) spoil(mode string) error {
	switch mode {
	case "good":
		return nil
	case "fails", "hangs":
		// The folder proc/driver/nvidia stays, because it makes the root's PCI bus count.
		for _, file := range []string{"proc/driver/nvidia/version", "proc/driver/nvidia/gpus", "run/simgpu/state"} {
			if err := os.RemoveAll(filepath.Join(d.staging, file)); err != nil {
				return err
			}
		}
		return nil
	case "half":
		files, err := filepath.Glob(d.staging + "/usr/lib/*/libcuda.so*")
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("the simulated driver has no libcuda")
		}
		for _, file := range files {
			err = os.Remove(file)
		}
		return err
	}
	return fmt.Errorf("unknown mode %q: want good, fails, hangs or half", mode)
}

// replaceRoot makes the staged files the root. The node is without a root for an instant only.
func (d driver) replaceRoot() error {
	old := d.root + ".old"
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(d.root, old); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Rename(d.staging, d.root); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// remove takes the driver away, and leaves the PCI bus if the node has one without a driver.
func (d driver) remove() error {
	if err := os.RemoveAll(d.staging); err != nil {
		return err
	}
	if _, err := os.Stat(d.bus); os.IsNotExist(err) {
		return os.RemoveAll(d.root)
	}
	if err := os.CopyFS(d.staging, os.DirFS(d.bus)); err != nil {
		return err
	}
	return d.replaceRoot()
}
