// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The API client's tests that want a real API server; without one they skip where the others run.
func TestAPIClientAgainstTheRealServer(t *testing.T) {
	cmd := exec.Command(filepath.Join(root, "build/release/tests/kube_loopback_test"), "--gtest_filter=ApiServerTest.*")
	cmd.Env = append(os.Environ(), "TESSERA_TEST_KUBECONFIG="+shared.Kubeconfig())
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "[  SKIPPED ]") || !strings.Contains(string(text), "[  PASSED  ]") {
		t.Errorf("%v\n%s", err, text)
	}
}
