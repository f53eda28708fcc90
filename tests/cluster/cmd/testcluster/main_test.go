// SPDX-License-Identifier: Apache-2.0
package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The quickstart must not reach a cluster that the caller's KUBECONFIG names.
func TestACommandGetsTheClustersVariablesInsteadOfTheCallers(t *testing.T) {
	if os.Getenv("BECOME") != "" {
		cmd := exec.Command("/usr/bin/env")
		cmd.Env = append(os.Environ(), "KUBECONFIG=of-the-cluster", "HTTPS_PROXY=")
		t.Fatal(become(cmd))
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", t.Name())
	cmd.Env = append(os.Environ(), "BECOME=1", "KUBECONFIG=of-the-caller", "HTTPS_PROXY=http://proxy")
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"KUBECONFIG=", "HTTPS_PROXY="} {
		if count := strings.Count("\n"+string(output), "\n"+name); count != 1 {
			t.Errorf("%s is set %d times", name, count)
		}
	}
	if !strings.Contains(string(output), "\nKUBECONFIG=of-the-cluster\n") {
		t.Errorf("the command got: %s", output)
	}
}
