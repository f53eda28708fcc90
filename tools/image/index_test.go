// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// writeImages writes an image for each architecture with a file that names it, and returns the archives.
func writeImages(t *testing.T, architectures ...string) []string {
	t.Helper()
	var archives []string
	for _, arch := range architectures {
		b := New("tessera.test/index:1")
		b.Architecture, b.Config.Entrypoint = arch, []string{"/" + arch}
		if err := b.AddBytes("/"+arch, 0o755, []byte(arch)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := b.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		archives = append(archives, file)
	}
	return archives
}

func writeIndex(t *testing.T, archives ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "index.tar")
	if err := WriteIndexFile(file, archives); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestAnIndexLeadsToTheFilesOfEachArchitecture(t *testing.T) {
	_, files := unpack(t, read(t, writeIndex(t, writeImages(t, "arm64", "amd64")...)))
	blob := func(d descriptor) []byte {
		content, found := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if !found || len(content) != d.Size || "sha256:"+digest(content) != d.Digest {
			t.Fatalf("%+v has %d bytes", d, len(content))
		}
		return content
	}
	var index, image struct{ Manifests []descriptor }
	parse := func(content []byte, value any) {
		if err := json.Unmarshal(content, value); err != nil {
			t.Fatalf("%v: %s", err, content)
		}
	}
	parse(files["index.json"], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "tessera.test/index:1" {
		t.Fatalf("index.json: %+v", index)
	}
	parse(blob(index.Manifests[0]), &image)
	for i, arch := range []string{"amd64", "arm64"} {
		if image.Manifests[i].Platform.Architecture != arch {
			t.Errorf("manifest %d is for %+v", i, image.Manifests[i].Platform)
		}
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		parse(blob(image.Manifests[i]), &manifest)
		var config struct{ Architecture string }
		parse(blob(manifest.Config), &config)
		_, contents := unpack(t, blob(manifest.Layers[0]))
		if config.Architecture != arch || string(contents[arch]) != arch {
			t.Errorf("%s: configuration %+v, files %q", arch, config, contents)
		}
	}
}

func TestTheOrderOfArchitecturesDoesNotChangeAnIndex(t *testing.T) {
	archives := writeImages(t, "arm64", "amd64")
	if !bytes.Equal(read(t, writeIndex(t, archives[0], archives[1])), read(t, writeIndex(t, archives[1], archives[0]))) {
		t.Error("the archives differ")
	}
}

func TestAnIndexHasOneImageForEachArchitecture(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.tar")
	if err := New("tessera.test/other:1").WriteFile(other); err != nil {
		t.Fatal(err)
	}
	for want, archives := range map[string][]string{
		"two archives are for arm64":            writeImages(t, "arm64", "arm64"),
		`its tags are ["tessera.test/other:1"]`: append(writeImages(t, "arm64"), other),
	} {
		err := WriteIndexFile(filepath.Join(t.TempDir(), "index.tar"), archives)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

func TestAnArchiveInAnIndexHasOneImage(t *testing.T) {
	for manifest, want := range map[string]string{
		`[{}, {}]`: "manifest.json names 2 images, want 1: make the archive with make-image",
		`{`:        "manifest.json: unexpected end of JSON input: make the archive with make-image",
	} {
		var archive bytes.Buffer
		out := tar.NewWriter(&archive)
		if err := errors.Join(writeEntry(out, "manifest.json", entry{mode: 0o644, content: []byte(manifest)}), out.Close()); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		err := WriteIndexFile(filepath.Join(t.TempDir(), "index.tar"), []string{file})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

func TestPodmanChoosesTheArchitectureOfThisMachine(t *testing.T) {
	if _, err := exec.LookPath("podman"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs podman and root")
	}
	file := writeIndex(t, writeImages(t, "arm64", "amd64")...)
	folder, err := os.MkdirTemp("", "podman") // podman rejects a long path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	podman := func(args ...string) string {
		command := exec.Command("podman", append([]string{"--root", folder + "/root", "--runroot", folder + "/run", "--storage-driver", "vfs"}, args...)...)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("podman %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	podman("load", "--quiet", "--input", file)
	want := New().Architecture
	if got := podman("image", "inspect", "--format", "{{.Architecture}} {{.Config.Entrypoint}}", "tessera.test/index:1"); got != want+" [/"+want+"]\n" {
		t.Errorf("podman chose %q", got)
	}
}
