// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// forget is a script for the control plane. It writes an unused key through etcd's gateway, so that
// etcd has a new version, and compacts all older versions.
const forget = `put=$(curl -sSf -d "{\"key\":\"dGVzc2VyYQ==\"}" http://127.0.0.1:2379/v3/kv/put)
version=$(echo "$put" | sed -n "s/.*\"revision\":\"\([0-9]*\)\".*/\1/p")
curl -sSf -d "{\"revision\":\"$version\"}" http://127.0.0.1:2379/v3/kv/compaction`

// Runs the API client's tests that require a real API server; they are skipped without one.
func TestAPIClientAgainstTheRealServer(t *testing.T) {
	cmd := exec.Command(filepath.Join(bed.Root, "build/release/tests/kube_loopback_test"), "--gtest_filter=*ApiServer*")
	// The program also uses testcluster to let etcd forget all versions but the newest, and to restart the
	// API server.
	testcluster := filepath.Join(bed.Root, "build/bin/testcluster") + " "
	restart := "set -e\n" +
		testcluster + "exec --dir " + bed.Shared.Dir + " --node 0 -- sh -c '" + forget + "'\n" +
		testcluster + "restart kube-apiserver --node 0 --signal KILL --dir " + bed.Shared.Dir
	cmd.Env = append(os.Environ(), "TESSERA_TEST_KUBECONFIG="+bed.Shared.Kubeconfig(), "TESSERA_TEST_RESTART="+restart)
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "[  SKIPPED ]") || !bed.RanTests.Match(text) {
		t.Errorf("%v\n%s", err, text)
	}
}
