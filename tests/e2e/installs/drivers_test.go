// SPDX-License-Identifier: Apache-2.0

package installs

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

const (
	upgradeState = "nvidia.com/gpu-driver-upgrade-state"
	// To install a driver takes some 20 s. The agent closes the old driver for 6 s, and the probe starts after 5 s.
	// A loaded machine needs three times as long, and a rollback installs a second driver.
	driverTimeout = 6 * time.Minute
	// The operator's own deadlines for a driver that works, in seconds.
	readySeconds, validSeconds = 170, 120
)

// driverSettings returns a driver section for the version.
func driverSettings(version string, policy bed.Object) bed.Object {
	manager := bed.Object{"repository": "tessera.dev/tests", "image": "driver", "version": "dev"}
	return bed.Object{"enabled": version != "", "repository": "tessera.dev/tests", "image": "driver", "version": version,
		"imagePullPolicy": "Never", "manager": manager, "upgradePolicy": policy}
}

// systemTag is what the operator appends to the version of a driver's image on these nodes: "-debian12".
func systemTag(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			fields[name] = strings.Trim(value, `"`)
		}
	}
	return "-" + fields["ID"] + fields["VERSION_ID"]
}

// patchTessera merges a change into the spec of the resource.
func patchTessera(t *testing.T, spec bed.Object) {
	t.Helper()
	text, err := json.Marshal(bed.Object{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", string(text))
}

// installOperator makes n3 a pool of its own, and gives all nodes driver 1.0.
func installOperator(t *testing.T) {
	t.Helper()
	for _, file := range []string{"operator.yaml", "drivers.yaml"} {
		bed.Kubectl(t, "apply", "-f", operatorFile(file))
	}
	waitDefinition(t)
	values := bed.Kubectl(t, "create", "-f", operatorFile("tessera.yaml"), "--dry-run=client", "-o", "json")
	var resource bed.Object
	if err := json.Unmarshal([]byte(values), &resource); err != nil {
		t.Fatal(err)
	}
	resource["spec"] = bed.Object{
		"agent":   bed.Object{"driverRoot": bed.DriverRoot, "driverRootWritable": true},
		"runtime": bed.Object{"onlyWithGpu": false, "spreadSeconds": 0},
		"driver":  driverSettings("1.0", bed.Object{"maxUnavailable": "100%", "maxParallelUpgrades": 1}),
		"pools": []bed.Object{{"name": "own", "nodeSelector": bed.Object{"kubernetes.io/hostname": "n3"},
			"driver": driverSettings("1.0", bed.Object{"maxUnavailable": "100%"})}},
	}
	text, err := json.Marshal(resource)
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Shared.Apply(ctx, string(text)); err != nil {
		t.Fatal(err)
	}
}

// driverOn returns the version of the driver pod that is ready on a node, or "" if there is none.
func driverOn(node string) string {
	text, _ := bed.TryKubectl("-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/component=nvidia-driver",
		"--field-selector", "spec.nodeName="+node, "-o",
		`jsonpath={range .items[*]}{.status.containerStatuses[0].ready} {.spec.containers[0].image}{"\n"}{end}`)
	for line := range strings.Lines(text) {
		if image, ok := strings.CutPrefix(strings.TrimSpace(line), "true "); ok {
			tag := image[strings.LastIndex(image, ":")+1:]
			return tag[:strings.Index(tag, "-")]
		}
	}
	return ""
}

func stateOf(node string) string {
	object, _ := bed.Node(node)
	return object.Metadata.Labels[upgradeState]
}

func isCordoned(t *testing.T, node string) bool {
	t.Helper()
	return bed.Kubectl(t, "get", "node", node, "-o", "jsonpath={.spec.unschedulable}") == "true"
}

// waitDriver waits until the node's upgrade has ended in this state with this driver, and offers its GPUs. After a
// timeout it shows what the operator did to the node, and the driver's pods.
func waitDriver(t *testing.T, i int, version, state string) {
	t.Helper()
	node := bed.Shared.Nodes[i-1].Name
	if bed.Within(driverTimeout, func() bool {
		return stateOf(node) == state && driverOn(node) == version && bed.Allocatable(node, bed.WholeGPU) == 2
	}) {
		return
	}
	events, _ := bed.TryKubectl("get", "events", "--all-namespaces", "--field-selector", "involvedObject.name="+node)
	pods, _ := bed.TryKubectl("-n", "tessera-system", "get", "pods,daemonsets", "-o", "wide")
	object, _ := bed.Node(node)
	t.Fatalf("not within %s: %s is %s with driver %s, but %q with %q and %d GPUs\n%v\n%v\n%s\n%s", driverTimeout, node, state, version,
		stateOf(node), driverOn(node), bed.Allocatable(node, bed.WholeGPU), object.Metadata.Labels, object.Metadata.Annotations,
		events, pods)
}

// poolStatus returns a field of the status of a pool's drivers.
func poolStatus(pool, field string) string {
	text, _ := bed.TryKubectl("get", "tessera/tessera", "-o", `jsonpath={.status.drivers[?(@.name=="`+pool+`")].`+field+`}`)
	return text
}

// watched holds the lines that a watch has delivered.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *watched) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(text)
}

func (w *watched) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(strings.TrimSpace(w.text.String()), "\n")
}

// watch follows objects until the test's end.
func watch(t *testing.T, kind, jsonpath string) *watched {
	t.Helper()
	w := &watched{}
	command := bed.Shared.KubectlCommand(ctx, "get", kind, "--watch", "-o", "jsonpath="+jsonpath+`{"\n"}`)
	command.Stdout = w
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	bed.Eventually(t, bed.PodTimeout, "the watch of "+kind+" delivers", func() bool { return w.lines()[0] != "" })
	return w
}

func inProgress(state string) bool {
	return strings.HasSuffix(state, "-required") && state != "upgrade-required"
}

// versionOfFirst returns the first word, the resourceVersion, of the first line that matches.
func versionOfFirst(t *testing.T, lines []string, matches func(fields []string) bool) int {
	t.Helper()
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) > 1 && matches(fields) {
			version, err := strconv.Atoi(fields[0])
			if err != nil {
				t.Fatal(err)
			}
			return version
		}
	}
	t.Fatalf("the watch delivered no line that matches: %q", lines)
	return 0
}

// mostAtOnce returns how many nodes upgraded at the same time, from lines "VERSION NODE STATE".
func mostAtOnce(lines []string) (most int) {
	states := map[string]string{}
	for _, line := range lines {
		fields := append(strings.Fields(line), "", "", "")
		states[fields[1]] = fields[2]
		now := 0
		for _, state := range states {
			if inProgress(state) {
				now++
			}
		}
		most = max(most, now)
	}
	return most
}

// gpuWorkload creates a Deployment whose pod holds a GPU of a node.
func gpuWorkload(t *testing.T, name, node string) {
	t.Helper()
	labels := bed.Object{"app": name}
	text, err := json.Marshal(bed.Object{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": bed.Object{"name": name, "namespace": "default"},
		"spec": bed.Object{"selector": bed.Object{"matchLabels": labels}, "template": bed.Object{
			"metadata": bed.Object{"labels": labels},
			"spec": bed.Object{"nodeSelector": bed.Object{"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1,
				"containers": []bed.Object{{"name": "main", "image": "tessera.dev/samples/vectoradd:dev", "imagePullPolicy": "Never",
					"args": []string{"--hold", "3600"}, "resources": bed.Object{"limits": bed.Object{bed.WholeGPU: 1}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Shared.Apply(ctx, string(text)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.TryKubectl("delete", "deployment", name, "--ignore-not-found") })
	waitWorkload(t, name)
}

func waitWorkload(t *testing.T, name string) {
	t.Helper()
	bed.Kubectl(t, "rollout", "status", "deployment/"+name, "--timeout="+strconv.Itoa(int(bed.PodTimeout.Seconds()))+"s")
}

// TestTheOperatorInstallsAndUpgradesDrivers begins with nodes without a driver. Its driver containers work, hang, or
// install only a part of their files.
func TestTheOperatorInstallsAndUpgradesDrivers(t *testing.T) {
	tag := systemTag(t)
	good := "good --after=1s -- --profile h100-sxm5-80gb --gpus 2"
	bed.LoadDriverImages(t, map[string]string{"1.0" + tag: good, "2.0" + tag: good,
		"3.0" + tag: strings.Replace(good, "good", "hangs", 1), "4.0" + tag: strings.Replace(good, "good", "half", 1)})
	t.Cleanup(func() {
		for i, gpus := range bed.NodeGPUs {
			bed.RestoreDriver(t, i+1, gpus)
		}
	})
	removeAtTheEnd(t)
	t.Cleanup(func() { bed.TryKubectl("uncordon", "n1", "n2", "n3") })
	for i := range bed.Shared.Nodes {
		bed.LeaveOnlyTheBus(t, i+1)
	}

	installOperator(t)
	for i := range bed.Shared.Nodes {
		waitDriver(t, i+1, "1.0", "upgrade-done")
		if isCordoned(t, bed.Shared.Nodes[i].Name) {
			t.Errorf("the first driver of node %d cordoned it", i+1)
		}
	}
	t.Run("rights of the driver's pods", driverMayChangeOnlyItsNode)
	t.Run("upgrade", upgradesOneNodeAfterTheOther)
	t.Run("hangs", aDriverThatHangsIsRolledBackAndDelaysNoOtherPool)
	t.Run("half", anIncompleteDriverIsRolledBack)
	t.Run("wanted again", theEarlierDriverIsWantedAgain)
	t.Run("release", anUnwantedDriverStaysWhileItIsUsed)
}

// Tests the admission policy for drivers with a token of the driver's pod on n1.
func driverMayChangeOnlyItsNode(t *testing.T) {
	pod := strings.Fields(bed.Kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/component=nvidia-driver",
		"--field-selector", "spec.nodeName=n1", "-o", "jsonpath={.items[0].metadata.name} {.items[0].metadata.uid}"))
	token := bed.Kubectl(t, "-n", "tessera-system", "create", "token", "tessera-driver", "--bound-object-kind=Pod",
		"--bound-object-name="+pod[0], "--bound-object-uid="+pod[1])
	server := bed.Kubectl(t, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	patch := func(node, body string) error {
		_, err := bed.TryKubectl("--kubeconfig=/dev/null", "--server="+server, "--insecure-skip-tls-verify", "--token="+token,
			"patch", "node", node, "--type=merge", "-p", body)
		return err
	}
	for _, value := range []string{`"paused-for-driver-upgrade"`, "null"} {
		if err := patch("n1", `{"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm":`+value+`}}}`); err != nil {
			t.Errorf("the driver's pod could not change a label of its own node: %v", err)
		}
	}
	for what, err := range map[string]error{
		"another node":      patch("n2", `{"metadata":{"labels":{"nvidia.com/gpu.deploy.dcgm":"x"}}}`),
		"a foreign label":   patch("n1", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"an annotation":     patch("n1", `{"metadata":{"annotations":{"tessera.dev/devices":"{}"}}}`),
		"the cordon":        patch("n1", `{"spec":{"unschedulable":true}}`),
		"the upgrade state": patch("n1", `{"metadata":{"labels":{"`+upgradeState+`":"upgrade-failed"}}}`),
	} {
		if err == nil || !strings.Contains(err.Error(), "tessera-driver may only change") {
			t.Errorf("the driver's pod could change %s (%v)", what, err)
		}
	}
}

// n1 is cordoned by an administrator, and on n2 a pod has a GPU.
func upgradesOneNodeAfterTheOther(t *testing.T) {
	bed.Kubectl(t, "cordon", "n1")
	gpuWorkload(t, "works", "n2")
	resource := watch(t, "tessera/tessera", `{.metadata.resourceVersion} {.status.drivers[?(@.name=="default")].plan}`)
	nodes := watch(t, "nodes", `{.metadata.resourceVersion} {.metadata.name} {.metadata.labels.nvidia\.com/gpu-driver-upgrade-state}`)
	patchTessera(t, bed.Object{"driver": bed.Object{"version": "2.0",
		"upgradePolicy": bed.Object{"canaries": 1, "restartTimeoutSeconds": readySeconds,
			"validationTimeoutSeconds": validSeconds}}})
	waitDriver(t, 1, "2.0", "upgrade-done")
	waitDriver(t, 2, "2.0", "upgrade-done")

	planned := versionOfFirst(t, resource.lines(), func(fields []string) bool { return len(fields) > 3 })
	began := versionOfFirst(t, nodes.lines(), func(fields []string) bool { return len(fields) == 3 && inProgress(fields[2]) })
	if planned > began {
		t.Errorf("the plan was published in version %d, and the first node began in %d", planned, began)
	}
	if text := strings.Join(resource.lines(), "\n"); !strings.Contains(text, "n2: 1.0 -> 2.0; evicts default/works-") {
		t.Errorf("no plan names versions and the pod that goes: %s", text)
	}
	if most := mostAtOnce(nodes.lines()); most != 1 {
		t.Errorf("%d nodes upgraded at once:\n%s", most, strings.Join(nodes.lines(), "\n"))
	}
	if !isCordoned(t, "n1") || isCordoned(t, "n2") {
		t.Error("the administrator's cordon of n1 is gone, or the operator's of n2 is not")
	}
	waitWorkload(t, "works")
	if got := driverOn("n3"); got != "1.0" {
		t.Errorf("the node of the other pool has driver %s", got)
	}
	bed.Eventually(t, bed.PodTimeout, "after the upgrade no node has a problem", func() bool {
		return bed.Kubectl(t, "get", "tessera/tessera", "-o", "jsonpath={.status.nodes.problems}") == "[]"
	})
}

// upgradeFails upgrades to a version that does not work, and expects the first node to go back, and the other to stay.
// The driver's container has `seconds` to become ready. On a loaded machine, the earlier driver of n1 may be ready or
// pass the smoke test only after its timeout. n1 then ends in the same state, and its problem names both failures.
func upgradeFails(t *testing.T, version, why string, seconds int) {
	t.Helper()
	patchTessera(t, bed.Object{"driver": bed.Object{"version": version,
		"upgradePolicy": bed.Object{"restartTimeoutSeconds": seconds, "validationTimeoutSeconds": 10}}})
	bed.Eventually(t, driverTimeout, "n1 says why driver "+version+" failed", func() bool {
		object, _ := bed.Node("n1")
		return stateOf("n1") == "upgrade-failed" &&
			strings.Contains(object.Metadata.Annotations["tessera.dev/driver-upgrade-problem"], why)
	})
	waitDriver(t, 1, "2.0", "upgrade-failed")
	if !isCordoned(t, "n1") {
		t.Error("the administrator's cordon of n1 is gone")
	}
	bed.Eventually(t, bed.PodTimeout, "the status says that the canary failed", func() bool {
		return strings.Contains(poolStatus("default", "blocked"), "failed on canary n1") &&
			strings.Contains(bed.Kubectl(t, "get", "tessera/tessera", "-o", "jsonpath={.status.nodes.problems}"), "DriverUpgradeFailed")
	})
	bed.Eventually(t, bed.PodTimeout, "n1 is the canary in the plan", func() bool {
		plan := "  1. n1: 2.0 -> " + version + "\n  2. n2: 2.0 -> " + version + "; evicts"
		return strings.Contains(poolStatus("default", "plan"), plan)
	})
	if state, driver := stateOf("n2"), driverOn("n2"); inProgress(state) || driver != "2.0" || isCordoned(t, "n2") {
		t.Errorf("after the canary failed, n2 is %s with driver %s", state, driver)
	}
	waitWorkload(t, "works")
}

// While the driver of n1 hangs, n3, a pool of its own, gets another driver. A pool takes the settings of all nodes where
// it has none, so it sets its own timeouts.
func aDriverThatHangsIsRolledBackAndDelaysNoOtherPool(t *testing.T) {
	gpuWorkload(t, "works", "n2")
	patient := bed.Object{"maxUnavailable": "100%", "restartTimeoutSeconds": readySeconds,
		"validationTimeoutSeconds": validSeconds}
	patchTessera(t, bed.Object{"pools": []bed.Object{{"name": "own", "nodeSelector": bed.Object{"kubernetes.io/hostname": "n3"},
		"driver": driverSettings("2.0", patient)}}})
	upgradeFails(t, "3.0", "was not ready in time", 25)
	waitDriver(t, 3, "2.0", "upgrade-done")
}

func anIncompleteDriverIsRolledBack(t *testing.T) {
	gpuWorkload(t, "works", "n2")
	upgradeFails(t, "4.0", "did not pass the smoke test", readySeconds)
}

// The settings no longer ask for the version that failed.
func theEarlierDriverIsWantedAgain(t *testing.T) {
	patchTessera(t, bed.Object{"driver": bed.Object{"version": "2.0"}})
	waitDriver(t, 1, "2.0", "upgrade-done")
	waitDriver(t, 2, "2.0", "upgrade-done")
}

func anUnwantedDriverStaysWhileItIsUsed(t *testing.T) {
	gpuWorkload(t, "works", "n2")
	patchTessera(t, bed.Object{"driver": bed.Object{"enabled": false}})
	bed.Eventually(t, driverTimeout, "n1 has no driver, and the status says why n2 has one", func() bool {
		problems, _ := bed.TryKubectl("get", "tessera/tessera", "-o", "jsonpath={.status.nodes.problems}")
		return driverOn("n1") == "" && stateOf("n1") == "" && strings.Contains(problems, "DriverInUse")
	})
	if driverOn("n2") != "2.0" || driverOn("n3") != "2.0" {
		t.Error("n2 lost a driver that a pod uses, or n3 one that its pool wants")
	}
	bed.Kubectl(t, "delete", "deployment", "works")
	bed.Eventually(t, driverTimeout, "n2 loses its driver", func() bool {
		return driverOn("n2") == "" && stateOf("n2") == "" && bed.Allocatable("n2", bed.WholeGPU) <= 0
	})
	var labels map[string]string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the labels of n2 are", labels)
		}
	})
	bed.Eventually(t, bed.PodTimeout, "n2 has no label of a driver, and one for the GPU on its bus", func() bool {
		object, err := bed.Node("n2")
		labels = object.Metadata.Labels
		ofDriver := []string{"tessera.dev/driver-pool", "tessera.dev/driver-revision", "nvidia.com/gpu.deploy.driver"}
		has := func(name string) bool { _, found := labels[name]; return found }
		return err == nil && !slices.ContainsFunc(ofDriver, has) && labels["nvidia.com/gpu.present"] == "true"
	})
}
