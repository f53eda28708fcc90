// SPDX-License-Identifier: Apache-2.0

// make-image writes a container image as an archive; see the README.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"tessera.dev/tools/image"
)

func main() {
	err := makeImage(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "make-image: %v\n", err)
		os.Exit(1)
	}
}

// repeated collects the values of a flag that may be given many times.
type repeated []string

func (r *repeated) String() string         { return strings.Join(*r, " ") }
func (r *repeated) Set(value string) error { *r = append(*r, value); return nil }

func makeImage(args []string) error {
	flags := flag.NewFlagSet("make-image", flag.ContinueOnError)
	var tags, files, elfs, dirs, links, env, entrypoint, cmd, labels, index repeated
	out := flags.String("out", "", "archive to write")
	user := flags.String("user", "", "user, or user:group, of the container")
	workdir := flags.String("workdir", "", "working folder of the container")
	ldcache := flags.Bool("ldcache", false, "write /etc/ld.so.cache over the libraries in the image")
	arch := flags.String("arch", runtime.GOARCH, "architecture of the image")
	root := flags.String("root", "", "folder below which the libraries of --elf are; default: this host's root")
	flags.Var(&index, "index", "archive that this program wrote for one architecture: writes an OCI archive\n"+
		"with an index over all of them and with their tags; allows no other flag than --out (repeatable)")
	flags.Var(&tags, "tag", "name of the image, such as tessera.test/sample:1 (repeatable)")
	flags.Var(&files, "file", "SRC:DEST[:MODE], a file, or a folder with all its content (repeatable)")
	flags.Var(&elfs, "elf", "SRC:DEST, a program or library with all libraries that it needs (repeatable)")
	flags.Var(&dirs, "dir", "DEST[:MODE], an empty folder (repeatable)")
	flags.Var(&links, "symlink", "TARGET:DEST (repeatable)")
	flags.Var(&env, "env", "NAME=VALUE (repeatable)")
	flags.Var(&entrypoint, "entrypoint", "one argument of the entrypoint (repeatable)")
	flags.Var(&cmd, "cmd", "one default argument after the entrypoint (repeatable)")
	flags.Var(&labels, "label", "NAME=VALUE (repeatable)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(index) > 0 {
		if *out == "" || flags.NFlag() != 2 || flags.NArg() > 0 {
			return errors.New("--index requires --out FILE and allows no other flag")
		}
		return image.WriteIndexFile(*out, index)
	}
	if *out == "" || len(tags) == 0 || flags.NArg() > 0 {
		return errors.New("--out FILE and --tag NAME are required, and arguments other than flags are not allowed")
	}
	b := image.New(tags...)
	b.Architecture, b.Root = *arch, strings.TrimRight(*root, "/")
	b.Config = image.Config{
		User: *user, WorkingDir: *workdir, Env: env, Entrypoint: entrypoint, Cmd: cmd, Labels: map[string]string{},
	}
	for _, label := range labels {
		name, value, _ := strings.Cut(label, "=")
		b.Config.Labels[name] = value
	}
	if err := fill(b, files, elfs, dirs, links); err != nil {
		return err
	}
	if *ldcache {
		if err := b.AddLdCache(); err != nil {
			return err
		}
	}
	return b.WriteFile(*out)
}

func fill(b *image.Builder, files, elfs, dirs, links []string) error {
	for _, dir := range dirs {
		dest, mode, err := withMode(strings.Split(dir, ":"), 1, 0o755)
		if err == nil {
			err = b.AddDir(dest[0], mode)
		}
		if err != nil {
			return fmt.Errorf("--dir %s: %w", dir, err)
		}
	}
	for _, file := range files {
		paths, mode, err := withMode(strings.Split(file, ":"), 2, 0)
		if err == nil {
			err = b.AddFile(paths[0], paths[1], mode)
		}
		if err != nil {
			return fmt.Errorf("--file %s: %w", file, err)
		}
	}
	for _, elf := range elfs {
		source, dest, ok := strings.Cut(elf, ":")
		if !ok {
			return fmt.Errorf("--elf %s: want SRC:DEST", elf)
		}
		if err := b.AddELF(source, dest); err != nil {
			return fmt.Errorf("--elf %s: %w", elf, err)
		}
	}
	for _, link := range links {
		target, dest, ok := strings.Cut(link, ":")
		if !ok {
			return fmt.Errorf("--symlink %s: want TARGET:DEST", link)
		}
		if err := b.AddSymlink(target, dest); err != nil {
			return fmt.Errorf("--symlink %s: %w", link, err)
		}
	}
	return nil
}

// withMode splits n paths and an optional octal mode.
func withMode(fields []string, n int, otherwise fs.FileMode) ([]string, fs.FileMode, error) {
	if len(fields) == n {
		return fields, otherwise, nil
	}
	if len(fields) != n+1 {
		return nil, 0, errors.New("wrong number of colons")
	}
	mode, err := strconv.ParseUint(fields[n], 8, 12)
	if err != nil {
		return nil, 0, fmt.Errorf("mode %q is not octal", fields[n])
	}
	unix := fs.FileMode(mode & 0o777)
	if mode&0o1000 != 0 {
		unix |= fs.ModeSticky
	}
	return fields[:n], unix, nil
}
