// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// driverMemory returns the driver's memory usage of each process on node i, in MiB, by its id on the node.
func driverMemory(t *testing.T, i int) map[int]int {
	t.Helper()
	text := bed.OnNode(t, i, "env", "LD_LIBRARY_PATH="+bed.DriverRoot+"/usr/lib/x86_64-linux-gnu", "SIMGPU_ROOT="+bed.DriverRoot,
		bed.DriverRoot+"/usr/bin/nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
	all := map[int]int{}
	for line := range strings.Lines(text) {
		pid, mib, _ := strings.Cut(strings.TrimSpace(line), ", ")
		id, err := strconv.Atoi(pid)
		used, err2 := strconv.Atoi(mib)
		if err != nil || err2 != nil {
			t.Fatalf("nvidia-smi says %q", text)
		}
		all[id] = used
	}
	return all
}

// Article 003 reads these pages of gpu-manager.
func TestThePagesOfGpuManagerShowWhatContainersUse(t *testing.T) {
	bed.WireScheduler(t)
	bigger := sharing("by-memory", map[string]int{gpuMem: 8})
	bigger.NodeSelector = onT4
	bigger.Containers[0].Args = append(bigger.Containers[0].Args, "--bytes", fmt.Sprint(256<<20))
	bigger.Create(t)
	smaller := sharing("by-cores", map[string]int{vcudaCore: 30, vcudaMemory: 20})
	smaller.NodeSelector = onT4
	smaller.Create(t)
	checkGPUs(t, []string{"by-memory", "by-cores"}, sizes(t))

	var text string
	var driver map[int]int
	memory := map[string]int{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the driver shows %v, and /usage %s", driver, text)
		}
	})
	// The agent waits only for a moment for the driver's answer.
	bed.Eventually(t, bed.PodTimeout, "/usage shows the process of each pod with the driver's memory usage", func() bool {
		var usage struct {
			Usage map[string]struct {
				Project string
				Stat    map[string]struct {
					Dev []struct {
						Mem  int
						PIDs []int
					}
				}
			}
		}
		text = agentPage(t, "n2", 5678, "usage")
		if err := json.Unmarshal([]byte(text), &usage); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		driver = driverMemory(t, 2)
		for _, name := range []string{"by-memory", "by-cores"} {
			shown := usage.Usage[bed.ReadPod(t, name).Metadata.UID].Stat["main"].Dev
			if len(shown) != 1 || len(shown[0].PIDs) != 1 || driver[shown[0].PIDs[0]] != shown[0].Mem || shown[0].Mem == 0 {
				return false
			}
			memory[name] = shown[0].Mem
		}
		return true
	})
	if difference := memory["by-memory"] - memory["by-cores"]; difference < 240 || difference > 260 {
		t.Errorf("a quarter of a GiB more is shown as %d MiB", difference)
	}
	series := func(name, pod, label string) string {
		return fmt.Sprintf(`%s{container_name="main",%snamespace="default",node="n2",pod_name=%q`, name, label, pod)
	}
	wants := []string{
		series("container_gpu_memory_total", "by-memory", `gpu_memory="total",`) + fmt.Sprintf("} %d\n", memory["by-memory"]),
		series("container_gpu_memory_total", "by-cores", `gpu_memory="total",`) + fmt.Sprintf("} %d\n", memory["by-cores"]),
		series("container_gpu_utilization", "by-cores", `gpu="total",`) + "} 0\n",
		series("container_request_gpu_memory", "by-memory", "") + `,req_of_gpu_memory="total"} 8192` + "\n",
		series("container_request_gpu_memory", "by-cores", "") + `,req_of_gpu_memory="total"} 5120` + "\n",
		series("container_request_gpu_utilization", "by-cores", "") + `,req_of_gpu="total"} 0.3` + "\n",
	}
	var metric string
	var lacks []string
	if !bed.Within(bed.PodTimeout, func() bool {
		metric = agentPage(t, "n2", 5678, "metric")
		lacks = slices.DeleteFunc(slices.Clone(wants), func(want string) bool { return strings.Contains(metric, want) })
		return len(lacks) == 0
	}) {
		t.Errorf("/metric lacks %q", lacks)
	}
	if graph := agentPage(t, "n2", 5678, "graph"); !strings.Contains(graph, "GPU3") || !strings.Contains(graph, "allocatableCores: 70") {
		t.Errorf("/graph: %s", graph)
	}
	if t.Failed() {
		t.Log(metric)
	}
}
