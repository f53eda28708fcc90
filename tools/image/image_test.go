// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sample builds an image with everything that a builder can add. The caller chooses the order of the additions.
func sample(t *testing.T, source string, backwards bool) *Builder {
	t.Helper()
	b := New("tessera.test/sample:1")
	b.Config = Config{User: "1000:1000", Env: []string{"A=b"}, Entrypoint: []string{"/bin/x"}, WorkingDir: "/data"}
	steps := []func() error{
		func() error { return b.AddFile(source, "/tree", 0) },
		func() error { return b.AddBytes("/bin/x", 0o755, []byte("program")) },
		func() error { return b.AddDir("/data", 0o700) },
		func() error { return b.AddSymlink("x", "/bin/y") },
	}
	for i := range steps {
		if backwards {
			i = len(steps) - 1 - i
		}
		if err := steps[i](); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func tree(t *testing.T, when time.Time) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"script": 0o755, "sub/text": 0o640} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/text", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func archive(t *testing.T, b *Builder) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpack reads a tar into its headers and contents by name.
func unpack(t *testing.T, content []byte) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	for reader := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name] = header
		if contents[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func layerOf(t *testing.T, content []byte) []byte {
	t.Helper()
	_, files := unpack(t, content)
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	return files[manifest[0].Layers[0]]
}

func TestTimesAndOrderOfInputsDoNotChangeTheBytes(t *testing.T) {
	one := archive(t, sample(t, tree(t, time.Unix(1e9, 0)), false))
	two := archive(t, sample(t, tree(t, time.Unix(1e9+5, 0)), true))
	if !bytes.Equal(one, two) {
		t.Error("the archives differ")
	}
}

func TestArchiveHoldsConfigurationTagsAndFiles(t *testing.T) {
	content := archive(t, sample(t, tree(t, time.Now()), false))
	_, files := unpack(t, content)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Config Config
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
		History []struct {
			CreatedBy string `json:"created_by"`
		}
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if manifest[0].RepoTags[0] != "tessera.test/sample:1" || config.Config.User != "1000:1000" ||
		config.Config.Entrypoint[0] != "/bin/x" || config.Config.WorkingDir != "/data" {
		t.Errorf("manifest %+v, configuration %+v", manifest, config)
	}
	if len(config.History) != 1 || config.History[0].CreatedBy != "tessera.dev/tools/image" {
		t.Errorf("history %+v", config.History)
	}
	layer := files[manifest[0].Layers[0]]
	if config.Rootfs.DiffIDs[0] != "sha256:"+digest(layer) {
		t.Error("the layer's digest is wrong")
	}
	headers, contents := unpack(t, layer)
	for name, mode := range map[string]int64{
		"bin/": 0o755, "bin/x": 0o755, "data/": 0o700, "tree/script": 0o755, "tree/sub/text": 0o640,
	} {
		if h := headers[name]; h == nil || h.Mode != mode || h.Uid != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if headers["bin/y"].Linkname != "x" || headers["tree/link"].Linkname != "sub/text" {
		t.Error("links are wrong")
	}
	if string(contents["tree/sub/text"]) != "sub/text" {
		t.Error("content is wrong")
	}
}

func TestConflictingAndUnreadableEntriesAreRejected(t *testing.T) {
	b := New("x")
	if err := b.AddSymlink("usr/lib", "/lib"); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"file below a link":   b.AddBytes("/lib/x", 0o644, nil),
		"relative path":       b.AddBytes("x", 0o644, nil),
		"file that is a link": b.AddDir("/lib", 0o755),
		"missing source":      b.AddFile("/does/not/exist", "/x", 0),
		"device":              b.AddFile("/dev/null", "/null", 0),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// rootFS unpacks the layer of an image into a folder.
func rootFS(t *testing.T, b *Builder) string {
	t.Helper()
	dir := t.TempDir()
	extract := exec.Command("tar", "-x", "-C", dir)
	extract.Stdin = bytes.NewReader(layerOf(t, archive(t, b)))
	if out, err := extract.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	return dir
}

func TestDynamicProgramRunsWithOnlyTheFilesThatAddELFAdds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	b := New("x")
	if err := b.AddELF("/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("chroot", rootFS(t, b), "/bin/ls", "/bin").CombinedOutput()
	if err != nil || string(out) != "ls\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestMissingLibraryIsNamed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	compile := func(args ...string) {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v %s", err, out)
		}
	}
	library, program := filepath.Join(dir, "libfar.so"), filepath.Join(dir, "program")
	compile("-shared", "-o", library, write("far.c", "int far(void) { return 0; }"))
	compile("-o", program, write("main.c", "int far(void); int main(void) { return far(); }"), library,
		"-Wl,-rpath,$ORIGIN/nowhere")
	if err := os.Rename(library, library+".away"); err != nil {
		t.Fatal(err)
	}
	err := New("x").AddELF(program, "/program")
	if err == nil || !strings.Contains(err.Error(), "libfar.so") {
		t.Errorf("the error does not name the library: %v", err)
	}
}

func TestAnImageWithGlibcHasTheLibrariesThatNvidiasDriverNeeds(t *testing.T) {
	b := New("x")
	if err := b.AddELF("/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	root := rootFS(t, b)
	// The libraries that libnvidia-ml.so.1 and libcuda.so.1 of versions 470, 535 and 550 need.
	for _, name := range []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"} {
		if found, _ := filepath.Glob(root + "/lib*/*/" + name); len(found) != 1 {
			t.Errorf("the image has %q as %s", found, name)
		}
	}
}

func TestLdconfigAndTheLoaderReadTheLdCache(t *testing.T) {
	b := New("x")
	if err := b.AddELF("/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	if err := b.AddLdCache(); err != nil {
		t.Fatal(err)
	}
	root := rootFS(t, b)
	out, err := exec.Command("/sbin/ldconfig", "-p", "-C", filepath.Join(root, ldCachePath)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "libc.so.6 (libc6,") {
		t.Errorf("ldconfig: %v\n%s", err, out)
	}
	// Container runtimes add their libraries by a file in ld.so.conf.d.
	if conf, err := os.ReadFile(filepath.Join(root, ldConfPath)); err != nil || !strings.Contains(string(conf), "include /etc/ld.so.conf.d/") {
		t.Errorf("ld.so.conf: %v\n%s", err, conf)
	}
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	// The loader finds a library in an unusual folder only through the cache.
	b = New("x")
	if err := b.AddELF("/bin/ls", "/bin/ls"); err != nil {
		t.Fatal(err)
	}
	for name, e := range b.entries {
		if strings.Contains(name, "libselinux.so") {
			delete(b.entries, name)
			b.entries["/odd"], b.entries["/odd/lib"] = entry{mode: os.ModeDir | 0o755}, entry{mode: os.ModeDir | 0o755}
			b.entries["/odd/lib/libselinux.so.1"] = e
		}
	}
	if err := b.AddLdCache(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chroot", rootFS(t, b), "/bin/ls", "/odd/lib").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestLdCacheHasTheOrderOfTheLoader(t *testing.T) {
	for _, pair := range [][2]string{
		{"libb.so", "liba.so"}, {"libx.so.10", "libx.so.9"}, {"libx1.so", "libxa.so"}, {"libxy", "libx"},
	} {
		if compareNames(pair[0], pair[1]) <= 0 || compareNames(pair[1], pair[0]) >= 0 {
			t.Errorf("%s must come after %s", pair[0], pair[1])
		}
	}
}
