// SPDX-License-Identifier: Apache-2.0

// Package supervisor is the first process of a machine of the cluster: of the control plane, or of one
// node. It runs in its own PID, mount, network, UTS, IPC and cgroup namespaces, gives the node its
// private folders, keeps its components running as systemd would with Restart=always, reaps orphans,
// and executes commands from a unix socket. When it ends, the kernel ends everything in its PID namespace
// and removes the mounts and network devices of the namespaces, so nothing has to be undone.
//
// The supervisor is the same program as its caller, started under another name (see Spawn). A program that
// imports this package can therefore be a supervisor.
package supervisor

import (
	"encoding/json"
	"os"
)

// Spec configures one supervisor.
type Spec struct {
	Hostname   string
	Keep       []string // folders that are the same inside and outside, whatever else covers their paths
	LogDir     string   // the folder of the files COMPONENT.log
	Socket     string   // the path of the socket for commands
	CgroupDirs []string // joined before the cgroup namespace is made
	Tied       bool     // ends at the end of the file `tie` of Spawn
	ProxyTo    string   // address that connections to the inherited listener go to; empty for none
	Private    Private  // file system parts that are not the host's
	Components []Component
}

// Private describes the file system that makes a set of namespaces look like a separate machine.
type Private struct {
	System   bool              // an empty /run, /dev without the host's devices, and kernel settings of its own
	Overlays []string          // folders whose changes stay in the machine, in memory
	Binds    map[string]string // folder in the machine → folder on disk, in a kept one
	Files    map[string]string // file in the machine → content
	Links    map[string]string // symbolic link in the machine → target
}

// Component is one program. It starts on command, not by itself.
type Component struct {
	Name string
	Argv []string
	Env  []string
}

// State is the state of a component.
type State struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	PID     int    `json:"pid"`    // in the machine's PID namespace; 0 when not running
	Starts  int    `json:"starts"` // since the supervisor began
	Exit    string `json:"exit"`   // how it ended last; empty if it never did
}

// Request is one command, a line of JSON; Reply is the answer.
type Request struct {
	Op        string `json:"op"` // start, stop, restart, status
	Component string `json:"component,omitempty"`
	Signal    int    `json:"signal,omitempty"` // of stop and restart; SIGTERM if 0
}

// Reply answers a Request.
type Reply struct {
	Error      string  `json:"error,omitempty"`
	Components []State `json:"components,omitempty"`
}

// Write stores the specification for Spawn.
func (s *Spec) Write(path string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

func readSpec(path string) (*Spec, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	spec := &Spec{}
	return spec, json.Unmarshal(content, spec)
}
