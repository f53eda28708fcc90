// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// waitingReason is what kubectl shows of a container that does not start.
func waitingReason(t *testing.T, pod string) string {
	t.Helper()
	return kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].state}")
}

func TestATokenOfAnotherPodIsRefused(t *testing.T) {
	owner := podSpec{Name: "owner", Containers: []container{{Name: "main", Image: "probe", GPUs: 1, Args: []string{"--hold=600s"}}}}.create(t)
	waitPhase(t, owner, "Running")
	var token string
	eventually(t, podTimeout, "the probe's report", func() bool {
		var report struct{ Environment map[string]string }
		if json.Unmarshal([]byte(logs(t, owner)), &report) != nil {
			return false
		}
		token = report.Environment["TESSERA_GRANT_NVIDIA_COM_GPU"]
		return true
	})
	if token == "" {
		t.Skip("tokens are not shown to containers")
	}
	for name, value := range map[string]string{
		"replayed": token,
		"forged":   otherMAC(token),
		"garbage":  "v1:" + strings.Repeat("A", 100),
	} {
		t.Run(name, func(t *testing.T) {
			thief := podSpec{Name: "thief-" + name, Containers: []container{{Name: "main", Image: "probe",
				Env: map[string]string{"TESSERA_GRANT_NVIDIA_COM_GPU": value}}}}.create(t)
			eventually(t, podTimeout, "a refusal that names the token", func() bool {
				reason := waitingReason(t, thief)
				return strings.Contains(reason, "token") || strings.Contains(reason, "TESSERA_GRANT_NVIDIA_COM_GPU")
			})
			if got := phase(t, thief); got == "Running" || got == "Succeeded" {
				t.Errorf("the thief is %s", got)
			}
			if got := phase(t, owner); got != "Running" {
				t.Errorf("the owner is %s", got)
			}
		})
	}
}

// otherMAC is the token with the first digit of its signature changed.
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

// asAgent runs kubectl with the token of the agent's own pod, as a thief of the node's disk could.
func asAgent(t *testing.T, args ...string) (string, error) {
	t.Helper()
	pod := kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name=tessera-agent", "-o", "jsonpath={.items[0].metadata.name}")
	uid := kubectl(t, "-n", "tessera-system", "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	account := kubectl(t, "-n", "tessera-system", "get", "pod", pod, "-o", "jsonpath={.spec.serviceAccountName}")
	token := kubectl(t, "-n", "tessera-system", "create", "token", account, "--bound-object-kind=Pod",
		"--bound-object-name="+pod, "--bound-object-uid="+uid)
	server := kubectl(t, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")
	return shared.Kubectl(ctx, append([]string{"--kubeconfig=/dev/null", "--server=" + server, "--insecure-skip-tls-verify", "--token=" + token}, args...)...)
}

func TestTheAgentMayChangeOnlyItsOwnNodeAndOnlyOurNames(t *testing.T) {
	other := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"other"}}`
	if err := shared.Apply(ctx, other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kubectl(t, "delete", "node", "other") })

	label := func(name, patch string) error {
		_, err := asAgent(t, "patch", "node", name, "--type=merge", "-p", patch)
		return err
	}
	if err := label(node, `{"metadata":{"annotations":{"tessera.dev/test":"x"}}}`); err != nil {
		t.Errorf("its own node: %v", err)
	}
	if err := label(node, `{"metadata":{"annotations":{"tessera.dev/test":null}}}`); err != nil {
		t.Errorf("its own node: %v", err)
	}
	for what, err := range map[string]error{
		"another node":         label("other", `{"metadata":{"annotations":{"tessera.dev/test":"x"}}}`),
		"a foreign label":      label(node, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"a foreign annotation": label(node, `{"metadata":{"annotations":{"example.com/x":"y"}}}`),
		"spec":                 label(node, `{"spec":{"unschedulable":true}}`),
		"taints":               label(node, `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`),
	} {
		if err == nil {
			t.Errorf("the agent could change %s", what)
		}
	}
	if _, err := asAgent(t, "get", "secrets", "-A"); err == nil {
		t.Error("the agent may read secrets")
	}
	if _, err := asAgent(t, "delete", "node", node); err == nil {
		t.Error("the agent may delete its node")
	}
}
