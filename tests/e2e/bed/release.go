// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Release is a release that a test can install: its source tree, and the tag of its images.
type Release struct{ Tree, Tag string }

// ThisRelease is made of this tree. The nodes have its images.
var ThisRelease = Release{Root, "dev"}

var earlier = flag.String("from", "HEAD^",
	"the earlier release in the tests of upgrades (-long): a commit, which is built, or the folder of a built tree")

// UpgradeChart installs the release with its chart, or upgrades or downgrades to it, and waits for its pods.
func (r Release) UpgradeChart(t *testing.T) {
	t.Helper()
	if err := r.applyChart(nil); err != nil {
		t.Fatal(err)
	}
}

// EarlierRelease gives the nodes the images of an earlier release. It skips the test without -long, because building
// the programs takes minutes.
func EarlierRelease(t *testing.T) Release {
	t.Helper()
	if !*Long {
		t.Skip("the test builds the programs of an earlier commit: run it with -args -long, and -from COMMIT for another one")
	}
	r := Release{*earlier, "earlier"}
	if _, err := os.Stat(filepath.Join(r.Tree, "build/release/bin")); err != nil {
		r.Tree = buildEarlier(t)
	}
	images := t.TempDir()
	run(t, r.Tree, "scripts/images", images, r.Tag)
	// The pods run the program that the other tests run.
	if err := os.Remove(filepath.Join(images, "vectoradd.tar")); err != nil {
		t.Fatal(err)
	}
	if err := loadArchives(images); err != nil {
		t.Fatal(err)
	}
	return r
}

// buildEarlier builds the programs of the earlier commit, and returns its source tree.
func buildEarlier(t *testing.T) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	run(t, Root, "git", "worktree", "add", "--detach", tree, *earlier)
	t.Cleanup(func() { run(t, Root, "git", "worktree", "remove", "--force", tree) })
	run(t, tree, "bash", "-c", "source scripts/common.sh; build release tessera-agent tessera-runtime tessera-scheduler "+
		"tessera-operator tessera-console vectoradd limiter_libraries")
	return tree
}

// run runs a program in a folder.
func run(t *testing.T, folder, program string, args ...string) {
	t.Helper()
	command := exec.Command(program, args...)
	command.Dir = folder
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, text)
	}
}

// Untouched fails the test if one of these pods does not run, or if its container was started again.
func Untouched(t *testing.T, when string, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		if status := ReadPod(t, pod).Status; status.Phase != "Running" || status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s %s was stopped or restarted: %+v", when, pod, status)
		}
	}
}
