// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// The admission webhook and the policies of the chart, evaluated by the real API server.
func TestAdmissionAgainstTheRealServer(t *testing.T) {
	// One test checks the rules without a webhook, but this cluster has one deployed.
	runAdmissionTests(t, "*ApiServer*-*WithoutTheWebhook*")
}

func TestAdmissionWithoutTheWebhookAgainstTheRealServer(t *testing.T) {
	patch := func(change string) {
		for _, kind := range []string{"mutating", "validating"} {
			bed.Kubectl(t, "patch", kind+"webhookconfiguration", "tessera-webhook", "--type=json", "-p", change)
		}
	}
	// Excludes all namespaces from the deployed webhook.
	const selector = `"path":"/webhooks/0/namespaceSelector/matchLabels"`
	t.Cleanup(func() { patch(`[{"op":"remove",` + selector + `}]`) })
	patch(`[{"op":"add",` + selector + `,"value":{"tessera.test/webhook":"asked"}}]`)
	runAdmissionTests(t, "*ApiServer*WithoutTheWebhook*")
}

// runAdmissionTests runs the tests of admission_loopback_test that match the filter. They run on the control
// plane, because the API server must reach the webhook that they serve.
func runAdmissionTests(t *testing.T, filter string) {
	t.Helper()
	outside, err := os.ReadFile(bed.Shared.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	inside := regexp.MustCompile(`https://127\.0\.0\.1:\d+`).ReplaceAll(outside, []byte("https://10.0.0.1:443"))
	// The control plane shares /tmp.
	file, err := os.CreateTemp("/tmp", "e2e-kubeconfig-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file.Name())
	if _, err = file.Write(inside); err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := bed.Shared.Exec(ctx, 0, "env", "TESSERA_SOURCE_DIR="+bed.Root, "TESSERA_TEST_WEBHOOK_KUBECONFIG="+file.Name(),
		filepath.Join(bed.Root, "build/release/tests/admission_loopback_test"), "--gtest_filter="+filter)
	if err != nil || strings.Contains(text, "[  SKIPPED ]") || !bed.RanTests.MatchString(text) {
		t.Errorf("%v\n%s", err, text)
	}
}
