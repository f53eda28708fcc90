// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sort"
)

// Media types of the OCI image specification 1.0.
const (
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// layout holds the blobs of an OCI image layout by their digests.
type layout map[string][]byte

func (l layout) add(mediaType string, content []byte) descriptor {
	sum := digest(content)
	l[sum] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
}

func (l layout) addJSON(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, content), nil
}

// WriteIndexFile writes one image for several architectures as an OCI archive, which containerd, podman and skopeo
// read. Each of the archives is an image of one architecture that WriteFile wrote. A container engine finds the image
// of its own architecture in the index. All archives must have the same tags, which become the tags of the index. The
// order of the archives does not matter.
func WriteIndexFile(file string, archives []string) error {
	blobs, manifests, tags := layout{}, []descriptor{}, []string(nil)
	for _, archive := range archives {
		manifest, archiveTags, err := blobs.addImage(archive)
		if err == nil && tags != nil && !slices.Equal(tags, archiveTags) {
			err = fmt.Errorf("its tags are %q, and those of %s are %q", archiveTags, archives[0], tags)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		manifests, tags = append(manifests, manifest), archiveTags
	}
	sort.Slice(manifests, func(i, j int) bool {
		return manifests[i].Platform.Architecture < manifests[j].Platform.Architecture
	})
	for i := 1; i < len(manifests); i++ {
		if arch := manifests[i].Platform.Architecture; arch == manifests[i-1].Platform.Architecture {
			return fmt.Errorf("two archives are for %s", arch)
		}
	}
	image, err := blobs.addJSON(ociIndex, map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": manifests})
	if err != nil {
		return err
	}
	named := []descriptor{}
	for _, tag := range tags {
		// containerd reads the first name, skopeo and podman the second.
		image.Annotations = map[string]string{"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag}
		named = append(named, image)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": named})
	if err != nil {
		return err
	}
	return writeWhole(file, func(out io.Writer) error { return blobs.write(out, index) })
}

func (l layout) write(out io.Writer, index []byte) error {
	sums := make([]string, 0, len(l))
	for sum := range l {
		sums = append(sums, sum)
	}
	sort.Strings(sums)
	archive := tar.NewWriter(out)
	put := func(name string, content []byte) error {
		return writeEntry(archive, name, entry{mode: 0o644, content: content})
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := put("index.json", index); err != nil {
		return err
	}
	for _, sum := range sums {
		if err := put(path.Join("blobs/sha256", sum), l[sum]); err != nil {
			return err
		}
	}
	return archive.Close()
}

// addImage adds the image of a docker-archive and returns its manifest and tags.
func (l layout) addImage(archive string) (descriptor, []string, error) {
	files, err := readArchive(archive)
	if err != nil {
		return descriptor{}, nil, err
	}
	var listed []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &listed); err != nil {
		return descriptor{}, nil, fmt.Errorf("manifest.json: %w: make the archive with make-image", err)
	}
	if len(listed) != 1 {
		return descriptor{}, nil, fmt.Errorf("manifest.json names %d images, want 1: make the archive with make-image", len(listed))
	}
	config := files[listed[0].Config]
	var imagePlatform platform
	if err := json.Unmarshal(config, &imagePlatform); err != nil {
		return descriptor{}, nil, fmt.Errorf("configuration: %w", err)
	}
	layers := []descriptor{}
	for _, name := range listed[0].Layers {
		layers = append(layers, l.add(ociLayer, files[name]))
	}
	manifest, err := l.addJSON(ociManifest, map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest, "config": l.add(ociConfig, config), "layers": layers,
	})
	if imagePlatform.Architecture == "arm64" {
		imagePlatform.Variant = "v8"
	}
	manifest.Platform = &imagePlatform
	return manifest, listed[0].RepoTags, err
}

func readArchive(file string) (map[string][]byte, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	files := map[string][]byte{}
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			return nil, err
		}
	}
}
