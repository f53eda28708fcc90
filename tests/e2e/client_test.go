// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// Through etcd's gateway, inside the control plane's namespace: a key of nobody's makes a version,
// and what is older is compacted.
const forget = `put=$(curl -sSf -d "{\"key\":\"dGVzc2VyYQ==\"}" http://127.0.0.1:2379/v3/kv/put)
version=$(echo "$put" | sed -n "s/.*\"revision\":\"\([0-9]*\)\".*/\1/p")
curl -sSf -d "{\"revision\":\"$version\"}" http://127.0.0.1:2379/v3/kv/compaction`

// ranTests checks that tests ran, because a filter that matches no test passes, too.
var ranTests = regexp.MustCompile(`\[  PASSED  \] [1-9]`)

// Runs the API client's tests that require a real API server; they are skipped without one.
func TestAPIClientAgainstTheRealServer(t *testing.T) {
	cmd := exec.Command(filepath.Join(bed.Root, "build/release/tests/kube_loopback_test"), "--gtest_filter=*ApiServer*")
	// It also kills the API server, as a person would with testcluster, after etcd has forgotten all
	// versions but the newest.
	testcluster := filepath.Join(bed.Root, "build/bin/testcluster") + " "
	restart := "set -e\n" +
		testcluster + "exec --dir " + bed.Shared.Dir + " --node 0 -- sh -c '" + forget + "'\n" +
		testcluster + "restart kube-apiserver --node 0 --signal KILL --dir " + bed.Shared.Dir
	cmd.Env = append(os.Environ(), "TESSERA_TEST_KUBECONFIG="+bed.Shared.Kubeconfig(), "TESSERA_TEST_RESTART="+restart)
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "[  SKIPPED ]") || !ranTests.Match(text) {
		t.Errorf("%v\n%s", err, text)
	}
}
