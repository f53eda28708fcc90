// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"sync"
	"testing"
)

// Freeze stops a component of node i (0 for the control plane) in the middle of what it does, as a machine
// without memory would, until the returned function or the test's end lets it go on. What others send it
// meanwhile waits in its sockets.
func Freeze(t *testing.T, component string, i int) (goOn func()) {
	t.Helper()
	machine := Shared.Head.Name
	if i > 0 {
		machine = Shared.Nodes[i-1].Name
	}
	all, err := Shared.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range all {
		if each.Name != component || each.Machine != machine || each.PID == 0 {
			continue
		}
		pid := fmt.Sprint(each.PID)
		OnNode(t, i, "kill", "-STOP", pid)
		goOn = sync.OnceFunc(func() {
			if _, err := Shared.Exec(ctx, i, "kill", "-CONT", pid); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(goOn)
		return goOn
	}
	t.Fatalf("no %s runs on %s", component, machine)
	return nil
}
