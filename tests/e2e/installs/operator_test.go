// SPDX-License-Identifier: Apache-2.0

package installs

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

// applyText gives a manifest to "kubectl apply".
func applyText(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bed.Kubectl(t, "apply", "-f", file)
}

// resourceText returns the manifest of a Tessera resource with the values of the simulated cluster.
func resourceText(t *testing.T) string {
	t.Helper()
	values, err := os.ReadFile(filepath.Join(bed.Root, "deploy/simulated/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: tessera.dev/v1alpha1\nkind: Tessera\nmetadata: {name: tessera}\nspec:\n"
	for _, line := range strings.Split(string(values), "\n") {
		text += "  " + line + "\n"
	}
	return text
}

func tesseraCondition(kind, field string) string {
	text, _ := bed.Shared.Kubectl(ctx, "get", "tessera", "tessera", "-o",
		`jsonpath={.status.conditions[?(@.type=="`+kind+`")].`+field+`}`)
	return text
}

func waitTesseraReady(t *testing.T) {
	t.Helper()
	bed.Eventually(t, 2*bed.PodTimeout, "the resource is ready", func() bool {
		return tesseraCondition("Ready", "status") == "True"
	})
}

// Creates the resource and runs a pod with a GPU. The operator then repairs edited objects, is killed, and loses
// a right. In the end the resource is deleted, and the pod goes on.
func TestTheOperatorInstallsKeepsAndRemovesTessera(t *testing.T) {
	removeAtTheEnd(t)
	t.Run("against the real server", operatorAgainstTheRealServer)
	bed.Kubectl(t, "apply", "-f", operatorFile("operator.yaml"))
	waitDefinition(t)
	applyText(t, resourceText(t))
	waitTesseraReady(t)
	waitGPUs(t, "n1")
	pod := bed.Single("through-the-operator", 1, "--hold", "3600").Create(t)
	bed.WaitPhase(t, pod, "Running")

	t.Run("restores", operatorRestores)
	t.Run("killed", operatorKilled)
	t.Run("without a right", operatorWithoutARight)
	t.Run("throttled", operatorThrottled)
	t.Run("invalid", operatorInvalid)
	t.Run("an image that is missing", operatorWithAMissingImage)

	bed.Kubectl(t, "delete", "tessera", "tessera", "--timeout=180s")
	if text, err := bed.Shared.Kubectl(ctx, "-n", "tessera-system", "get", "daemonsets,serviceaccounts,roles", "-l", "app.kubernetes.io/part-of=tessera", "-o", "name"); err != nil || text != "" {
		t.Errorf("left after the deletion: %s %v", text, err)
	}
	if text := bed.Kubectl(t, "-n", "tessera-system", "get", "leases,endpointslices", "-o", "name"); strings.Contains(text, "/tessera-scheduler") {
		t.Errorf("left by the scheduler after the deletion: %s", text)
	}
	if text := bed.Kubectl(t, "get", "node", "n1", "-o", "jsonpath={.metadata.annotations}{.metadata.labels}{.status.conditions[*].type}"); strings.Contains(text, "tessera.dev/") || strings.Contains(text, "nvidia.com/gpu.present") || strings.Contains(text, "GPUReady") {
		t.Errorf("the node keeps what the agent has written: %s", text)
	}
	if text := bed.OnNode(t, 1, "/bin/sh", "-c", "ls /etc/containerd /etc/containerd/conf.d 2>/dev/null | grep tessera; grep -rl tessera-runtime /etc/containerd; true"); text != "" {
		t.Errorf("the engine's configuration keeps %s", text)
	}
	if text := bed.Kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"); text != "Running 0" {
		t.Errorf("after the deletion the pod is %s", text)
	}
}

// Runs the operator's tests that require a real API server; they are skipped without one. These tests create
// their own resource and remove Tessera's labels and annotations from the nodes, so no agent may run.
func operatorAgainstTheRealServer(t *testing.T) {
	cmd := exec.Command(filepath.Join(bed.Root, "build/release/tests/operator_loopback_test"), "--gtest_filter=*ApiServer*")
	cmd.Env = append(os.Environ(), "TESSERA_TEST_KUBECONFIG="+bed.Shared.Kubeconfig())
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "[  SKIPPED ]") || !bed.RanTests.Match(text) {
		t.Errorf("%v\n%s", err, text)
	}
}

func agentImage() string {
	text, _ := bed.Shared.Kubectl(ctx, "-n", "tessera-system", "get", "daemonset/tessera-agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	return text
}

func operatorRestores(t *testing.T) {
	want := agentImage()
	bed.Kubectl(t, "-n", "tessera-system", "set", "image", "daemonset/tessera-agent", "agent=example.com/other:1")
	bed.Kubectl(t, "delete", "clusterrole/tessera-agent")
	bed.Eventually(t, bed.PodTimeout, "edited and deleted objects come back", func() bool {
		_, err := bed.Shared.Kubectl(ctx, "get", "clusterrole/tessera-agent")
		return err == nil && agentImage() == want
	})
	waitTesseraReady(t)
}

func operatorKilled(t *testing.T) {
	want := agentImage()
	bed.Kubectl(t, "-n", "tessera-system", "delete", "pods", "-l", "app.kubernetes.io/name=tessera-operator", "--force", "--grace-period=0")
	bed.Kubectl(t, "-n", "tessera-system", "set", "image", "daemonset/tessera-agent", "agent=example.com/other:1")
	// The test deletes a role and not a service account, because running pods would keep the tokens of the
	// deleted account.
	bed.Kubectl(t, "delete", "clusterrole/tessera-view")
	bed.Eventually(t, bed.PodTimeout, "the next leader restores what was changed meanwhile", func() bool {
		_, err := bed.Shared.Kubectl(ctx, "get", "clusterrole/tessera-view")
		return err == nil && agentImage() == want
	})
	waitTesseraReady(t)
}

// operatorWithoutARight removes the operator's right to write cluster roles, and gives it back.
func operatorWithoutARight(t *testing.T) {
	var role map[string]any
	if err := json.Unmarshal([]byte(bed.Kubectl(t, "get", "clusterrole/tessera-operator", "-o", "json")), &role); err != nil {
		t.Fatal(err)
	}
	var rules []any
	for _, rule := range role["rules"].([]any) {
		text, _ := json.Marshal(rule)
		if !strings.Contains(string(text), `"escalate"`) {
			rules = append(rules, rule)
		}
	}
	patch, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		t.Fatal(err)
	}
	bed.Kubectl(t, "patch", "clusterrole/tessera-operator", "--type=merge", "-p", string(patch))
	bed.Kubectl(t, "delete", "clusterrole/tessera-view")
	bed.Eventually(t, bed.PodTimeout, "the condition names the missing right", func() bool {
		return tesseraCondition("Degraded", "reason") == "Forbidden" &&
			strings.Contains(tesseraCondition("Degraded", "message"), `clusterroles.rbac.authorization.k8s.io "tessera-view" is forbidden`)
	})
	bed.WaitStatusSays(t, "Forbidden: ", "tessera upgrade")
	if text, code := bed.TryTessera("upgrade"); code != 0 || !strings.Contains(text, "ClusterRole tessera-operator: rules") {
		t.Errorf("tessera upgrade ends with %d: %s", code, text)
	}
	waitTesseraReady(t)
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// oneSeat gives all changes of DaemonSets by the operator one seat: a level without shares serves one request at a
// time, and rejects the others with 429.
const oneSeat = `apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: one-seat}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: one-seat}
spec:
  priorityLevelConfiguration: {name: one-seat}
  matchingPrecedence: 2
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {name: tessera-operator, namespace: tessera-system}}]
    resourceRules: [{verbs: [create, update, patch], apiGroups: [apps], resources: [daemonsets], namespaces: ["*"]}]
`

// createAsOperator sends a DaemonSet as the operator, and returns the status.
func createAsOperator(ctx context.Context, client *http.Client, body io.Reader) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		bed.Shared.URL()+"/apis/apps/v1/namespaces/tessera-system/daemonsets", body)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Impersonate-User", "system:serviceaccount:tessera-system:tessera-operator")
	request.Header.Add("Impersonate-Group", "system:serviceaccounts")
	request.Header.Add("Impersonate-Group", "system:authenticated")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	return response.StatusCode, nil
}

// takeSeat keeps the seat until the test ends or the returned function is called: it sends a request whose body
// never comes. The server ends such a request after a minute.
func takeSeat(t *testing.T) (release func()) {
	t.Helper()
	client, err := bed.Shared.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 0
	held, release := context.WithCancel(ctx)
	t.Cleanup(release)
	go func() {
		for held.Err() == nil {
			body, never := io.Pipe()
			createAsOperator(held, client, body)
			never.Close()
			time.Sleep(10 * time.Millisecond)
		}
	}()
	bed.Eventually(t, bed.PodTimeout, "the server rejects changes of DaemonSets", func() bool {
		status, err := createAsOperator(ctx, client, strings.NewReader("{}"))
		return err == nil && status == http.StatusTooManyRequests
	})
	return release
}

// The API server rejects the operator's changes of DaemonSets. The status names this, and the operator goes on when
// the server accepts them again.
func operatorThrottled(t *testing.T) {
	want := agentImage()
	applyText(t, oneSeat)
	t.Cleanup(func() {
		bed.Kubectl(t, "delete", "--ignore-not-found", "flowschema/one-seat", "prioritylevelconfiguration/one-seat")
	})
	release := takeSeat(t)
	bed.Kubectl(t, "-n", "tessera-system", "set", "image", "daemonset/tessera-agent", "agent=example.com/other:1")
	bed.Eventually(t, bed.PodTimeout, "the condition says that the server throttles", func() bool {
		return tesseraCondition("Degraded", "reason") == "APIServerThrottles"
	})
	bed.WaitStatusSays(t, "APIServerThrottles: ", "flow schema")
	release()
	bed.Eventually(t, bed.PodTimeout, "the edited object comes back", func() bool { return agentImage() == want })
	waitTesseraReady(t)
}

// A condition names an error in the resource that the schema cannot check. The objects stay.
func operatorInvalid(t *testing.T) {
	if text, err := bed.Shared.Kubectl(ctx, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"sharing":{"memoryUnit":"XiB"}}}`); err == nil {
		t.Errorf("the schema accepts a unit that does not exist: %s", text)
	}
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"runtime":{"enabled":false}}}`)
	bed.Eventually(t, bed.PodTimeout, "the condition names the field", func() bool {
		return tesseraCondition("Degraded", "reason") == "InvalidSpec" &&
			strings.Contains(tesseraCondition("Degraded", "message"), "runtime.enabled=false")
	})
	bed.WaitStatusSays(t, "InvalidSpec: ", "fix: kubectl edit tessera tessera")
	if agentImage() == "" {
		t.Error("an invalid spec removed the agents")
	}
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"runtime":{"enabled":true}}}`)
	waitTesseraReady(t)
}

// The node cannot pull the agent's image. The pod with a GPU goes on, and so does the scheduler.
func operatorWithAMissingImage(t *testing.T) {
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"image":{"tag":"missing","pullPolicy":"Never"}}}`)
	bed.WaitStatusSays(t, "ErrImageNeverPull", "fix: give the node the image")
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"image":null}}`)
	waitTesseraReady(t)
	waitGPUs(t, "n1")
}

// TestTheOperatorOfTheEarlierReleaseIsUpgradedAndComesBack replaces the operator, and by its resource the agents and
// schedulers, while a pod has a GPU.
func TestTheOperatorOfTheEarlierReleaseIsUpgradedAndComesBack(t *testing.T) {
	before := bed.EarlierRelease(t)
	removeAtTheEnd(t)
	pod := bed.Single("through-operators", 1, "--hold", "3600")
	for round, release := range []bed.Release{before, bed.ThisRelease, before, bed.ThisRelease} {
		manifest, err := os.ReadFile(filepath.Join(release.Tree, "deploy/operator/operator.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		applyText(t, strings.ReplaceAll(string(manifest), "tessera.dev/operator:dev", "tessera.dev/operator:"+release.Tag))
		if round == 0 {
			waitDefinition(t)
			applyText(t, resourceText(t))
		}
		bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"image":{"tag":"`+release.Tag+`"}}}`)
		bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "deployment/tessera-operator", "--timeout=180s")
		bed.Eventually(t, bed.PodTimeout, "the agents are of the release "+release.Tag, func() bool {
			return agentImage() == "tessera.dev/agent:"+release.Tag && tesseraCondition("Ready", "status") == "True"
		})
		waitGPUs(t, "n1", "n2", "n3")
		if round == 0 {
			bed.WaitPhase(t, pod.Create(t), "Running")
		}
		bed.Untouched(t, "with the operator of the release "+release.Tag, pod.Name)
	}
}
