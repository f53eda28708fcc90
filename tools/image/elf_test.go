// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAProgramOfAnotherArchitectureIsRejected(t *testing.T) {
	b := New("x")
	b.Architecture = map[bool]string{true: "arm64", false: "amd64"}[b.Architecture == "amd64"]
	if err := b.AddELF("/bin/ls", "/bin/ls"); err == nil || !strings.Contains(err.Error(), "the image is for "+b.Architecture) {
		t.Errorf("%v", err)
	}
}

func TestLibrariesAreFoundBelowTheRoot(t *testing.T) {
	host := New("x")
	if err := host.AddELF("/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	// The root is the tree of this image, which has only the files that the program needs.
	b := New("x")
	b.Root = rootFS(t, host)
	var folder string
	for name := range host.entries {
		if strings.Contains(name, "libselinux.so") {
			folder = filepath.Dir(name)
		}
	}
	if err := os.MkdirAll(b.Root+"/etc/conf.d", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ld.so.conf": "include /etc/conf.d/*.conf\n", "conf.d/one.conf": folder + "\n"} {
		if err := os.WriteFile(filepath.Join(b.Root, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddELF("/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	for name := range host.entries {
		if strings.Contains(name, "libselinux.so") {
			if err := os.Remove(b.Root + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.entries = map[string]entry{}
	if err := b.AddELF("/bin/ls", "/bin/ls"); err == nil || !strings.Contains(err.Error(), "libselinux.so.1 is in none of") {
		t.Errorf("a library that only this host has: %v", err)
	}
}
