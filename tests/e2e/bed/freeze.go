// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"sync"
	"testing"
)

// Freeze pauses a component of node i (0 for the control plane) in the middle of its work, as on a machine that
// has no memory left. The component goes on when the returned function is called or the test ends. Until then,
// requests to the component wait in its sockets.
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
