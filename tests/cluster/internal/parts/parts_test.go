// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fixture is a part of one C file in a source folder and a cache of its own.
type fixture struct {
	part          part
	source, cache string
	log           bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{source: t.TempDir(), cache: t.TempDir()}
	f.part = part{
		name: "thing", expect: "seconds", sources: []string{"*.c"}, dir: ".",
		argv: func(out string) []string { return []string{"gcc", "-o", out + "/thing", "thing.c"} },
	}
	f.write(t, "int main(void) { return 0; }\n")
	return f
}

func (f *fixture) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.source, "thing.c"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) get(t *testing.T) (string, error) {
	f.log.Reset()
	return f.part.get(t.Context(), f.source, f.cache, &f.log)
}

func TestPartIsBuiltOnceAndFoundAgain(t *testing.T) {
	f := newFixture(t)
	first, err := f.get(t)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(first, "thing")); err != nil || !strings.Contains(f.log.String(), "built in") {
		t.Errorf("%v, log %q", err, f.log.String())
	}
	if again, err := f.get(t); err != nil || again != first || f.log.Len() > 0 {
		t.Errorf("again: %s %v, log %q", again, err, f.log.String())
	}
}

func TestChangedSourceMakesAnotherPart(t *testing.T) {
	f := newFixture(t)
	first, err := f.get(t)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "int main(void) { return 1; }\n")
	if second, err := f.get(t); err != nil || second == first {
		t.Errorf("%s %v", second, err)
	}
}

func TestVersionThatWasNotUsedForLongIsRemoved(t *testing.T) {
	f := newFixture(t)
	first, err := f.get(t)
	if err != nil {
		t.Fatal(err)
	}
	longAgo := time.Now().Add(-2 * keepUnused)
	if err := os.Chtimes(first, longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
	f.write(t, "int main(void) { return 1; }\n")
	if _, err := f.get(t); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first); err == nil {
		t.Errorf("%s still exists", first)
	}
}

func TestVersionThatARunningProcessExecutesIsKept(t *testing.T) {
	f := newFixture(t)
	f.write(t, "#include <unistd.h>\nint main(void) { return pause(); }\n")
	first, err := f.get(t)
	if err != nil {
		t.Fatal(err)
	}
	// The process runs a file of an old part, like a cluster that was started long ago.
	process := exec.Command(filepath.Join(first, "thing"))
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		process.Process.Kill()
		process.Wait()
	})
	defer end()
	longAgo := time.Now().Add(-2 * keepUnused)
	for _, text := range []string{"int main(void) { return 1; }\n", "int main(void) { return 2; }\n"} {
		if err := os.Chtimes(first, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
		f.write(t, text)
		if _, err := f.get(t); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(first, "thing"))
		if kept := err == nil; kept != strings.Contains(text, "1") {
			t.Errorf("%q: kept %v", text, kept)
		}
		end()
	}
}

func TestDeletedPartIsBuiltAgain(t *testing.T) {
	f := newFixture(t)
	first, err := f.get(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	if second, err := f.get(t); err != nil || second != first {
		t.Errorf("%s %v", second, err)
	}
}

func TestFailedBuildShowsTheCompilersErrorAndLeavesNothing(t *testing.T) {
	f := newFixture(t)
	f.write(t, "int main(void) { return nonsense; }\n")
	if _, err := f.get(t); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("error: %v", err)
	}
	entries, _ := filepath.Glob(filepath.Join(f.cache, "*thing-*"))
	if len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
}

func TestReportedKubernetesVersionIsTheOneThatIsBuilt(t *testing.T) {
	source, err := sourceDir()
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(source, "kubernetes", "go.mod"))
	if err != nil || !strings.Contains(string(module), "\tk8s.io/kubernetes "+KubernetesVersion+"\n") {
		t.Errorf("kubernetes/go.mod does not require %s: %v", KubernetesVersion, err)
	}
}
