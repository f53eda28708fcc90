// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	cluster "tessera.dev/tests/cluster"
)

// serve runs a testpod of this kind on a node, behind a service with the same name and port 80. It returns the
// address of the service.
func serve(t *testing.T, c *cluster.Cluster, name, node, kind string) string {
	t.Helper()
	pod(t, c, name, node, kind)
	waitPhase(t, c, name, "Running")
	kubectl(t, c, "expose", "pod", name, "--port=80", "--target-port=8080")
	t.Cleanup(func() { c.Kubectl(context.Background(), "delete", "service", name) })
	return kubectl(t, c, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}")
}

func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	const limit = 2 * time.Minute
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		done, last := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %s", limit, what, last)
		}
	}
}

func TestPodsOfDifferentNodesReachEachOther(t *testing.T) {
	c := sharedCluster(t)
	pod(t, c, "server", "n1", "serve")
	waitPhase(t, c, "server", "Running")
	address := kubectl(t, c, "get", "pod", "server", "-o", "jsonpath={.status.podIP}")
	pod(t, c, "client", "n2", "get http://"+address+":8080/")
	waitPhase(t, c, "client", "Succeeded")
	if log := kubectl(t, c, "logs", "client"); log != "hello from server\n" {
		t.Errorf("the other node's pod got %q", log)
	}
}

func TestServiceIsReachedFromEveryPodAndMachine(t *testing.T) {
	c := sharedCluster(t)
	address := serve(t, c, "greeter", "n1", "serve")
	for i := range 3 {
		eventually(t, fmt.Sprintf("machine %d reaches the service", i), func() (bool, string) {
			text, err := c.Exec(t.Context(), i, c.Parts.Kubectl, "get", "--raw", "/", "--server=http://"+address)
			return text == "hello from greeter\n", fmt.Sprintf("%q, %v", text, err)
		})
	}
	for _, node := range []string{"n1", "n2"} {
		pod(t, c, "ask-"+node, node, "get http://"+address+"/")
		waitPhase(t, c, "ask-"+node, "Succeeded")
	}
}

func TestPortIsForwardedToAPodOfEveryNode(t *testing.T) {
	c := sharedCluster(t)
	for _, m := range c.Nodes {
		name := "forward-" + m.Name
		serve(t, c, name, m.Name, "serve")
		// A pod that runs does not always listen yet.
		eventually(t, "the pod on "+m.Name+" answers through a forwarded port", func() (bool, string) {
			text, err := getForwarded(t, c, "service/"+name)
			return text == "hello from "+name+"\n", fmt.Sprintf("%q, %v", text, err)
		})
	}
}

// getForwarded forwards a port to port 80 of the target for one request, and returns the answer.
func getForwarded(t *testing.T, c *cluster.Cluster, target string) (string, error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	forward := c.KubectlCommand(ctx, "port-forward", target, ":80")
	out, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer forward.Wait()
	defer stop()
	line, _ := bufio.NewReader(out).ReadString('\n')
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Get("http://" + regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line) + "/")
	if err != nil {
		return line, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func TestAPIServerCallsAWebhookBehindAService(t *testing.T) {
	c := sharedCluster(t)
	serve(t, c, "hook", "n2", "webhook hook.default.svc")
	var authority string
	eventually(t, "the webhook shows its certificate", func() (bool, string) {
		authority = kubectl(t, c, "logs", "hook")
		return strings.Contains(authority, "END CERTIFICATE"), authority
	})
	manifest := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: hook.tessera.test
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  objectSelector: {matchLabels: {hook: "true"}}
  clientConfig: {caBundle: %s, service: {name: hook, namespace: default, port: 80}}`,
		base64.StdEncoding.EncodeToString([]byte(authority)))
	if err := c.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Kubectl(context.Background(), "delete", "validatingwebhookconfiguration", "hook") })
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hooked", "labels": {"hook": "true"}}}`
	t.Cleanup(func() { c.Kubectl(context.Background(), "delete", "configmap", "hooked", "--ignore-not-found") })
	eventually(t, "the webhook refuses", func() (bool, string) {
		c.Kubectl(t.Context(), "delete", "configmap", "hooked", "--ignore-not-found")
		err := c.Apply(t.Context(), object)
		return err != nil && strings.Contains(err.Error(), "the webhook in the pod says no"), fmt.Sprint(err)
	})
}

func TestSchedulerAsksAnExtenderBehindAService(t *testing.T) {
	c := sharedCluster(t)
	address := serve(t, c, "extender", "n1", "extender")
	config := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}
extenders:
- urlPrefix: http://` + address + `
  filterVerb: filter
  nodeCacheCapable: true`
	if err := c.ConfigureScheduler(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.ConfigureScheduler(context.Background(), ""); err != nil {
			t.Error(err)
		}
	})
	pod(t, c, "unwanted", "", "hello")
	eventually(t, "the pod says why it waits", func() (bool, string) {
		why := kubectl(t, c, "get", "pod", "unwanted", "-o", "jsonpath={.status.conditions[0].message}")
		return strings.Contains(why, "the extender wants no pods on n2"), why
	})
	if err := c.ConfigureScheduler(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	waitPhase(t, c, "unwanted", "Succeeded")
}

func TestSchedulerKeepsItsConfigurationWhenANewOneIsWrong(t *testing.T) {
	c := sharedCluster(t)
	err := c.ConfigureScheduler(t.Context(), "kind: Nonsense")
	if err == nil || !strings.Contains(err.Error(), "Nonsense") || !strings.Contains(err.Error(), "kube-scheduler.log") {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
	pod(t, c, "still-scheduled", "", "hello")
	waitPhase(t, c, "still-scheduled", "Succeeded")
}
