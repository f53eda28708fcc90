// SPDX-License-Identifier: Apache-2.0

// Package parts builds the programs of a cluster (Kubernetes, containerd and the pause program) and Helm, and keeps
// them in a cache outside the source tree. The cache is safe to delete. The name of a part in the cache contains a
// hash of all its sources, so changed sources make a new part, and two trees with the same sources share a part. Only
// one process at a time builds a part.
package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"time"
)

const (
	// KubernetesVersion is the version that the nodes report. The version that is built is in kubernetes/go.mod.
	KubernetesVersion = "v1.36.3"
	kubernetesFlags   = "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion
	progressPeriod    = 10 * time.Second
	keyLength         = 16
	keepUnused        = 14 * 24 * time.Hour
)

// Parts are the paths of the built programs.
type Parts struct {
	Kubernetes string // one program; its first argument names the component
	Kubectl    string // program
	Containerd string // folder with containerd, containerd-shim-runc-v2, ctr and cri-run
	Pause      string // static program
	Helm       string // program
	Cache      string // the folder that holds them all
	Tree       string // the source tree
}

type part struct {
	name    string
	expect  string
	sources []string // globs, relative to the source folder
	dir     string
	argv    func(out string) []string
}

func all() []part {
	return []part{
		{
			name: "kubernetes", expect: "the first build takes about nine minutes on two cores",
			sources: []string{"kubernetes/*.go", "kubernetes/go.mod", "kubernetes/go.sum"}, dir: "kubernetes",
			argv: func(out string) []string {
				return []string{"go", "build", "-ldflags=" + kubernetesFlags, "-o", out + "/kubernetes", "."}
			},
		},
		// A program of its own starts in half the processor time, and the tests start it thousands of times.
		{
			name: "kubectl", expect: "seconds after kubernetes, else about a minute",
			sources: []string{"kubernetes/kubectl/*.go", "kubernetes/go.mod", "kubernetes/go.sum"}, dir: "kubernetes",
			argv: func(out string) []string {
				return []string{"go", "build", "-ldflags=" + kubernetesFlags, "-o", out + "/kubectl", "./kubectl"}
			},
		},
		{
			name: "containerd", expect: "the first build takes about two minutes on two cores",
			sources: []string{"containerd/go.mod", "containerd/go.sum", "containerd/cri-run/*.go"}, dir: "containerd",
			argv: func(out string) []string { return []string{"go", "build", "-o", out + "/", "tool", "./cri-run"} },
		},
		{
			name: "helm", expect: "the first build takes about two minutes on two cores",
			sources: []string{"helm/go.mod", "helm/go.sum"}, dir: "helm",
			argv: func(out string) []string {
				// The version that "helm template" assumes, because it does not contact an API server.
				const version = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
				major, minor, _ := strings.Cut(strings.TrimPrefix(KubernetesVersion, "v"), ".")
				minor, _, _ = strings.Cut(minor, ".")
				flags := fmt.Sprintf("-s -w -X %sMajor=%s -X %sMinor=%s", version, major, version, minor)
				return []string{"go", "build", "-ldflags=" + flags, "-o", out + "/helm", "tool"}
			},
		},
		{
			name: "pause", expect: "seconds", sources: []string{"pause/*.c"}, dir: "pause",
			argv: func(out string) []string {
				return []string{"gcc", "-static", "-Os", "-s", "-o", out + "/pause", "pause.c"}
			},
		},
	}
}

// crio is not a part of a cluster. The tests of container engines run it.
func crio() part {
	return part{
		name: "crio", expect: "the first build takes four to five minutes of one core",
		sources: []string{"crio/go.mod", "crio/go.sum", "crio/build"}, dir: "crio",
		argv: func(out string) []string { return []string{"bash", "build", out} },
	}
}

// CacheDir returns the folder of the built parts: $TESSERA_CACHE, or ~/.cache/tessera.
func CacheDir() (string, error) {
	if dir := os.Getenv("TESSERA_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: set TESSERA_CACHE: %w", err)
	}
	return filepath.Join(home, ".cache", "tessera"), nil
}

// Build returns all parts, and builds the parts that the cache lacks. It writes its progress to log, in lines.
func Build(ctx context.Context, log io.Writer) (*Parts, error) {
	source, cache, err := folders()
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, p := range all() {
		if paths[p.name], err = p.get(ctx, source, cache, log); err != nil {
			return nil, err
		}
	}
	return &Parts{
		Kubernetes: filepath.Join(paths["kubernetes"], "kubernetes"),
		Kubectl:    filepath.Join(paths["kubectl"], "kubectl"),
		Containerd: paths["containerd"],
		Pause:      filepath.Join(paths["pause"], "pause"),
		Helm:       filepath.Join(paths["helm"], "helm"),
		Cache:      cache,
		Tree:       filepath.Join(source, "..", ".."),
	}, nil
}

// BuildHelm builds Helm if it is not in the cache, and returns its path.
func BuildHelm(ctx context.Context, log io.Writer) (string, error) {
	source, cache, err := folders()
	if err != nil {
		return "", err
	}
	for _, p := range all() {
		if p.name == "helm" {
			dir, err := p.get(ctx, source, cache, log)
			return filepath.Join(dir, "helm"), err
		}
	}
	return "", errors.New("there is no part helm")
}

// BuildCRIO builds CRI-O if it is not in the cache.
func BuildCRIO(ctx context.Context, log io.Writer) error {
	source, cache, err := folders()
	if err != nil {
		return err
	}
	_, err = crio().get(ctx, source, cache, log)
	return err
}

// folders returns the folder of the sources and the folder of the cache. It creates the cache if it is missing.
func folders() (source, cache string, err error) {
	if source, err = sourceDir(); err != nil {
		return "", "", err
	}
	if cache, err = CacheDir(); err != nil {
		return "", "", err
	}
	return source, cache, os.MkdirAll(cache, 0o755)
}

func (p part) get(ctx context.Context, source, cache string, log io.Writer) (string, error) {
	key, err := p.key(ctx, source)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.name, err)
	}
	final := filepath.Join(cache, p.name+"-"+key)
	if markUsed(final) {
		return final, nil
	}
	unlock, err := lock(ctx, filepath.Join(cache, p.name+".lock"), func() {
		fmt.Fprintf(log, "%s: waiting for another build of it\n", p.name)
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.name, err)
	}
	defer unlock()
	if markUsed(final) {
		return final, nil
	}
	prune(cache, p.name)
	temp, err := os.MkdirTemp(cache, "building-"+p.name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", err
	}
	if err := p.build(ctx, filepath.Join(source, p.dir), temp, log); err != nil {
		return "", err
	}
	return final, os.Rename(temp, final)
}

// markUsed reports whether the part exists, and updates its time for prune.
func markUsed(dir string) bool {
	now := time.Now()
	return os.Chtimes(dir, now, now) == nil
}

// prune removes versions of a part that no build has used for a long time and no process runs.
func prune(cache, name string) {
	versions, _ := filepath.Glob(filepath.Join(cache, name+"-*"))
	for _, version := range versions {
		info, err := os.Stat(version)
		if err == nil && time.Since(info.ModTime()) > keepUnused && !running(version) {
			os.RemoveAll(version)
		}
	}
}

// running returns whether a process executes a file of the directory, as in a cluster that has run for weeks. It
// compares files and not paths, because a node's processes are in another mount namespace.
func running(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	var programs []os.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			programs = append(programs, info)
		}
	}
	executed, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil || len(executed) == 0 {
		return true
	}
	for _, link := range executed {
		info, err := os.Stat(link)
		if err != nil {
			continue // it has ended
		}
		for _, program := range programs {
			if os.SameFile(info, program) {
				return true
			}
		}
	}
	return false
}

func (p part) build(ctx context.Context, dir, out string, log io.Writer) error {
	start := time.Now()
	fmt.Fprintf(log, "%s: building (%s)\n", p.name, p.expect)
	argv := p.argv(out)
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &output, &output
	done := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprintf(log, "%s: still building, %d s\n", p.name, int(time.Since(start).Seconds()))
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %q in %s: %w\n%s", p.name, strings.Join(argv, " "), dir, err,
					lastLines(output.String(), 25))
			}
			fmt.Fprintf(log, "%s: built in %d s\n", p.name, int(time.Since(start).Seconds()))
			return nil
		}
	}
}

func (p part) key(ctx context.Context, source string) (string, error) {
	argv := p.argv("")
	version := exec.CommandContext(ctx, argv[0], "--version")
	if argv[0] == "go" {
		version = exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH")
	}
	version.Dir = filepath.Join(source, p.dir)
	compiler, err := version.Output()
	if err != nil {
		return "", fmt.Errorf("%s is needed to build it: %w", argv[0], err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s\x00%q\x00", compiler, argv)
	for _, glob := range p.sources {
		files, err := filepath.Glob(filepath.Join(source, glob))
		if err != nil {
			return "", err
		}
		if len(files) == 0 {
			return "", fmt.Errorf("no source matches %s", filepath.Join(source, glob))
		}
		sort.Strings(files)
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(hash, "%s\x00%d\x00", filepath.Base(file), len(content))
			hash.Write(content)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:keyLength], nil
}

// sourceDir finds the folder tests/cluster: in $TESSERA_CLUSTER_SOURCE, at the path where this file was compiled, or
// above the working folder.
func sourceDir() (string, error) {
	candidates := []string{os.Getenv("TESSERA_CLUSTER_SOURCE")}
	if _, file, _, ok := runtime.Caller(0); ok {
		candidates = append(candidates, filepath.Join(filepath.Dir(file), "..", ".."))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != "/"; dir = filepath.Dir(dir) {
			candidates = append(candidates, dir, filepath.Join(dir, "tests", "cluster"))
		}
	}
	for _, dir := range candidates {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "kubernetes", "go.mod")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("cannot find the sources of the cluster's parts: " +
		"run inside the source tree, or set TESSERA_CLUSTER_SOURCE to its folder tests/cluster")
}

// lock takes an exclusive lock, which the kernel releases when the process ends.
func lock(ctx context.Context, path string, waiting func()) (func(), error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	for reported := false; ; reported = true {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !reported {
			waiting()
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
