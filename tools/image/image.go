// SPDX-License-Identifier: Apache-2.0

// Package image writes container images without a container engine and without a registry. An image is a
// docker-archive with one layer and a configuration, which containerd, docker, podman and skopeo can read.
// The same inputs give the same bytes. Files belong to root, and all times are the epoch.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"
)

// Config has the settings of the image for its containers.
type Config struct {
	User       string            `json:",omitempty"`
	Env        []string          `json:",omitempty"`
	Entrypoint []string          `json:",omitempty"`
	Cmd        []string          `json:",omitempty"`
	WorkingDir string            `json:",omitempty"`
	Labels     map[string]string `json:",omitempty"`
}

// Builder collects the content of one image.
type Builder struct {
	Config Config
	// Architecture is Go's name of the image's architecture. AddELF rejects programs of other architectures.
	Architecture string
	// Root is the folder below which AddELF finds shared libraries; empty for the root of this host.
	Root    string
	tags    []string
	entries map[string]entry // by clean absolute path
}

type entry struct {
	mode    fs.FileMode // with type bits
	link    string
	content []byte
}

// New begins an empty image with these tags. Most engines put docker.io/library/ before a tag without a
// host, so name a host: "tessera.test/sample:1".
func New(tags ...string) *Builder {
	return &Builder{Architecture: runtime.GOARCH, tags: tags, entries: map[string]entry{}}
}

// AddBytes adds a regular file.
func (b *Builder) AddBytes(dest string, mode fs.FileMode, content []byte) error {
	return b.add(dest, entry{mode: mode.Perm(), content: content})
}

// AddDir adds an empty folder. The Builder adds missing parent folders of all files by itself.
func (b *Builder) AddDir(dest string, mode fs.FileMode) error {
	return b.add(dest, entry{mode: fs.ModeDir | mode})
}

// AddSymlink adds a symbolic link.
func (b *Builder) AddSymlink(target, dest string) error {
	return b.add(dest, entry{mode: fs.ModeSymlink | 0o777, link: target})
}

// AddFile adds a file, or a folder with all its content. Links inside a folder stay links; if source itself is a
// link, its target is added. mode 0 keeps the modes of the source. Another mode applies to the file, or to all
// regular files in the folder.
func (b *Builder) AddFile(source, dest string, mode fs.FileMode) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return b.addRegular(source, dest, info, mode)
	}
	root, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(name string, item fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		info, err := item.Info()
		if err != nil {
			return err
		}
		inside := path.Join(dest, filepath.ToSlash(relative))
		switch {
		case info.IsDir():
			return b.AddDir(inside, info.Mode().Perm())
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return b.AddSymlink(target, inside)
		}
		return b.addRegular(name, inside, info, mode)
	})
}

func (b *Builder) addRegular(source, dest string, info fs.FileInfo, mode fs.FileMode) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file, folder or link", source)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if mode == 0 {
		mode = info.Mode()
	}
	return b.AddBytes(dest, mode, content)
}

func (b *Builder) add(dest string, e entry) error {
	if !strings.HasPrefix(dest, "/") {
		return fmt.Errorf("path %q in an image must be absolute", dest)
	}
	dest = path.Clean(dest)
	if dest == "/" {
		return nil
	}
	for dir := path.Dir(dest); dir != "/"; dir = path.Dir(dir) {
		if parent, ok := b.entries[dir]; ok && !parent.mode.IsDir() {
			return fmt.Errorf("%s cannot be added: %s is not a folder in this image", dest, dir)
		} else if !ok {
			b.entries[dir] = entry{mode: fs.ModeDir | 0o755}
		}
	}
	if old, ok := b.entries[dest]; ok && old.mode.IsDir() != e.mode.IsDir() {
		return fmt.Errorf("%s is both a folder and a file in this image", dest)
	}
	b.entries[dest] = e
	return nil
}

// WriteFile writes the archive to a temporary file beside `file` and renames it, so that `file` is always complete.
func (b *Builder) WriteFile(file string) error { return writeWhole(file, b.Write) }

func writeWhole(file string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".image-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	err = write(temp)
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(temp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}

// Write writes the archive.
func (b *Builder) Write(out io.Writer) error {
	layer, err := b.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"created": "1970-01-01T00:00:00Z", "architecture": b.Architecture, "os": "linux", "config": b.Config,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history": []map[string]any{{"created": "1970-01-01T00:00:00Z", "created_by": "tessera.dev/tools/image"}},
	})
	if err != nil {
		return err
	}
	configName, layerName := digest(config)+".json", digest(layer)+"/layer.tar"
	manifest, err := json.Marshal([]map[string]any{
		{"Config": configName, "RepoTags": b.tags, "Layers": []string{layerName}},
	})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	for _, file := range []struct {
		name    string
		content []byte
	}{{configName, config}, {layerName, layer}, {"manifest.json", manifest}} {
		if err := writeEntry(archive, file.name, entry{mode: 0o644, content: file.content}); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (b *Builder) layer() ([]byte, error) {
	names := make([]string, 0, len(b.entries))
	for name := range b.entries {
		names = append(names, name)
	}
	sort.Strings(names) // a folder sorts before its content
	var buffer bytes.Buffer
	layer := tar.NewWriter(&buffer)
	for _, name := range names {
		if err := writeEntry(layer, name[1:], b.entries[name]); err != nil {
			return nil, err
		}
	}
	err := layer.Close()
	return buffer.Bytes(), err
}

func writeEntry(archive *tar.Writer, name string, e entry) error {
	header := &tar.Header{
		Name: name, Mode: int64(e.mode.Perm()), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		Typeflag: tar.TypeReg, Size: int64(len(e.content)),
	}
	if e.mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case e.mode&fs.ModeSymlink != 0:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err := archive.Write(e.content)
	return err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
