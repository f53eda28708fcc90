// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	restartDelay    = 100 * time.Millisecond // systemd's RestartSec
	maxRestartDelay = 2 * time.Second        // for components that end soon after each start
	youngAge        = 2 * time.Second
	stopTimeout     = 20 * time.Second // then SIGKILL
	commandTimeout  = 60 * time.Second
)

// machine is the state of a running supervisor. mutex guards all of it: each command runs on its own goroutine,
// and a child may end before the function that started it has returned.
type machine struct {
	spec       *Spec
	mutex      sync.Mutex
	components []*component
	children   map[int]*component
}

type component struct {
	Component
	state   State
	wanted  bool
	delay   time.Duration
	started time.Time
	exited  chan struct{} // closed when the present process has ended
}

func run(specFile string) error {
	spec, err := readSpec(specFile)
	if err != nil {
		return err
	}
	syscall.CloseOnExec(listenerFD)
	if spec.Tied {
		syscall.CloseOnExec(tieFD)
		go exitWhenClosed(os.NewFile(tieFD, "tie"))
	}
	listener, err := listen(spec.Socket)
	if err != nil {
		return err
	}
	if err := setUp(spec); err != nil {
		return err
	}
	m := &machine{spec: spec, children: map[int]*component{}}
	for _, c := range spec.Components {
		m.components = append(m.components, &component{Component: c, state: State{Name: c.Name}, delay: restartDelay})
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE)
	go m.serve(listener)
	if spec.ProxyTo != "" {
		if err := startProxy(spec.ProxyTo); err != nil {
			return err
		}
	}
	m.reap()
	return nil
}

// exitWhenClosed ends the machine when a read from the file reaches its end, as the other side of a pipe was closed.
func exitWhenClosed(tie *os.File) {
	io.Copy(io.Discard, tie)
	fmt.Fprintln(os.Stderr, "supervisor: the process that this cluster is tied to has ended")
	os.Exit(0)
}

// listen opens a unix socket. It works even if the path is longer than the address of a socket may be.
func listen(path string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	os.Remove(path)
	return net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// reap collects every process that ends: components, and orphans such as containerd's shims.
func (m *machine) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for range ended {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			m.ended(pid, status)
		}
	}
}

func (m *machine) ended(pid int, status syscall.WaitStatus) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	c := m.children[pid]
	if c == nil {
		return
	}
	delete(m.children, pid)
	c.state.Running, c.state.PID = false, 0
	c.state.Exit = fmt.Sprintf("exit status %d", status.ExitStatus())
	if status.Signaled() {
		c.state.Exit = "signal " + status.Signal().String()
	}
	close(c.exited)
	m.note(c, "ended: "+c.state.Exit)
	if !c.wanted {
		return
	}
	if time.Since(c.started) > youngAge {
		c.delay = restartDelay
	}
	time.AfterFunc(c.delay, func() {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		if c.wanted && !c.state.Running {
			m.start(c)
		}
	})
	c.delay = min(2*c.delay, maxRestartDelay)
}

// start starts a component. The caller holds the mutex.
func (m *machine) start(c *component) error {
	log, err := os.OpenFile(m.logPath(c), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(c.Argv[0], c.Argv, &syscall.ProcAttr{
		Dir: "/", Env: append(Environment(), c.Env...),
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s (%s): %w", c.Name, c.Argv[0], err)
	}
	m.children[pid] = c
	c.wanted, c.started, c.exited = true, time.Now(), make(chan struct{})
	c.state.Running, c.state.PID = true, pid
	c.state.Starts++
	return nil
}

func (m *machine) logPath(c *component) string { return filepath.Join(m.spec.LogDir, c.Name+".log") }

func (m *machine) note(c *component, text string) {
	if log, err := os.OpenFile(m.logPath(c), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		fmt.Fprintf(log, "supervisor: %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), c.Name, text)
		log.Close()
	}
}

func (m *machine) serve(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			fmt.Fprintf(os.Stderr, "supervisor: accept: %v\n", err)
			return
		}
		go func() {
			defer connection.Close()
			connection.SetDeadline(time.Now().Add(commandTimeout))
			var request Request
			if err := json.NewDecoder(connection).Decode(&request); err != nil {
				return
			}
			reply := Reply{}
			if err := m.execute(request); err != nil {
				reply.Error = err.Error()
			}
			m.mutex.Lock()
			for _, c := range m.components {
				reply.Components = append(reply.Components, c.state)
			}
			m.mutex.Unlock()
			json.NewEncoder(connection).Encode(reply)
		}()
	}
}

func (m *machine) execute(request Request) error {
	if request.Op == "status" {
		return nil
	}
	var found *component
	for _, c := range m.components {
		if c.Name == request.Component {
			found = c
		}
	}
	if found == nil {
		return fmt.Errorf("%s has no component %q", m.spec.Hostname, request.Component)
	}
	switch request.Op {
	case "start":
		return m.ensureRunning(found)
	case "stop":
		return m.stop(found, request.Signal)
	case "restart":
		if err := m.stop(found, request.Signal); err != nil {
			return err
		}
		return m.ensureRunning(found)
	}
	return fmt.Errorf("unknown command %q", request.Op)
}

func (m *machine) ensureRunning(c *component) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if c.state.Running {
		return nil
	}
	c.delay = restartDelay
	return m.start(c)
}

// stop ends only the component's own process. Containers keep running without their engine, as under systemd.
func (m *machine) stop(c *component, number int) error {
	if number == 0 {
		number = int(syscall.SIGTERM)
	}
	m.mutex.Lock()
	c.wanted = false
	pid, exited, running := c.state.PID, c.exited, c.state.Running
	if running {
		syscall.Kill(pid, syscall.Signal(number))
	}
	m.mutex.Unlock()
	if !running {
		return nil
	}
	select {
	case <-exited:
		return nil
	case <-time.After(stopTimeout):
	}
	m.mutex.Lock()
	if c.state.PID == pid {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	m.mutex.Unlock()
	<-exited
	return nil
}

// startProxy forwards connections from a listener that was opened outside the network namespace. Programs on the
// host reach the API server only through this loopback address.
func startProxy(target string) error {
	file := os.NewFile(listenerFD, "listener")
	listener, err := net.FileListener(file)
	file.Close() // the listener has a copy
	if err != nil {
		return fmt.Errorf("inherit listener: %w", err)
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				fmt.Fprintf(os.Stderr, "supervisor: proxy accept: %v\n", err)
				return
			}
			go forward(client.(*net.TCPConn), target)
		}
	}()
	return nil
}

func forward(client *net.TCPConn, target string) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", target, 30*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	upstream := server.(*net.TCPConn)
	done := make(chan struct{})
	go func() {
		io.Copy(upstream, client)
		upstream.CloseWrite()
		close(done)
	}()
	io.Copy(client, upstream)
	client.CloseWrite()
	<-done
}
