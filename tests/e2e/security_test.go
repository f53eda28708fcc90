// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// waitingReason returns the reason of a waiting container, as kubectl shows it.
func waitingReason(t *testing.T, pod string) string {
	t.Helper()
	return bed.Kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].state}")
}

func TestATokenOfAnotherPodIsRefused(t *testing.T) {
	owner := bed.Pod{Name: "owner", Containers: []bed.Container{{Name: "main", Image: "probe", GPUs: 1, Args: []string{"--hold=600s"}}}}.Create(t)
	bed.WaitPhase(t, owner, "Running")
	var token string
	bed.Eventually(t, bed.PodTimeout, "the probe's report", func() bool {
		var report struct{ Environment map[string]string }
		if json.Unmarshal([]byte(bed.Logs(t, owner)), &report) != nil {
			return false
		}
		token = report.Environment["TESSERA_GRANT_NVIDIA_COM_GPU"]
		return true
	})
	if token == "" {
		t.Fatal("the owner's container shows no token, so there is none to replay")
	}
	for name, value := range map[string]string{
		"replayed": token,
		"forged":   otherMAC(token),
		"garbage":  "v1:" + strings.Repeat("A", 100),
	} {
		t.Run(name, func(t *testing.T) {
			thief := bed.Pod{Name: "thief-" + name, Containers: []bed.Container{{Name: "main", Image: "probe",
				Env: map[string]string{"TESSERA_GRANT_NVIDIA_COM_GPU": value}}}}.Create(t)
			bed.Eventually(t, bed.PodTimeout, "a refusal that names the token", func() bool {
				reason := waitingReason(t, thief)
				return strings.Contains(reason, "token") || strings.Contains(reason, "TESSERA_GRANT_NVIDIA_COM_GPU")
			})
			if got := bed.Phase(t, thief); got == "Running" || got == "Succeeded" {
				t.Errorf("the thief is %s", got)
			}
			if got := bed.Phase(t, owner); got != "Running" {
				t.Errorf("the owner is %s", got)
			}
		})
	}
}

// otherMAC returns the token with another first digit in its signature.
func otherMAC(token string) string {
	parts := strings.SplitN(token, ":", 4)
	if len(parts) != 4 || parts[2] == "" {
		return token + "x"
	}
	digit := "0"
	if parts[2][0] == '0' {
		digit = "1"
	}
	parts[2] = digit + parts[2][1:]
	return strings.Join(parts, ":")
}

// agentToken returns a token of the agent's pod, which an attacker with the node's disk could have.
func agentToken(t *testing.T) string {
	t.Helper()
	pod := bed.Kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name=tessera-agent", "-o", "jsonpath={.items[0].metadata.name}")
	uid := bed.Kubectl(t, "-n", "tessera-system", "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	account := bed.Kubectl(t, "-n", "tessera-system", "get", "pod", pod, "-o", "jsonpath={.spec.serviceAccountName}")
	return bed.Kubectl(t, "-n", "tessera-system", "create", "token", account, "--bound-object-kind=Pod",
		"--bound-object-name="+pod, "--bound-object-uid="+uid)
}

// asAgent runs kubectl with such a token.
func asAgent(t *testing.T, token string, args ...string) (string, error) {
	t.Helper()
	server := bed.Kubectl(t, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	return bed.Shared.Kubectl(ctx, append([]string{"--kubeconfig=/dev/null", "--server=" + server, "--insecure-skip-tls-verify", "--token=" + token}, args...)...)
}

// sendAsAgent sends a patch of a status or an Event directly, because kubectl would first read the object, which the agent may not.
func sendAsAgent(t *testing.T, token, method, path, contentType, body string) error {
	t.Helper()
	request, err := http.NewRequest(method, bed.Shared.URL()+path+"?dryRun=All", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", contentType)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode > 299 {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

func TestTheAgentMayChangeOnlyItsOwnNodeAndOnlyNamesOfTessera(t *testing.T) {
	other := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"other"}}`
	if err := bed.Shared.Apply(ctx, other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bed.Kubectl(t, "delete", "node", "other") })

	token := agentToken(t)
	label := func(name, patch string) error {
		_, err := asAgent(t, token, "patch", "node", name, "--type=merge", "-p", patch)
		return err
	}
	if err := label(node, `{"metadata":{"annotations":{"tessera.dev/test":"x"}}}`); err != nil {
		t.Errorf("the agent could not change its own node: %v", err)
	}
	if err := label(node, `{"metadata":{"annotations":{"tessera.dev/test":null}}}`); err != nil {
		t.Errorf("the agent could not change its own node: %v", err)
	}
	status := func(name, patch string) error {
		return sendAsAgent(t, token, "PATCH", "/api/v1/nodes/"+name+"/status", "application/strategic-merge-patch+json", patch)
	}
	ours := `{"status":{"conditions":[{"type":"GPUReady","status":"Unknown","reason":"Test","message":"x"}]}}`
	if err := status(node, ours); err != nil {
		t.Errorf("the agent could not change the condition of its own node: %v", err)
	}
	before := taintKeys(t)
	setTaints(t, startupTaint, "example.com/mine")
	t.Cleanup(func() { setTaints(t, before...) })
	if err := label(node, `{"spec":{"taints":[{"key":"example.com/mine","effect":"NoSchedule"}]}}`); err != nil {
		// The agent may have changed the object first.
		t.Errorf("the agent could not remove the startup taint: %v", err)
	}
	for what, err := range map[string]error{
		"another node":          label("other", `{"metadata":{"annotations":{"tessera.dev/test":"x"}}}`),
		"another node's status": status("other", ours),
		"a foreign label":       label(node, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"a foreign annotation":  label(node, `{"metadata":{"annotations":{"example.com/x":"y"}}}`),
		"spec":                  label(node, `{"spec":{"unschedulable":true}}`),
		"taints":                label(node, `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`),
		"a foreign taint":       label(node, `{"spec":{"taints":null}}`),
		"a taint's effect":      label(node, `{"spec":{"taints":[{"key":"example.com/mine","effect":"NoExecute"}]}}`),
		"a new startup taint": label(node, `{"spec":{"taints":[{"key":"example.com/mine","effect":"NoSchedule"},`+
			`{"key":"tessera.dev/not-ready","effect":"NoExecute"}]}}`),
		"a foreign label through status": status(node,
			`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"the condition Ready":    status(node, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`),
		"a new condition":        status(node, `{"status":{"conditions":[{"type":"X","status":"True"}]}}`),
		"a removed condition":    status(node, `{"status":{"conditions":[{"$patch":"delete","type":"Ready"}]}}`),
		"capacity":               status(node, `{"status":{"capacity":{"example.com/x":"1"}}}`),
		"the node's addresses":   status(node, `{"status":{"addresses":[{"type":"InternalIP","address":"10.9.9.9"}]}}`),
		"the kubelet's endpoint": status(node, `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}}}`),
	} {
		if err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("the agent could change %s (%v)", what, err)
		}
	}
	if _, err := asAgent(t, token, "get", "secrets", "-A"); err == nil {
		t.Error("the agent may read secrets")
	}
	if _, err := asAgent(t, token, "delete", "node", node); err == nil {
		t.Error("the agent may delete its node")
	}
}

func TestTheAgentMakesEventsAboutItsOwnNodeOnly(t *testing.T) {
	token := agentToken(t)
	create := func(name, namespace, kind, about, component string, changes ...string) error {
		reason, instance := "Test", node
		if len(changes) == 2 {
			reason, instance = changes[0], changes[1]
		}
		involved := bed.Object{"apiVersion": "v1", "kind": kind, "name": about}
		if kind == "Pod" {
			involved["namespace"] = namespace
		}
		text, err := json.Marshal(bed.Object{"apiVersion": "v1", "kind": "Event",
			"metadata":       bed.Object{"name": name, "namespace": namespace},
			"involvedObject": involved,
			"reason":         reason, "message": "x", "type": "Normal", "source": bed.Object{"component": component},
			"reportingComponent": component, "reportingInstance": instance})
		if err != nil {
			t.Fatal(err)
		}
		return sendAsAgent(t, token, "POST", "/api/v1/namespaces/"+namespace+"/events", "application/json", string(text))
	}
	if err := create("own", "default", "Node", node, "tessera-agent"); err != nil {
		t.Errorf("the agent could not make an Event about its own node: %v", err)
	}
	if err := create("limit", "default", "Pod", "a-pod", "tessera-agent", "CUDAOutOfMemory", node); err != nil {
		t.Errorf("the agent could not make an Event about the limit of a pod: %v", err)
	}
	for what, err := range map[string]error{
		"about another node":    create("other", "default", "Node", "other", "tessera-agent"),
		"about a pod":           create("pod", "default", "Pod", node, "tessera-agent"),
		"as another node":       create("as", "default", "Pod", "a-pod", "tessera-agent", "CUDAOutOfMemory", "other"),
		"in the kubelet's name": create("kubelet", "default", "Node", node, "kubelet"),
		"in another namespace":  create("system", "kube-system", "Node", node, "tessera-agent"),
	} {
		// The API server itself refuses an Event of a node in a namespace other than "default", before it asks the policy.
		refused := err != nil && (strings.Contains(err.Error(), "forbidden") || strings.Contains(err.Error(), "does not match event.namespace"))
		if !refused {
			t.Errorf("the agent could make an Event %s (%v)", what, err)
		}
	}
	if _, err := asAgent(t, token, "get", "events", "-n", "default"); err == nil {
		t.Error("the agent may read events")
	}
}
