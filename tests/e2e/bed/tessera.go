// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TesseraCommand returns the command line "tessera ARGS" of an administrator.
func TesseraCommand(args ...string) *exec.Cmd {
	return exec.Command(Tool("tessera"), append(args, "--kubeconfig", Shared.Kubeconfig())...)
}

// TryTessera runs "tessera ARGS" and returns both outputs and the exit code.
func TryTessera(args ...string) (text string, code int) {
	command := TesseraCommand(args...)
	out, _ := command.CombinedOutput()
	return string(out), command.ProcessState.ExitCode()
}

// Tessera runs "tessera ARGS" and returns both outputs. Another exit code than 0 fails the test.
func Tessera(t *testing.T, args ...string) string {
	t.Helper()
	text, code := TryTessera(args...)
	if code != 0 {
		t.Fatalf("tessera %v ends with %d: %s", args, code, text)
	}
	return text
}

// WaitStatusSays waits until "tessera status" reports a problem with these texts: its cause and its fix.
func WaitStatusSays(t *testing.T, texts ...string) {
	t.Helper()
	Eventually(t, PodTimeout, fmt.Sprintf("tessera status says %q", texts), func() bool {
		text, code := TryTessera("status")
		return code == 1 && !slices.ContainsFunc(texts, func(want string) bool { return !strings.Contains(text, want) })
	})
}

// LineOf returns the line of a table that begins with a name.
func LineOf(text, name string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+" ") {
			return line
		}
	}
	return ""
}

// RanTests matches the output of a GoogleTest program in which at least one test passed. A filter that matches no
// test passes, too.
var RanTests = regexp.MustCompile(`\[  PASSED  \] [1-9]`)
