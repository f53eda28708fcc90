// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

// prometheus starts a real Prometheus with scripts/monitoring, which scrapes the cluster, and returns its address.
func prometheus(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	script := filepath.Join(bed.Root, "scripts/monitoring")
	run := func(args ...string) ([]byte, error) {
		return exec.Command(script, append(args, "--name", "e2e-nodes")...).CombinedOutput()
	}
	t.Cleanup(func() {
		run("down")
		bed.TryKubectl("delete", "-f", filepath.Join(bed.Root, "deploy/samples/prometheus.yaml"))
	})
	if text, err := run("up", "--port", port); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return "http://127.0.0.1:" + port
}

type series struct {
	Metric map[string]string
	Value  [2]any
}

// query returns the series of an expression now.
func query(t *testing.T, address, expression string) []series {
	t.Helper()
	response, err := http.Get(address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	var answer struct {
		Status string
		Data   struct{ Result []series }
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v: %.300s", expression, err, text)
	}
	return answer.Data.Result
}

// queriesOf returns the queries of a dashboard by their panels' titles, with values for its variables.
func queriesOf(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	values := strings.NewReplacer("$namespace", ".*", "$pod", ".*", "$node", "n3", "$__rate_interval", "1m", "$instance", ".*", "$gpu", ".*")
	all := map[string][]string{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all[panel.Title] = append(all[panel.Title], values.Replace(target.Expr))
		}
	}
	labelValues := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, variable := range board.Templating.List {
		if query, isObject := variable.Query.(map[string]any); isObject {
			found := labelValues.FindStringSubmatch(query["query"].(string))
			if found == nil {
				t.Fatalf("%s: variable %s is no label_values(SERIES, LABEL)", file, variable.Name)
			}
			all["variable "+variable.Name] = []string{values.Replace(fmt.Sprintf("count by (%s) (%s)", found[2], found[1]))}
		}
	}
	return all
}

// emptyWhenHealthy are the panels that show no data on a cluster without faults.
var emptyWhenHealthy = []string{"fleet.json, XIDs in 10 minutes", "placement.json, pods that fit on no node, by reason", "placement.json, pods that wait, by reason"}

// On a cluster that works, every query of every dashboard has data and no alert fires. A lost GPU makes an alert
// fire.
func TestDashboardsAndAlertsOnARealPrometheus(t *testing.T) {
	bed.WireScheduler(t)
	small := sharing("monitored-share", map[string]int{vcudaCore: 30, vcudaMemory: 8})
	small.NodeSelector = onH200
	small.Containers[0].Args = []string{"--busy", "600"}
	bed.WaitPhase(t, small.Create(t), "Running")
	whole := bed.Single("monitored-whole", 1, "--busy", "600")
	whole.NodeSelector = onH200
	busy := whole.Create(t)
	bed.WaitPhase(t, busy, "Running")

	address := prometheus(t)
	bed.Eventually(t, bed.PodTimeout, "all agents and schedulers are scraped", func() bool {
		return len(query(t, address, `up == 1`)) == len(all)+2
	})
	for name, labels := range map[string][]string{
		`up{job="tessera-agent"}`:                  {"node", "instance"},
		`DCGM_FI_DEV_GPU_UTIL{pod="` + busy + `"}`: {"gpu", "UUID", "modelName", "hostname", "namespace", "container"},
	} {
		var found []series
		bed.Eventually(t, bed.PodTimeout, name+" has data", func() bool {
			found = query(t, address, name)
			return len(found) > 0
		})
		for _, label := range labels {
			if metric := found[0].Metric; metric[label] == "" {
				t.Errorf("%s has no label %s: %v", name, label, metric)
			}
		}
	}
	checkDashboards(t, address)
	// Earlier tests caused errors on purpose. The counters include these errors, and to this new Prometheus they
	// look like new errors, so their alerts do not count.
	counted := "TesseraXID|TesseraGrantsRejected|TesseraAllocationsRefused|TesseraGPUsHeldByProcesses"
	if firing := query(t, address, `ALERTS{alertstate="firing",alertname!~"`+counted+`"}`); len(firing) != 0 {
		t.Errorf("alerts fire on a cluster that works: %v", firing)
	}
	loseAGPU(t, address)
}

func checkDashboards(t *testing.T, address string) {
	files, err := filepath.Glob(filepath.Join(bed.Root, "deploy/chart/files/dashboards/*.json"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	boards := map[string]map[string][]string{"NVIDIA's dashboard 12239": queriesOf12239}
	for _, file := range files {
		boards[filepath.Base(file)] = queriesOf(t, file)
	}
	empty := map[string]string{} // "board, panel" by its expression
	for board, panels := range boards {
		for title, expressions := range panels {
			for _, expression := range expressions {
				empty[expression] = board + ", " + title
			}
		}
	}
	deadline := time.Now().Add(bed.PodTimeout)
	for ; len(empty) > len(emptyWhenHealthy) && time.Now().Before(deadline); time.Sleep(time.Second) {
		for expression := range empty {
			if len(query(t, address, expression)) > 0 {
				delete(empty, expression)
			}
		}
	}
	for expression, panel := range empty {
		if !slices.Contains(emptyWhenHealthy, panel) {
			t.Errorf("%s has no data: %s", panel, expression)
		}
	}
}

// queriesOf12239 are the queries of NVIDIA's dashboard for dcgm-exporter.
var queriesOf12239 = map[string][]string{
	"variables":     {`count by (instance) (DCGM_FI_DEV_GPU_TEMP)`, `count by (gpu) (DCGM_FI_DEV_GPU_TEMP)`},
	"temperature":   {`DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~".*"}`, `avg(DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~".*"})`},
	"power":         {`DCGM_FI_DEV_POWER_USAGE{instance=~".*", gpu=~".*"}`, `sum(DCGM_FI_DEV_POWER_USAGE{instance=~".*", gpu=~".*"})`},
	"SM clocks":     {`DCGM_FI_DEV_SM_CLOCK{instance=~".*", gpu=~".*"} * 1000000`},
	"utilization":   {`DCGM_FI_DEV_GPU_UTIL{instance=~".*", gpu=~".*"}`},
	"tensor cores":  {`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".*", gpu=~".*"}`},
	"device memory": {`DCGM_FI_DEV_FB_USED{instance=~".*", gpu=~".*"}`},
}

// A lost GPU is shown as unhealthy with its XID, and the alert names the node.
func loseAGPU(t *testing.T, address string) {
	bed.Simgpu(t, 2, "inject", "lost", "--gpu", "3")
	t.Cleanup(func() { bed.Simgpu(t, 2, "recover", "--gpu", "3") })
	bed.Eventually(t, bed.PodTimeout, "the lost GPU is counted", func() bool {
		return len(query(t, address, `tessera_devices{resource="nvidia.com/gpu",state="unhealthy",node="n2"} == 1`)) == 1
	})
	bed.Eventually(t, bed.PodTimeout, "the alert waits for its minute", func() bool {
		return len(query(t, address, `ALERTS{alertname="TesseraGPUUnhealthy",node="n2"}`)) == 1
	})
}
