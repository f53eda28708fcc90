// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// schedulerSetup is the last configuration of kube-scheduler: "wired" with tessera-scheduler, "plain" without it,
// or "" if it is unknown. It is unknown when the tests start, because an earlier run with -keep may have left the
// cluster. A test leaves the configuration to the next test, because a change restarts kube-scheduler, which takes
// seconds.
var schedulerSetup string

// WireScheduler waits until a replica of tessera-scheduler leads, and then gives kube-scheduler the sample
// configuration with the address of tessera-scheduler's Service. This needs a cluster with cluster.Options.Services.
func WireScheduler(t *testing.T) {
	t.Helper()
	if schedulerSetup == "wired" {
		return
	}
	if err := wireScheduler(); err != nil {
		t.Fatal(err)
	}
	schedulerSetup = "wired"
}

func wireScheduler() error {
	for _, wait := range [][]string{
		{"rollout", "status", "deployment/tessera-scheduler", "--timeout=180s"},
		{"wait", "endpointslice/tessera-scheduler", "--for=jsonpath={.endpoints[0].conditions.ready}=true", "--timeout=180s"},
		{"wait", "secret/tessera-scheduler-client", `--for=jsonpath={.data.tls\.key}`, "--timeout=180s"},
	} {
		if _, err := Shared.Kubectl(ctx, append([]string{"-n", "tessera-system"}, wait...)...); err != nil {
			return err
		}
	}
	if err := installClientCertificate(); err != nil {
		return err
	}
	address, err := Shared.Kubectl(ctx, "-n", "tessera-system", "get", "service", "tessera-scheduler",
		"-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		return err
	}
	path := filepath.Join(Root, "deploy/samples/kube-scheduler.yaml")
	config, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(config), "CLUSTER_IP", address)
	if text == string(config) {
		return fmt.Errorf("%s has no CLUSTER_IP to fill in", path)
	}
	return Shared.ConfigureScheduler(ctx, text)
}

// ClientFiles is the folder on the control plane in which the sample configuration expects the files of the
// Secret tessera-scheduler-client.
const ClientFiles = "/etc/kubernetes/tessera"

func installClientCertificate() error {
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		text, err := Shared.Kubectl(ctx, "-n", "tessera-system", "get", "secret", "tessera-scheduler-client",
			"-o", fmt.Sprintf("go-template={{index .data %q | base64decode}}", name))
		if err != nil {
			return err
		}
		command, err := Shared.NodeCommand(ctx, 0, "/bin/sh", "-c", `umask 077 && mkdir -p "$1" && cat >"$1/$2"`, "sh", ClientFiles, name)
		if err != nil {
			return err
		}
		command.Stdin = strings.NewReader(text)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s/%s of the control plane: %w: %s", ClientFiles, name, err, output)
		}
	}
	return nil
}

// UnwireScheduler makes kube-scheduler schedule without tessera-scheduler.
func UnwireScheduler(t *testing.T) {
	t.Helper()
	if schedulerSetup == "plain" {
		return
	}
	if err := Shared.ConfigureScheduler(ctx, ""); err != nil {
		t.Fatal(err)
	}
	schedulerSetup = "plain"
}

// StartAPIServer starts the API server that a test stopped, and returns when it answers.
func StartAPIServer(t *testing.T) {
	t.Helper()
	if err := Shared.Start(ctx, "kube-apiserver", 0); err != nil {
		t.Fatal(err)
	}
	Eventually(t, PodTimeout, "the API server answers", func() bool {
		return Call(http.MethodGet, "/readyz", nil, nil) == nil
	})
}
