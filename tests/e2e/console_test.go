// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

// openDashboard starts the console for the administrator of the cluster, and returns its address and a client that has
// opened the address it printed.
func openDashboard(t *testing.T) (string, *http.Client) {
	t.Helper()
	command := exec.Command(bed.Tool("tessera-console"), "--dashboard", "--listen=127.0.0.1:0", "--kubeconfig", bed.Shared.Kubeconfig())
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
	})
	// Without an address the program ends, and so does its output.
	line, _ := bufio.NewReader(out).ReadString('\n')
	address, err := url.Parse(strings.TrimSpace(line))
	if err != nil || address.Host == "" {
		t.Fatalf("tessera-console printed %q: %v", line, err)
	}
	jar, _ := cookiejar.New(nil)
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	answer, err := client.Get(address.String())
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return "http://" + address.Host, client
}

// The page of a node shows what its agent measures: the GPU and the container that keeps it busy.
func TestTheConsoleShowsWhatAContainerUses(t *testing.T) {
	pod := bed.Pod{Name: "console-use", Containers: []bed.Container{{
		Name: "main", Args: []string{"--busy", "600"},
		Env:    map[string]string{"SIMGPU_KERNEL_NS": "*=2000000"},
		Limits: map[string]int{"tencent.com/vcuda-core": 40, "tencent.com/vcuda-memory": 8},
	}}}.Create(t)
	bed.WaitPhase(t, pod, "Running")
	base, client := openDashboard(t)

	type usage struct {
		GPUs       map[string]struct{ Utilization, Temperature, Power *float64 }
		Containers []struct {
			Pod, UUID string
			Used      int `json:"used_milli"`
			Limit     int `json:"limit_milli"`
			Memory    struct{ Limit, Used int64 }
		}
	}
	var text []byte
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last answer: %.2000s", text)
		}
	})
	bed.Eventually(t, sharesWait, "the console shows the use of the container", func() bool {
		time.Sleep(500 * time.Millisecond) // the console limits a person to ten requests a second
		answer, err := client.Get(base + "/api/v1/nodes/" + node + "/usage")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, _ = io.ReadAll(answer.Body)
		var shown usage
		if json.Unmarshal(text, &shown) != nil {
			return false
		}
		for _, use := range shown.Containers {
			gpu := shown.GPUs[use.UUID]
			if use.Pod == pod && use.Limit == 400 && use.Used > 200 && use.Memory.Limit == 2048*mib && gpu.Utilization != nil &&
				*gpu.Utilization > 20 && gpu.Temperature != nil && gpu.Power != nil {
				return true
			}
		}
		return false
	})
}
