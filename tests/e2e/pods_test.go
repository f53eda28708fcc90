// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

func TestNodeShowsItsGPUs(t *testing.T) {
	labels := fmt.Sprint(labelOf(t, "present"), " ", labelOf(t, "count"), " ", labelOf(t, "product"), " ", labelOf(t, "memory"))
	if want := "true 8 NVIDIA-A100-SXM4-80GB 81920"; labels != want {
		t.Errorf("labels %q, not %q", labels, want)
	}
	object, err := bed.Node(node)
	if err != nil {
		t.Fatal(err)
	}
	text := object.Metadata.Annotations["tessera.dev/devices"]
	var devices struct{ GPUs []struct{ UUID string } }
	if err := json.Unmarshal([]byte(text), &devices); err != nil || len(devices.GPUs) != gpus {
		t.Errorf("annotation tessera.dev/devices (%v): %s", err, text)
	}
}

// Runs the pods of the source articles from deploy/samples.
func TestSamplePodsOfTheArticles(t *testing.T) {
	var files []string
	for _, name := range []string{"test-gpu", "gpu-pod", "two-gpus", "no-request"} {
		files = append(files, "-f", filepath.Join(bed.Root, "deploy/samples", name+".yaml"))
	}
	t.Cleanup(func() {
		bed.Kubectl(t, append([]string{"delete", "--ignore-not-found", "--grace-period=0"}, files...)...)
	})
	bed.Kubectl(t, append([]string{"apply"}, files...)...)
	for pod, count := range map[string]int{"test-gpu": 1, "gpu-pod": 1, "two-gpus": 2} {
		bed.WaitPhase(t, pod, "Succeeded")
		bed.RequirePassed(t, pod, count)
	}
}

// Three containers on shared GPUs: one stays below its limit, one exceeds it, and a second process in the first
// container finds only what is left.
func TestDeviceMemoryOfAShareIsEnforced(t *testing.T) {
	share := func(name string, args ...string) bed.Pod {
		return bed.Pod{Name: name, Containers: []bed.Container{{
			Name: "main", Args: args,
			Limits: map[string]int{"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 20},
		}}}
	}
	const gib = 1 << 30
	within := share("within", "--bytes", fmt.Sprint(4*gib), "--hold", "600").Create(t)
	// HAMi-core's variable lowers the share of a container.
	lowered := bed.Pod{Name: "lowered-by-env", Containers: []bed.Container{{
		Name: "main", Args: []string{"--bytes", fmt.Sprint(4 * gib)},
		Env:    map[string]string{"CUDA_DEVICE_MEMORY_LIMIT_0": "3g"},
		Limits: map[string]int{"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 20},
	}}}.Create(t)
	past := share("beyond", "--bytes", fmt.Sprint(6*gib))
	// Loaded first, the driver's library would take the limiter's place.
	past.Containers[0].Env = map[string]string{"LD_PRELOAD": "/dev/tessera/real/libcuda"}
	beyond := past.Create(t)
	bed.WaitPhase(t, within, "Running")
	bed.Eventually(t, bed.PodTimeout, "the pod within its share computes", func() bool {
		return strings.Contains(bed.Logs(t, within), "Test PASSED")
	})
	bed.WaitPhase(t, beyond, "Failed")
	log := bed.Logs(t, beyond)
	for _, want := range []string{"CUDA_ERROR_OUT_OF_MEMORY", "this container may use 5120 MiB of GPU-", "an allocation of 2048.0 MiB is refused"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}
	bed.WaitPhase(t, lowered, "Failed")
	if log := bed.Logs(t, lowered); !strings.Contains(log, "this container may use 3072 MiB of GPU-") {
		t.Errorf("CUDA_DEVICE_MEMORY_LIMIT_0 does not lower the limit: %s", log)
	}
	second, err := bed.TryKubectl("exec", within, "--", "vectoradd", "--bytes", fmt.Sprint(2*gib))
	if err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("a second process got memory beyond the limit of its container: %v: %s", err, second)
	}
	if phase := bed.Phase(t, within); phase != "Running" {
		t.Errorf("the pod within its share is %s", phase)
	}
}

// computeUsed returns the thousandths of its GPU that each pod used in the last second, as its limiters measure it: 0
// where compute is not divided. It is empty while no agent answers, as during an upgrade.
func computeUsed() map[string]int { return containerNumbers("used_milli") }

// driverUsed is like computeUsed, but returns what the driver's samples show.
func driverUsed() map[string]int { return containerNumbers("driver_milli") }

// containerNumbers returns a number of each pod on the agent's page of containers; 0 where it is missing.
func containerNumbers(name string) map[string]int {
	const pods = "/api/v1/namespaces/tessera-system/pods"
	var agents struct{ Items []bed.PodObject }
	if err := bed.Call("GET", pods+"?labelSelector=app.kubernetes.io/name%3Dtessera-agent", nil, &agents); err != nil {
		return nil
	}
	for _, agent := range agents.Items {
		var page struct {
			Containers []map[string]any `json:"containers"`
		}
		if err := bed.Call("GET", pods+"/"+agent.Metadata.Name+":9400/proxy/containers", nil, &page); err != nil {
			continue
		}
		numbers := map[string]int{}
		for _, container := range page.Containers {
			pod, _ := container["pod"].(string)
			number, _ := container[name].(float64)
			numbers[pod] = int(number)
		}
		return numbers
	}
	return nil
}

// sharesWait bounds a wait for shares of compute. They need cores for the simulated GPU, which tests of the other
// package may take for a minute.
const sharesWait = 4 * time.Minute

// mostOfAGPU, in thousandths, is more than the shares of the tests leave or give to one pod. On a loaded machine, a
// program that may use the whole GPU also waits for a core.
const mostOfAGPU = 750

// waitComputeUse waits until each pod uses its hundredths of a GPU within 3, in the mean of the last five seconds. A GPU
// is idle whenever its programs wait for a core of a busy machine, and cannot make up for that time. So if the pods may
// use the whole GPU, the hundredths are those of what they use together, which is at least half of the GPU; otherwise a
// pod may use 5 less.
func waitComputeUse(t *testing.T, what string, hundredths map[string]int) {
	t.Helper()
	const seconds, more = 5, 3
	last := map[string][]int{} // thousandths by second
	defer func() { t.Logf("%s: thousandths of a GPU by second: %v", what, last) }()
	bed.Eventually(t, sharesWait, fmt.Sprintf("%s: hundredths of a GPU in use are %v", what, hundredths), func() bool {
		time.Sleep(time.Second)
		now := computeUsed()
		mean, sum, wanted := map[string]float64{}, 0.0, 0
		for pod, want := range hundredths {
			last[pod] = append(last[pod], now[pod])
			for _, thousandths := range last[pod][max(0, len(last[pod])-seconds):] {
				mean[pod] += float64(thousandths) / 10 / seconds
			}
			sum += mean[pod]
			wanted += want
		}
		all, less := sum > float64(wanted)/2, 5.0
		if wanted == 100 {
			less = more
		}
		for pod, want := range hundredths {
			part := mean[pod]
			if wanted == 100 {
				part *= 100 / sum
			}
			difference := part - float64(want)
			all = all && len(last[pod]) >= seconds && -less < difference && difference < more && mean[pod] < float64(want+more)
		}
		return all
	})
}

// execAlwaysBusy starts a second process in the container of a pod, which always has work in kernels of 2 ms. The
// returned function waits for its end and returns the hundredths of the GPU that it used.
func execAlwaysBusy(t *testing.T, pod string, seconds int) func() float64 {
	type result struct {
		text string
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		text, err := bed.TryKubectl("exec", pod, "--", "vectoradd", "--busy", fmt.Sprint(seconds))
		ended <- result{text, err}
	}()
	return func() float64 {
		got := <-ended
		line := regexp.MustCompile(`(\d+) launches in ([\d.]+) s`).FindStringSubmatch(got.text)
		if got.err != nil || line == nil {
			t.Fatalf("a process in the container of %s does not say what it launched: %v: %s", pod, got.err, got.text)
		}
		launches, _ := strconv.ParseFloat(line[1], 64)
		took, _ := strconv.ParseFloat(line[2], 64)
		return 100 * launches * 0.002 / took
	}
}

// Two pods with shares of 30 and 70 on one GPU, both of which always have work, keep their shares; each alone gets no
// more than its own. kubectl exec counts for its container. A pod with a share of memory alone gets what the shares
// leave.
func TestComputeOfSharesIsDivided(t *testing.T) {
	busy := func(name string, limits map[string]int) string {
		return bed.Pod{Name: name, Containers: []bed.Container{{
			Name: "main", Args: []string{"--busy", "3600"},
			// Launches are so long that the simulated GPU, not this machine, is the bottleneck.
			Env:    map[string]string{"SIMGPU_KERNEL_NS": "*=2000000"},
			Limits: limits,
		}}}.Create(t)
	}
	share := func(name string, cores int) string {
		return busy(name, map[string]int{"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": 8})
	}
	small := share("compute-30", 30)
	bed.WaitPhase(t, small, "Running")
	const execSeconds = 10
	execUsed := execAlwaysBusy(t, small, execSeconds)
	waitComputeUse(t, "the pod alone, with a second process, uses its share and no more", map[string]int{small: 30})
	used := execUsed()
	if used < 3 {
		used = execAlwaysBusy(t, small, execSeconds)() // the machine may have stood still for most of the time
	}
	if used < 3 || used > 27 {
		t.Errorf("in a container with a share of 30 and two processes that always have work, the second used %.0f", used)
	}
	waitComputeUse(t, "the pod alone uses its share and no more", map[string]int{small: 30})
	large := share("compute-70", 70)
	bed.WaitPhase(t, large, "Running")
	waitComputeUse(t, "both use their shares", map[string]int{small: 30, large: 70})
	bed.Kubectl(t, "annotate", "pod", large, "tessera.dev/compute-limit=20")
	waitComputeUse(t, "the second pod follows a lower limit", map[string]int{small: 30, large: 20})
	bed.Kubectl(t, "annotate", "pod", large, "tessera.dev/compute-limit-")
	waitComputeUse(t, "without it the second pod has its share again", map[string]int{small: 30, large: 70})

	bed.DeletePods(t, small)
	memory := busy("compute-of-memory", map[string]int{"aliyun.com/gpu-mem": 2})
	bed.WaitPhase(t, memory, "Running")
	waitComputeUse(t, "a pod with memory alone gets what the share leaves", map[string]int{large: 70, memory: 30})
	bed.DeletePods(t, large)
	bed.Eventually(t, sharesWait, "a pod with memory alone is not limited without shares beside it", func() bool {
		return driverUsed()[memory] > mostOfAGPU && computeUsed()[memory] == 0
	})
}

// While a pod of class high works on a GPU, one of class low on it waits, and goes on when the other is gone.
func TestALowComputeClassWaitsForAHighOne(t *testing.T) {
	create := func(name, class string) string {
		return bed.Pod{Name: name,
			Annotations: map[string]string{"tessera.dev/compute-class": class, "tencent.com/vcuda-core-limit": "100"},
			Containers: []bed.Container{{
				Name: "main", Args: []string{"--busy", "3600"},
				Env:    map[string]string{"SIMGPU_KERNEL_NS": "*=2000000"},
				Limits: map[string]int{"tencent.com/vcuda-core": 50, "tencent.com/vcuda-memory": 8},
			}}}.Create(t)
	}
	low := create("class-low", "low")
	bed.WaitPhase(t, low, "Running")
	lowHasTheGPU := func() bool { return computeUsed()[low] > mostOfAGPU }
	bed.Eventually(t, sharesWait, "the low class has the GPU alone", lowHasTheGPU)
	high := create("class-high", "high")
	bed.WaitPhase(t, high, "Running")
	bed.Eventually(t, sharesWait, "the high class has the GPU", func() bool {
		now := computeUsed()
		return now[high] > mostOfAGPU && now[low] < 50
	})
	bed.DeletePods(t, high)
	bed.Eventually(t, sharesWait, "the low class has the GPU again", lowHasTheGPU)
}

// A program that has the driver's library in place of the limiter is reported.
func TestAProcessWithoutTheLimiterIsReported(t *testing.T) {
	pod := bed.Pod{Name: "bypass", Containers: []bed.Container{{
		Name: "main", Image: "attacker",
		Args:   []string{"-preload", "/dev/tessera/real/libcuda", "/usr/bin/vectoradd", "--hold", "600"},
		Limits: map[string]int{"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 20},
	}}}.Create(t)
	bed.WaitPhase(t, pod, "Running")
	bed.Eventually(t, bed.PodTimeout, "an Event GPULimiterBypassed with its cause", func() bool {
		message := bed.Kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+pod+",reason=GPULimiterBypassed", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(message, "the process calls /dev/tessera/real/libcuda directly")
	})
}

// A container with CAP_SYS_ADMIN covers its limits with a file of its own before its program starts. The limiter in it
// takes that file for the agent's, so the report is what is left.
func TestAContainerThatCoversItsLimitsIsReported(t *testing.T) {
	const gib = 1 << 30
	pod := bed.Pod{Name: "cover", Containers: []bed.Container{{
		Name: "main", Image: "attacker", AddCaps: []string{"SYS_ADMIN"},
		Args:   []string{"-cover", "/dev/tessera/limits", "/usr/bin/vectoradd", "--bytes", fmt.Sprint(6 * gib), "--hold", "600"},
		Limits: map[string]int{"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 20},
	}}}.Create(t)
	bed.WaitPhase(t, pod, "Running")
	bed.Eventually(t, bed.PodTimeout, "an Event GPULimiterBypassed with its cause", func() bool {
		message := bed.Kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+pod+",reason=GPULimiterBypassed", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(message, "/dev/tessera/limits is unmounted or covered")
	})
	bed.Eventually(t, bed.PodTimeout, "the program computes with more than its limit", func() bool {
		return strings.Contains(bed.Logs(t, pod), "Test PASSED")
	})
	bed.Eventually(t, bed.PodTimeout, "tessera top shows the bypass", func() bool {
		text, err := bed.TesseraCommand("top").CombinedOutput()
		return err == nil && strings.Contains(bed.LineOf(string(text), pod), "bypassed")
	})
}

// A limit is lowered below what a running pod holds: nothing is stopped, what it allocates afterwards is refused, and
// both are Events. A limit above the grant is rejected.
func TestALimitOfDeviceMemoryIsLoweredWhileAPodRuns(t *testing.T) {
	const gib = 1 << 30
	pod := bed.Pod{Name: "lowered", Containers: []bed.Container{{
		Name: "main", Args: []string{"--bytes", fmt.Sprint(3 * gib), "--hold", "600"},
		Limits: map[string]int{"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 20},
	}}}.Create(t)
	bed.WaitPhase(t, pod, "Running")
	bed.Eventually(t, bed.PodTimeout, "the pod computes", func() bool {
		return strings.Contains(bed.Logs(t, pod), "Test PASSED")
	})
	agent := bed.Kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name=tessera-agent", "-o", "jsonpath={.items[0].metadata.name}")
	page := "/api/v1/namespaces/tessera-system/pods/" + agent + ":9400/proxy/containers"
	shows := func(what string, want string) {
		t.Helper()
		bed.Eventually(t, bed.PodTimeout, what, func() bool {
			return strings.Contains(bed.Kubectl(t, "get", "--raw", page), want)
		})
	}
	shows("the agent shows the limit", fmt.Sprintf(`"granted":%d,"limit":%d,`, 5*gib, 5*gib))
	event := func(reason string) {
		t.Helper()
		bed.Eventually(t, bed.PodTimeout, "an Event "+reason, func() bool {
			return bed.Kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+pod+",reason="+reason, "-o", "name") != ""
		})
	}
	bed.Kubectl(t, "annotate", "pod", pod, "tessera.dev/memory-limit=2Gi")
	event("GPULimitChanged")
	event("GPUMemoryLimitBelowUse")
	shows("the agent shows the lower limit", fmt.Sprintf(`"granted":%d,"limit":%d,`, 5*gib, 2*gib))
	if _, err := bed.TryKubectl("exec", pod, "--", "vectoradd", "--bytes", fmt.Sprint(gib)); err == nil ||
		!strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("a process got memory beyond the lowered limit: %v", err)
	}
	event("CUDAOutOfMemory")
	bed.Kubectl(t, "annotate", "--overwrite", "pod", pod, "tessera.dev/memory-limit=6Gi")
	event("GPULimitRejected")
	shows("a rejected limit changes nothing", fmt.Sprintf(`"granted":%d,"limit":%d,`, 5*gib, 2*gib))
	if phase := bed.Phase(t, pod); phase != "Running" {
		t.Errorf("the pod is %s", phase)
	}
}

func TestAPairIsTheOneWithNVLink(t *testing.T) {
	// The profile links GPUs 2k and 2k+1. With one GPU of a pair taken, the next pair is whole again.
	order := strings.Split(strings.TrimSpace(simgpu(t, "show", "--uuids")), "\n")
	bed.Single("one", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, "one", "Running")
	for i := range 3 {
		pod := bed.Single(fmt.Sprintf("pair-%d", i), 2, "--hold", "600").Create(t)
		bed.WaitPhase(t, pod, "Running")
		bed.Eventually(t, bed.PodTimeout, "the pod names its GPUs", func() bool { return len(bed.UUIDsIn(bed.Logs(t, pod))) == 2 })
		given := bed.UUIDsIn(bed.Logs(t, pod))
		a, b := slices.Index(order, given[0]), slices.Index(order, given[1])
		if a/2 != b/2 {
			t.Errorf("%s got GPUs %d and %d, which have no NVLink between them", pod, a, b)
		}
	}
}

func probeReport(t *testing.T, pod string) (report struct {
	Devices, Driver []string
	Environment     map[string]string
	OpenErrors      map[string]string
	LdCache         int64
}) {
	t.Helper()
	text := bed.Logs(t, pod)
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return report
}

func TestAPodWithoutARequestSeesNoGPU(t *testing.T) {
	all := map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
	var pods []string
	for name, c := range map[string]bed.Container{
		"env-in-spec":         {Name: "main", Image: "probe", Env: all},
		"env-in-image":        {Name: "main", Image: "probe-all"},
		"env-in-both":         {Name: "main", Image: "probe-all", Env: all},
		"index-in-spec":       {Name: "main", Image: "probe", Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "0,1"}},
		"volume-mounts-value": {Name: "main", Image: "probe", Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}},
	} {
		for _, class := range []string{"", "nvidia"} {
			pod := bed.Pod{Name: strings.TrimSuffix("denied-"+name+"-"+class, "-"), Containers: []bed.Container{c}, RuntimeClass: class}
			pods = append(pods, pod.Create(t))
		}
	}
	for _, pod := range pods {
		bed.WaitPhase(t, pod, "Succeeded")
		report := probeReport(t, pod)
		if len(report.Devices) != 0 || len(report.Driver) != 0 {
			t.Errorf("%s sees %v and %v", pod, report.Devices, report.Driver)
		}
	}
}

func TestAGrantedContainerSeesItsOwnGPUAndNoOther(t *testing.T) {
	pod := bed.Pod{Name: "granted", Containers: []bed.Container{{Name: "main", Image: "probe", GPUs: 1}}}.Create(t)
	bed.WaitPhase(t, pod, "Succeeded")
	report := probeReport(t, pod)
	var numbered int
	for _, device := range report.Devices {
		if strings.Trim(strings.TrimPrefix(device, "/dev/nvidia"), "0123456789") == "" {
			numbered++
		}
	}
	if numbered != 1 || !slices.Contains(report.Devices, "/dev/nvidiactl") {
		t.Errorf("devices: %v", report.Devices)
	}
	if len(bed.UUIDsIn(report.Environment["NVIDIA_VISIBLE_DEVICES"])) != 1 {
		t.Errorf("NVIDIA_VISIBLE_DEVICES: %v", report.Environment)
	}
}

func TestAPrivilegedPodNeedsPermissionAndSeesItsOwnGPUAlone(t *testing.T) {
	refused := bed.Pod{Name: "privileged-refused", Containers: []bed.Container{{Name: "main", GPUs: 1, Privileged: true}}}
	if err := refused.TryCreate(t); err == nil || !strings.Contains(err.Error(), "tessera.dev/privileged-gpus=allowed") {
		t.Errorf("a privileged pod was created: %v", err)
	}
	bed.Kubectl(t, "label", "namespace", "default", "tessera.dev/privileged-gpus=allowed")
	defer bed.Kubectl(t, "label", "namespace", "default", "tessera.dev/privileged-gpus-")
	allowed := bed.Pod{Name: "privileged", Containers: []bed.Container{{Name: "main", Image: "probe", GPUs: 1, Privileged: true}}}
	// The API server observes the label a moment later.
	bed.Eventually(t, bed.PodTimeout, "a privileged pod is admitted", func() bool { return allowed.TryCreate(t) == nil })
	pod := allowed.Name
	bed.WaitPhase(t, pod, "Succeeded")
	report := probeReport(t, pod)
	numbered := slices.DeleteFunc(slices.Clone(report.Devices), func(device string) bool {
		return strings.Trim(strings.TrimPrefix(device, "/dev/nvidia"), "0123456789") != ""
	})
	// A simulated device node has no kernel driver, so open() fails with ENXIO. If the device cgroup rejected it, the
	// error would be EPERM.
	if len(numbered) != 1 || strings.Contains(report.OpenErrors[numbered[0]], "not permitted") {
		t.Errorf("devices %v, open: %v", report.Devices, report.OpenErrors)
	}
	if len(report.Driver) == 0 {
		t.Error("the privileged pod has no driver files")
	}
}

func TestTwoContainersOfOnePodGetDifferentGPUs(t *testing.T) {
	pod := bed.Pod{Name: "two-containers", Containers: []bed.Container{
		{Name: "a", GPUs: 1}, {Name: "b", GPUs: 2}}}.Create(t)
	bed.WaitPhase(t, pod, "Succeeded")
	a, b := bed.UUIDsIn(bed.Logs(t, pod, "a")), bed.UUIDsIn(bed.Logs(t, pod, "b"))
	if len(a) != 1 || len(b) != 2 || slices.Contains(b, a[0]) {
		t.Errorf("a got %v, b got %v", a, b)
	}
}

func TestAnInitContainerHandsItsGPUOn(t *testing.T) {
	pod := bed.Pod{Name: "with-init", Init: []bed.Container{{Name: "prepare", GPUs: 1}},
		Containers: []bed.Container{{Name: "main", GPUs: 1}}}.Create(t)
	bed.WaitPhase(t, pod, "Succeeded")
	first, second := bed.UUIDsIn(bed.Logs(t, pod, "prepare")), bed.UUIDsIn(bed.Logs(t, pod, "main"))
	if len(first) != 1 || !slices.Equal(first, second) {
		t.Errorf("init container got %v, container got %v", first, second)
	}
}

func TestAPodDeletedAndCreatedAgainAtOnceRuns(t *testing.T) {
	for range 3 {
		bed.Single("again", gpus, "--hold", "600").Create(t)
		bed.WaitPhase(t, "again", "Running")
		bed.DeletePods(t, "again")
	}
	bed.Single("again", gpus).Create(t)
	bed.WaitPhase(t, "again", "Succeeded")
	bed.RequirePassed(t, "again", gpus)
}

func TestMorePodsThanGPUsWaitAndNoneFails(t *testing.T) {
	const pods = gpus + 3
	var names []string
	for i := range pods {
		names = append(names, bed.Single(fmt.Sprintf("crowd-%d", i), 1, "--hold", "3").Create(t))
	}
	var most int
	bed.Eventually(t, 3*bed.PodTimeout, "all pods end", func() bool {
		// One request, because pods that are read one after the other need not have run at the same time.
		var list struct{ Items []bed.PodObject }
		bed.Get(t, "/api/v1/namespaces/default/pods", &list)
		var text string
		for _, pod := range list.Items {
			if slices.Contains(names, pod.Metadata.Name) {
				text += pod.Status.Phase + "\n"
			}
		}
		if strings.Contains(text, "Failed") {
			t.Fatalf("a pod failed:\n%s", text)
		}
		most = max(most, strings.Count(text, "Running"))
		return strings.Count(text, "Succeeded") == pods
	})
	if most > gpus {
		t.Errorf("%d pods ran at once on %d GPUs", most, gpus)
	}
	for _, name := range names {
		bed.RequirePassed(t, name, 1)
	}
}

func TestAReadOnlyRootFileSystemWorks(t *testing.T) {
	p := bed.Single("read-only", 1)
	p.ReadOnlyRootFS = true
	p.Create(t)
	bed.WaitPhase(t, "read-only", "Succeeded")
	bed.RequirePassed(t, "read-only", 1)
}

func TestNothingIsLeftInTheLayerOfTheImage(t *testing.T) {
	bed.Single("layer", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, "layer", "Running")
	bed.Eventually(t, bed.PodTimeout, "the pod holds its GPU", func() bool { return len(bed.UUIDsIn(bed.Logs(t, "layer"))) == 1 })
	id := strings.TrimPrefix(bed.ReadPod(t, "layer").Status.ContainerStatuses[0].ContainerID, "containerd://")
	// The writable layer of the container's overlay, as the node's mount table names it.
	upper := onNode(t, "/bin/sh", "-c", `sed -n 's#.*/`+id+`/rootfs .*upperdir=\([^,]*\),.*#\1#p' /proc/self/mountinfo`)
	if strings.TrimSpace(upper) == "" {
		t.Fatalf("no overlay of container %s", id)
	}
	// The engine's own mount points (/dev, /proc, /etc/hosts …) come with every container.
	found := strings.Fields(onNode(t, "find", strings.TrimSpace(upper), "-mindepth", "1", "-printf", "/%P\n"))
	for _, path := range found {
		if strings.Contains(path, "nvidia") || strings.Contains(path, "tessera") || strings.Contains(path, "cuda") || strings.Contains(path, "ld.so") {
			t.Errorf("left in the layer: %s", path)
		}
	}
}

func TestExecFindsNvidiaSmi(t *testing.T) {
	bed.Single("smi", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, "smi", "Running")
	bed.Eventually(t, bed.PodTimeout, "the pod holds its GPU", func() bool { return len(bed.UUIDsIn(bed.Logs(t, "smi"))) == 1 })
	text := bed.Kubectl(t, "exec", "smi", "--", "nvidia-smi", "-L")
	if got := bed.UUIDsIn(text); !slices.Equal(got, bed.UUIDsIn(bed.Logs(t, "smi"))) {
		t.Errorf("nvidia-smi -L shows %v: %s", got, text)
	}
}

func TestPodsStartQuickly(t *testing.T) {
	// The limit is not about speed. The test fails if each start waits for a timeout somewhere. One start may be slow,
	// because a loaded machine may stand still for some seconds.
	var took []time.Duration
	for i := range 3 {
		pod := bed.Single(fmt.Sprintf("quick-%d", i), 1).Create(t)
		began := time.Now()
		bed.WaitPhase(t, pod, "Succeeded")
		if took = append(took, time.Since(began)); took[i] <= 15*time.Second {
			return
		}
	}
	t.Errorf("pods with a GPU took %v", took)
}
