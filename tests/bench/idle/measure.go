// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// counter passes requests on to the API server and counts them by kind.
type counter struct {
	proxy *httputil.ReverseProxy
	mutex sync.Mutex
	kinds map[string]int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	c.kinds[kindOf(r)]++
	c.mutex.Unlock()
	c.proxy.ServeHTTP(w, r)
}

// take returns the counts since the last call.
func (c *counter) take() map[string]int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	taken := c.kinds
	c.kinds = map[string]int{}
	return taken
}

// kindOf returns the kind of a request, such as "watch pods" or "PATCH nodes/status".
func kindOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")[2:] // after api/v1
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch {
	case r.URL.Query().Has("watch"):
		return "watch " + resource
	case r.Method == http.MethodGet && len(parts) == 1:
		return "list " + resource
	}
	return r.Method + " " + resource
}

// command prepares a program that ends when this program ends.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// serveAPI starts a counter in front of the API server, and returns the counter's URL.
func serveAPI(ctx context.Context, kubeconfig string) (*counter, string, error) {
	// kubectl proxy has the certificates, and passes streams on.
	kubectl := command(ctx, "kubectl", "--kubeconfig", kubeconfig, "proxy", "--port=0")
	out, err := kubectl.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := kubectl.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	address := strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
	if err != nil || !strings.Contains(address, ":") {
		return nil, "", fmt.Errorf("kubectl proxy: %q, %v", line, err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.FlushInterval = -1
	c := &counter{proxy: proxy, kinds: map[string]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	go http.Serve(listener, c)
	return c, "http://" + listener.Addr().String(), nil
}

// startAgent runs tessera-agent on a simulated node in the folder.
func startAgent(ctx context.Context, o options, dir, api string) (*exec.Cmd, error) {
	driver := filepath.Join(dir, "driver")
	simgpu := exec.CommandContext(ctx, filepath.Join(o.build, "bin/simgpu"), "--root", driver, "create", "--dev-root", dir,
		"--device-files", "--gpus", fmt.Sprint(o.gpus), "--library-dir", filepath.Join(o.build, "lib"))
	os.Setenv("SIMGPU_DEV_ROOT", dir)
	if out, err := simgpu.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("simgpu: %w: %s", err, out)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}]}`, api)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return nil, err
	}
	agent := command(ctx, filepath.Join(o.build, "bin/tessera-agent"), "--driver-root", driver, "--dev-root", dir,
		"--state-dir", filepath.Join(dir, "state"), "--grant-socket", filepath.Join(dir, "grant.sock"),
		"--metrics-address", "127.0.0.1:0", "--gpu-manager-address", "127.0.0.1:0", "--node-name", "n1", "--kubeconfig", kubeconfig)
	return agent, agent.Start()
}

func status(cmd *exec.Cmd, field string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, field+":"); found {
			var kib float64
			fmt.Sscan(rest, &kib)
			return fmt.Sprintf("%.1f MiB", kib/1024)
		}
	}
	return "?"
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func printTable(kinds map[string]int, minutes float64) {
	fmt.Print("| request | times | a minute |\n|---|---|---|\n")
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Printf("| %s | %d | %.2f |\n", kind, kinds[kind], float64(kinds[kind])/minutes)
		total += kinds[kind]
	}
	fmt.Printf("| all | %d | %.2f |\n", total, float64(total)/minutes)
}

func measure(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "bench-idle")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	counted, api, err := serveAPI(ctx, o.inside)
	if err != nil {
		return err
	}
	agent, err := startAgent(ctx, o, dir, api)
	if err != nil {
		return err
	}
	if err := sleep(ctx, o.settle); err != nil {
		return err
	}
	fmt.Printf("Starting, %s:\n\n", o.settle)
	printTable(counted.take(), o.settle.Minutes())
	fmt.Printf("\nWith nothing to do, %d minutes:\n\n", o.minutes)
	if err := sleep(ctx, time.Duration(o.minutes)*time.Minute); err != nil {
		return err
	}
	printTable(counted.take(), float64(o.minutes))
	fmt.Printf("\nRSS of tessera-agent with %d GPUs: %s, %s of it anonymous, at most %s\n", o.gpus,
		status(agent, "VmRSS"), status(agent, "RssAnon"), status(agent, "VmHWM"))
	agent.Process.Signal(syscall.SIGTERM)
	return agent.Wait()
}
