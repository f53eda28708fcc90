// SPDX-License-Identifier: Apache-2.0

// Simdriver stands in for NVIDIA's driver container. It installs the simulated driver below the host's
// /run/nvidia/driver and removes it when the container ends. Like the real container, it can be slow, fail,
// hang or install only some of the files.
//
//	simdriver MODE [--after DURATION] -- simgpu create …
//
//	good   installs after the duration
//	fails  writes some libraries and ends with an error
//	hangs  writes the libraries and never loads the kernel's module
//	half   lacks libcuda
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	root    = "/node/driver"
	staging = "/node/.driver-being-installed"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "simdriver:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return fmt.Errorf("usage: simdriver good|fails|hangs|half [--after DURATION] [-- ARGUMENTS OF simgpu create]")
	}
	mode := os.Args[1]
	flags := flag.NewFlagSet("simdriver", flag.ExitOnError)
	after := flags.Duration("after", 0, "the installation's duration")
	flags.Parse(os.Args[2:])
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	if err := remove(); err != nil {
		return err
	}
	defer remove()

	fmt.Println("installing the driver")
	args := append([]string{"--root", staging, "create", "--library-dir", "/sim"}, flags.Args()...)
	if text, err := exec.Command("/usr/bin/simgpu", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("simgpu: %w: %s", err, text)
	}
	if err := spoil(mode); err != nil {
		return err
	}
	select {
	case <-ends:
		return nil
	case <-time.After(*after):
	}
	// All files appear at once, as they do when NVIDIA's container mounts its root.
	if err := os.Rename(staging, root); err != nil {
		return err
	}
	if mode == "fails" {
		time.Sleep(time.Second)
		return fmt.Errorf("the kernel's headers are missing")
	}
	fmt.Println("the driver is installed")
	<-ends
	return nil
}

// spoil removes the files that a driver container in this mode does not install.
func spoil(mode string) error {
	switch mode {
	case "good":
		return nil
	case "fails", "hangs":
		return os.RemoveAll(filepath.Join(staging, "proc"))
	case "half":
		files, err := filepath.Glob(staging + "/usr/lib/*/libcuda.so*")
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

func remove() error {
	for _, folder := range []string{root, staging} {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}
